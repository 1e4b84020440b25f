"""What functions return, as clients of every revision get it: structured content that fits the output schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from tests.serve.carriers import EACH_CARRIER, connected
from tests.serve.returned import RETURNED, generated, server
from toolweave import ErrorKind, create_mcp_server, tool
from toolweave.schema import Validator
from toolweave.tools import File

MODERN = "2026-07-28"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN)
EACH_REVISION = pytest.mark.parametrize("revision", REVISIONS)
EACH_TYPE = pytest.mark.parametrize("function", RETURNED, ids=lambda one: one.__name__)
OBJECTS = ("model", "data_class", "typed_dict", "mapping", "objects")


def plain(value: Any) -> Any:
    """Return a value with the models in it as JSON."""
    return TypeAdapter[Any](Any).dump_python(value, mode="json")


@EACH_REVISION
async def test_every_return_type_has_structured_content_in_every_revision(revision: str) -> None:
    found: dict[str, Any] = {}
    async with connected(server(), era=revision) as connection:
        tools = connection.snapshot().by_name
        for function in RETURNED:
            found[function.__name__] = await connection.call_tool(function.__name__)

    for function, value in RETURNED.items():
        name = function.__name__
        schema = tools[name].output_schema
        result = found[name]
        is_wrapped = revision != MODERN and name not in OBJECTS
        assert result.structured_content == ({"result": value} if is_wrapped else value), name
        assert isinstance(schema, dict)
        assert Validator(schema).is_valid(result.structured_content), name
        assert revision == MODERN or schema["type"] == "object"
        assert plain(result.data) == value, name
        assert result.text == (value if isinstance(value, str) else json.dumps(value)), name


@EACH_TYPE
async def test_the_value_of_a_local_tool_is_of_the_type_that_its_function_returns(function: Callable[[], Any]) -> None:
    result = await tool(function).execute()

    assert result.structured_content == RETURNED[function]
    if function is generated:  # an iterator
        assert list(result.data) == list(generated())
    else:
        assert result.data == function()


@EACH_CARRIER
async def test_each_carrier_carries_wrapped_and_plain_values(carrier: str, era: str) -> None:
    async with connected(server(), carrier, era) as connection:
        found = [(await connection.call_tool(name)).data for name in ("number", "text", "maybe_none", "numbers")]

    assert found == [1.5, "made", None, [1, 2]]


class Opaque:
    """A class that JSON cannot express."""


def bare() -> Any:
    return Opaque()


def inside() -> Any:
    return {"a": [Opaque()]}


def instead_of_a_text() -> str:
    return Opaque()  # pyright: ignore[reportReturnType]


def in_a_list() -> list[object]:
    return [Opaque()]


def in_a_dict() -> dict[str, Any]:
    return {"a": Opaque()}


@pytest.mark.parametrize("function", [bare, inside, instead_of_a_text, in_a_list, in_a_dict])
@EACH_CARRIER
async def test_what_json_cannot_express_is_an_error_that_names_the_tool_and_the_type(
    function: Callable[[], Any], carrier: str, era: str
) -> None:
    made = create_mcp_server(name="s", version="1", tools=[function])
    async with connected(made, carrier, era) as connection:
        result = await connection.call_tool(function.__name__)

    assert result.error is not None
    assert result.error.kind is ErrorKind.INVALID_OUTPUT
    assert f"tool {function.__name__!r} returned" in result.text
    assert "Opaque" in result.text
    assert " object at 0x" not in result.text


def picture() -> bytes:
    return b"\x89PNG\r\n\x1a\n"


def pictures() -> list[bytes]:
    return [picture()]


def words_or_picture() -> str | bytes:
    return "words"


def path() -> Path:
    return Path("nowhere")


def file() -> File | None:
    return File(b"x", mime_type="text/plain")


def anything() -> Any:
    return 5


def some() -> list[Any]:
    return ["words", picture()]


@pytest.mark.parametrize("function", [picture, pictures, words_or_picture, path, file, anything, some])
def test_a_type_that_may_be_content_promises_no_structured_content(function: Callable[[], Any]) -> None:
    assert tool(function).output_schema is None


async def test_pictures_in_a_list_stay_pictures() -> None:
    kinds = [block.type for block in (await tool(some).execute()).content]

    assert kinds == ["text", "image"]


class Recursive(BaseModel):
    parent: Recursive | None = None


@EACH_REVISION
async def test_references_of_a_wrapped_schema_lead_to_the_same_places(revision: str) -> None:
    schemas: dict[str, dict[str, Any]] = {
        "defs": {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}},
        "definitions": {
            "type": "array",
            "items": {"$ref": "#/definitions/n"},
            "definitions": {"n": {"type": "integer"}},
        },
        "root": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}},
        "inside": {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"$ref": "#/prefixItems/0"}},
        "id": {"$id": "urn:x", "type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}},
        "data": {"type": "array", "items": {"type": ["integer", "object"]}, "examples": [{"$ref": "#"}]},
    }

    def values() -> Any:
        return [1, 2]

    tools = [tool(name=name, output_schema=schema)(values) for name, schema in schemas.items()]
    async with connected(create_mcp_server(name="s", version="1", tools=tools), era=revision) as connection:
        for name in schemas:
            spec = connection.snapshot().by_name[name]
            assert isinstance(spec.output_schema, dict)
            validator = Validator(spec.output_schema)
            wrong: Any = ["a"] if revision == MODERN else {"result": ["a"]}
            assert (await connection.call_tool(name)).data == [1, 2]
            assert not validator.is_valid(wrong), name
