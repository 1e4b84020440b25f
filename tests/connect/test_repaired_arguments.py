"""Arguments that nearly fit, on their way to a server: from models, programs and frameworks."""

from __future__ import annotations

import datetime as dt
import json
import pathlib
from typing import Any

import pydantic
import pytest

from tests.connect.targets import ChannelServer, Json, connected, initialized
from toolweave import CallContext, ErrorKind, ToolCall
from toolweave.providers import AnthropicTools, OpenAIChatTools

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "fields": {"type": "object", "properties": {"d": {"type": "string"}}},
        "ids": {"type": "array", "items": {"type": "integer"}},
        "body": {"type": "string"},
        "any": {},
    },
}


def server() -> ChannelServer:
    """Return a server whose tool answers with its arguments as they came."""

    def script(message: Json) -> Json | None:
        match message["method"]:
            case "tools/list":
                return {"result": {"tools": [{"name": "t", "inputSchema": SCHEMA}]}}
            case "tools/call":
                text = json.dumps(message["params"].get("arguments"))
                return {"result": {"content": [{"type": "text", "text": text}]}}
            case _:
                return None

    return ChannelServer(initialized(script))


class Filter(pydantic.BaseModel):
    day: dt.date = dt.date(2024, 1, 1)


SENT: list[tuple[Json, Json]] = [
    ({"fields": '{"d": "x"}'}, {"fields": {"d": "x"}}),
    ({"ids": "[1, 2]"}, {"ids": [1, 2]}),
    ({"ids": ["1", 2]}, {"ids": [1, 2]}),
    ({"body": '{"d": "x"}'}, {"body": '{"d": "x"}'}),
    ({"any": "[1]"}, {"any": "[1]"}),
    ({"ids": [1], "body": None}, {"ids": [1]}),
    ({"any": None}, {"any": None}),
]


@pytest.mark.parametrize(("given", "wanted"), SENT)
@pytest.mark.parametrize("way", ["chat", "claude", "program", "toolset"])
async def test_arguments_that_nearly_fit_reach_the_server_as_its_schema_has_them(
    given: Json, wanted: Json, way: str
) -> None:
    async with connected(server()) as connection:
        if way == "chat":
            call: Json = {"id": "1", "type": "function", "function": {"name": "t", "arguments": json.dumps(given)}}
            messages: Any = await OpenAIChatTools(connection).dispatch([call])
            text: str = messages[0]["content"]
        elif way == "claude":
            use: Json = {"type": "tool_use", "id": "1", "name": "t", "input": given}
            results: Any = await AnthropicTools(connection).dispatch([use])
            text = results[0]["content"][0]["text"]
        elif way == "program":
            text = (await connection.call_tool("t", given)).text
        else:
            text = (await connection.call(ToolCall(name="t", arguments=given), CallContext())).text
    assert json.loads(text) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Filter(), {"day": "2024-01-01"}),
        ([Filter()], [{"day": "2024-01-01"}]),
        (pathlib.PurePosixPath("/srv/x"), "/srv/x"),
        (dt.date(2024, 1, 2), "2024-01-02"),
    ],
)
@pytest.mark.parametrize("name", ["any", "unknown"])
@pytest.mark.parametrize("checked", [True, False])
async def test_models_and_paths_are_arguments(value: Any, wanted: Any, name: str, checked: bool) -> None:
    async with connected({"transport": "inprocess", "server": server(), "validate_input": checked}) as connection:
        result = await connection.call_tool("t", {name: value})
    assert json.loads(result.text) == {name: wanted}


async def test_a_path_is_a_text_for_the_schema() -> None:
    async with connected(server()) as connection:
        result = await connection.call_tool("t", {"body": pathlib.PurePosixPath("/srv/x")})
    assert json.loads(result.text) == {"body": "/srv/x"}


async def test_a_value_without_a_form_in_json_is_an_error_that_names_its_type() -> None:
    async with connected({"transport": "inprocess", "server": server(), "validate_input": False}) as connection:
        with pytest.raises(Exception, match="object") as refused:
            await connection.call_tool("t", {"any": object()})
    assert getattr(refused.value, "kind", None) is ErrorKind.INVALID_INPUT


async def test_a_config_switches_the_repair_off() -> None:
    async with connected({"transport": "inprocess", "server": server(), "repair_arguments": False}) as connection:
        result = await connection.call(ToolCall(name="t", arguments={"ids": "[1]"}), CallContext())
        assert result.is_error
        assert '"ids": expected array, got string' in result.text
