"""The four limits of the designs that docs_src/designs/names.md calls gone."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import anyio
import pytest

from tests.leftovers import descendants, processes
from toolweave import connect_mcp, connect_mcp_servers
from toolweave.schema import schema_to_model

pytestmark = pytest.mark.slow

NUMBERS: dict[str, Any] = {"command": sys.executable, "args": ["-m", "toolweave.cli.demo.numbers"]}
ADD = {"values": [1, 2]}


@pytest.mark.requirement("R113")
async def test_two_servers_may_have_tools_of_one_name() -> None:
    with anyio.fail_after(30):
        async with connect_mcp_servers({"a": NUMBERS, "b": NUMBERS}) as hub:
            assert {"a_add", "b_add"} <= set(hub.tools.names)
            assert (await hub.execute("b_add", ADD)).structured_content == {"sum": 3}


@pytest.mark.requirement("R113", "R36")
async def test_nothing_is_started_before_the_first_use() -> None:
    before = descendants(processes(), os.getpid())

    connecting = connect_mcp(NUMBERS)

    assert descendants(processes(), os.getpid()) == before
    with anyio.fail_after(30):
        async with connecting as numbers:
            assert len(descendants(processes(), os.getpid())) > len(before)
            assert await numbers.list_tools()


@pytest.mark.requirement("R113", "R47")
def test_a_schema_with_unions_and_references_becomes_a_model_that_enforces_them() -> None:
    schema = {
        "type": "object",
        "properties": {"place": {"anyOf": [{"$ref": "#/$defs/point"}, {"const": "home"}]}},
        "required": ["place"],
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    }

    model = schema_to_model(schema)

    model.model_validate({"place": "home"})
    model.model_validate({"place": {"x": 1}})
    with pytest.raises(ValueError, match="place"):
        model.model_validate({"place": {"x": "not a number"}})


@pytest.mark.requirement("R113", "C24")
async def test_a_server_that_was_killed_answers_the_next_call() -> None:
    before = descendants(processes(), os.getpid())
    with anyio.fail_after(30):
        async with connect_mcp(NUMBERS) as numbers:
            lost = anyio.Event()
            numbers.on("state", lambda change: lost.set() if change.state.value != "ready" else None)
            for row in processes():
                if row.pid in descendants(processes(), os.getpid()) - before and "toolweave.cli.demo" in row.command:
                    os.kill(row.pid, signal.SIGKILL)
            await lost.wait()

            tools = await numbers.list_tools()

            assert (await tools["add"].execute(ADD)).structured_content == {"sum": 3}
            assert numbers.restarts == 1
