"""Documents and answers as APIs really have them: what costs a check, a part or nothing, but no tool and no call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.openapi.documents import document, operation
from tests.openapi.mock_api import MockApi, MockResponse
from toolweave import connect_mcp, create_mcp_server
from toolweave.openapi import openapi_tools
from toolweave.schema import Validator

Serve = Callable[[dict[str, Any]], tuple[MockApi, str]]
MADE = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["id", "note"],
}
JSON = {"content-type": "application/json"}
NOT_AS_PROMISED = {
    "a null": MockResponse({"id": 1, "note": None}, 201),
    "a missing member": MockResponse({"id": 1}, 201),
    "another type": MockResponse({"id": "1", "note": "x"}, 200),
    "a list": MockResponse([1], 200),
    "a page": MockResponse(b"<html>made</html>", 200, {"content-type": "text/html"}),
    "broken JSON": MockResponse(b'{"id": 1', 201, JSON),
    "nothing": MockResponse(b"", 201),
    "no content": MockResponse(b"", 204),
}


def ordering() -> dict[str, Any]:
    answers = {"201": {"description": "made", "content": {"application/json": {"schema": MADE}}}}
    return document({"/orders": {"post": {"operationId": "order", "responses": answers}}})


@pytest.mark.parametrize("case", NOT_AS_PROMISED)
@pytest.mark.parametrize("through", ["here", "2025-11-25", "2026-07-28"])
async def test_a_call_that_succeeded_is_no_error_whatever_its_answer_looks_like(
    api: Serve, case: str, through: str, caplog: pytest.LogCaptureFixture
) -> None:
    mock, url = api(ordering())
    mock.answers["POST /orders"] = NOT_AS_PROMISED[case]
    async with openapi_tools(ordering(), base_url=url) as tools:
        if through == "here":
            result = await tools.execute("order", {})
        else:
            server = create_mcp_server("s", tools=[tools])
            async with connect_mcp({"server": server, "protocol": through}) as client:
                result = await client.call_tool("order", {})
                assert result.structured_content is None
    assert not result.is_error
    assert result.text
    assert "is not as the document promises" in result.meta["io.toolweave/output-mismatch"]
    assert "is not as the document promises" in caplog.text


async def test_an_answer_as_promised_has_no_note(api: Serve) -> None:
    mock, url = api(ordering())
    mock.answers["POST /orders"] = MockResponse({"id": 1, "note": "x"}, 201)
    async with openapi_tools(ordering(), base_url=url) as tools:
        result = await tools.execute("order", {})
    assert (result.structured_content, dict(result.meta)) == ({"id": 1, "note": "x"}, {})


@pytest.mark.parametrize(
    "pattern", ["^.{0,262144}$", r"\A(\*\.)?[a-z]+\Z", "^[0-9]{,2}$", "[a-zA-Z]{1-70}", "^.{1,2097152}", "(", "[z-a]"]
)
@pytest.mark.parametrize("place", ["parameter", "body", "shared", "answer"])
async def test_a_pattern_that_cannot_be_checked_costs_its_own_check(api: Serve, pattern: str, place: str) -> None:
    part = {"type": "string", "pattern": pattern, "description": "A name.", "maxLength": 5}
    body = {"type": "object", "properties": {"d": part if place != "shared" else {"$ref": "#/components/schemas/D"}}}
    members: dict[str, Any] = {"responses": {"200": {"description": "ok"}}}
    if place == "parameter":
        members["parameters"] = [{"name": "d", "in": "query", "schema": part}]
    elif place == "answer":
        members["responses"]["200"]["content"] = {"application/json": {"schema": body}}
    else:
        members["requestBody"] = {"content": {"application/json": {"schema": body}}}
    made = document({"/x": {"post": {"operationId": "x", **members}}}, components={"schemas": {"D": part}})
    mock, url = api(made)
    mock.answers["POST /x"] = MockResponse({"d": "ok"}, 200)
    async with openapi_tools(made, base_url=url) as tools:
        assert tools.tools.names == ("x",)
        server = create_mcp_server("s", tools=[tools])  # which compiles every schema
        async with connect_mcp(server) as client:
            listed = (await client.list_tools())["x"]
            result = await client.call_tool("x", {} if place == "answer" else {"d": "abc"})
            assert not result.is_error
            schema = str(listed.spec.output_schema if place == "answer" else listed.spec.input_schema)
            assert f"A name. (pattern: {pattern})".replace("\\", "\\\\") in schema
            if place != "answer":
                assert (await client.call_tool("x", {"d": "a longer one"})).is_error  # the rest is checked


def test_a_parameter_that_only_the_path_has_is_a_text() -> None:
    tools = openapi_tools(
        document({"/a/{id}/{b}": {"get": operation(operationId="one")}}), base_url="http://api.example"
    )

    schema = tools.tools["one"].spec.input_schema
    assert schema["required"] == ["id", "b"]
    assert schema["properties"]["id"] == {"type": "string"}
    assert tools.problems == ()


def deep(levels: int, width: int) -> dict[str, Any]:
    """Return components that refer to one another, `width` members in each."""
    made: dict[str, Any] = {}
    for level in range(levels):
        inner: dict[str, Any] = (
            {"$ref": f"#/components/schemas/L{level + 1}"} if level + 1 < levels else {"type": "string"}
        )
        members = {f"member{number}": {"type": "string", "description": "x" * 50} for number in range(width)}
        made[f"L{level}"] = {
            "type": "object",
            "description": f"Level {level}.",
            "properties": {**members, "inner": inner, "list": {"type": "array", "items": inner}},
            "required": ["inner"],
        }
    return made


def nested(levels: int) -> Any:
    return "end" if levels == 0 else {"inner": nested(levels - 1), "member0": "x"}


@pytest.mark.parametrize(("levels", "width"), [(12, 200), (40, 100), (3, 600)])
def test_a_large_schema_is_shown_up_to_a_depth(levels: int, width: int) -> None:
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/L0"}}}}
    made = document(
        {"/x": {"post": {"operationId": "x", "requestBody": body, "responses": {"200": {"description": "ok"}}}}},
        components={"schemas": deep(levels, width)},
    )

    tools = openapi_tools(made, base_url="http://api.example")

    schema = tools.tools["x"].spec.input_schema
    (problem,) = tools.problems
    assert problem.skipped == "deep parts of the input schema"
    assert len(str(schema)) < 120_000
    assert "member0" in str(schema)
    assert "its parts are not described here; the API checks them" in str(schema)
    whole = nested(levels)
    arguments = whole if "inner" in schema["properties"] else {"body": whole}
    assert Validator(schema).is_valid(arguments)


def test_a_small_schema_is_shown_whole() -> None:
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/L0"}}}}
    made = document(
        {"/x": {"post": {"operationId": "x", "requestBody": body, "responses": {"200": {"description": "ok"}}}}},
        components={"schemas": deep(6, 3)},
    )

    tools = openapi_tools(made, base_url="http://api.example")

    assert tools.problems == ()
    assert "not described here" not in str(tools.tools["x"].spec.input_schema)
