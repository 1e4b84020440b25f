"""Structured content of every type between callers and upstreams of different eras: wrapped once, or not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.server_process import serving
from tests.gateway.relayed import CALLERS, MODERN, Json, calling, gateway_to
from tests.serve.returned import RETURNED, server
from toolweave import Callbacks
from toolweave.schema import Validator
from toolweave.testing import MemoryServer

OBJECTS = ("model", "data_class", "typed_dict", "mapping", "objects")
NUMBERS = {"type": "array", "items": {"type": "integer"}}
NODE: Json = {"anyOf": [{"type": "object"}, {"type": "array"}]}
HANDSHAKES = [one for one in CALLERS if one != MODERN]
PROGRAM = (sys.executable, "-m", "tests.serve.returned")


async def values_through(config: Json, version: str, names: list[str], carrier: str = "inprocess") -> dict[str, Any]:
    """Return the schema, the structured content and the value of each tool, as a caller gets them through a gateway."""
    found: dict[str, Any] = {}
    gateway = gateway_to({**config, "tool_prefix": ""})
    async with calling(gateway, version, callbacks=Callbacks(), carrier=carrier) as caller:
        for name in names:
            result = await caller.call_tool(name)
            assert not result.is_error, result.text
            found[name] = (caller.snapshot().by_name[name].output_schema, result.structured_content, result.data)
    return found


def check(found: dict[str, Any], *, wrapped: bool) -> None:
    """Compare what came through a gateway with what the functions return."""
    expected = {function.__name__: value for function, value in RETURNED.items()}
    for name, (schema, structured, _) in found.items():
        value = expected[name]
        assert structured == ({"result": value} if wrapped and name not in OBJECTS else value), name
        assert Validator(schema).is_valid(structured), name
        assert not wrapped or schema["type"] == "object"


@pytest.mark.parametrize("era", ["auto", "2024-11-05", "2025-11-25", MODERN])
@pytest.mark.parametrize("version", CALLERS)
async def test_every_type_passes_between_the_eras(version: str, era: str) -> None:
    names = [function.__name__ for function in RETURNED]

    found = await values_through({"server": server(), "protocol": era}, version, names)

    check(found, wrapped=version != MODERN or era.startswith(("2024", "2025")))
    assert [found[name][2] for name in ("number", "text", "flag", "nothing", "numbers")] == [
        1.5,
        "made",
        False,
        None,
        [1, 2],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("version", CALLERS)
async def test_every_type_passes_from_servers_over_pipes_and_http_to_callers_over_http(
    version: str, transport: str, tmp_path: Path
) -> None:
    names = [function.__name__ for function in RETURNED]
    if transport == "stdio":
        command, *args = PROGRAM
        found = await values_through({"command": command, "args": args}, version, names, "http")
    else:
        with serving(tmp_path / "log", command=PROGRAM) as url:
            found = await values_through({"type": "http", "url": url}, version, names, "http")

    check(found, wrapped=version != MODERN)


def foreign(schema: Json, result: Json, protocol: str = "auto") -> MemoryServer:
    """Return a server whose one tool has a result of its own."""
    made = MemoryServer(protocol=protocol)

    @made.tool(output_schema=schema)
    def values() -> Any:
        return None

    made.answer("tools/call", result)
    return made


@pytest.mark.parametrize("version", HANDSHAKES)
async def test_an_object_that_its_schema_lets_be_a_list_is_wrapped_as_well(version: str) -> None:
    upstream = foreign(NODE, {"content": [], "structuredContent": {"a": 1}, "resultType": "complete"}, MODERN)

    found = await values_through({"server": upstream}, version, ["values"])

    schema, structured, _ = found["values"]
    assert structured == {"result": {"a": 1}}
    assert Validator(schema).is_valid(structured)


@pytest.mark.parametrize("version", HANDSHAKES)
async def test_an_error_of_a_tool_with_wrapped_results_is_not_wrapped(version: str) -> None:
    failed = {"content": [{"type": "text", "text": "no"}], "isError": True}
    gateway = gateway_to({"server": foreign(NUMBERS, failed), "tool_prefix": ""})

    async with calling(gateway, version, callbacks=Callbacks()) as caller:
        result = await caller.call_tool("values")

    assert (result.is_error, result.structured_content, result.text) == (True, None, "no")


@pytest.mark.parametrize("version", HANDSHAKES)
@pytest.mark.parametrize("value", [None, [1], "text", 3])
async def test_a_value_without_a_schema_that_is_not_an_object_is_text_for_handshake_callers(
    version: str, value: object
) -> None:
    upstream = MemoryServer(protocol=MODERN)

    @upstream.tool
    def values() -> Any:
        return None

    upstream.answer("tools/call", {"content": [], "structuredContent": value, "resultType": "complete"})
    async with calling(gateway_to({"server": upstream, "tool_prefix": ""}), version, callbacks=Callbacks()) as caller:
        result = await caller.call_tool("values")

    assert "structuredContent" not in result.raw
