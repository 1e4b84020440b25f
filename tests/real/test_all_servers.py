"""Every server of servers.json that starts here: the list is the raw wire's, and every call comes to an end."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.leftovers import Watch
from tests.real.machine import BROKEN
from tests.real.raw_wire import RawListing, RawWireError, canonical
from toolweave import connect_mcp
from toolweave.errors import ServerError

pytestmark = [pytest.mark.real, pytest.mark.data]

DETACHED = {"mobile": "mobilecli"}
"""Servers whose tools start a daemon in a session of its own, which is meant to outlive them."""
CALL = 60
"""Seconds one call may take: without a network some servers retry for a while."""


def _names() -> list[str]:
    """The names in servers.json, for the ids of the tests; the fixtures say what is wrong when there is none."""
    shared = os.environ.get("TOOLWEAVE_SHARED") or Path(__file__).resolve().parents[3] / "shared"
    path = Path(shared) / "data" / "servers.json"
    return list(json.loads(path.read_text())["mcpServers"]) if path.exists() else []


@pytest.mark.requirement("R28", "R47")
@pytest.mark.parametrize("name", _names())
def test_the_terminal_lists_exactly_the_tools_on_the_raw_wire(
    listed: dict[str, Any], raw: Callable[[str], RawListing | RawWireError], name: str
) -> None:
    witness = raw(name)
    server = listed["servers"][name]
    if isinstance(witness, RawWireError):
        assert server["state"] == "failed", f"the raw wire could not: {witness}"
        pytest.skip(f"it does not start on this machine: {str(witness)[-300:]}")
    assert server["state"] == "ready", server["error"]
    assert server["protocol_version"] == witness.protocol_version
    assert server["tools"] == len(witness.tools)
    ours = [_as_listed(tool) for tool in listed["tools"] if tool["server"] == name]
    assert ours == [_as_sent(tool) for tool in witness.tools]


def _as_listed(tool: dict[str, Any]) -> str:
    return canonical([tool[key] for key in ("tool", "description", "input_schema", "output_schema", "annotations")])


def _as_sent(tool: dict[str, Any]) -> str:
    return canonical(
        [
            tool["name"],
            tool.get("description", ""),
            tool["inputSchema"],
            tool.get("outputSchema"),
            tool.get("annotations"),
        ]
    )


@pytest.mark.requirement("C3", "R64", "R69")
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_server_beside_them_fails_by_itself_and_says_why(listed: dict[str, Any], name: str) -> None:
    server = listed["servers"][name]
    assert server["state"] == "failed"
    assert server["error"]
    assert not [tool for tool in listed["tools"] if tool["server"] == name]


@pytest.mark.parametrize("name", _names())
async def test_every_call_comes_to_an_end(
    entries: dict[str, dict[str, Any]], raw: Callable[[str], RawListing | RawWireError], homes: Path, name: str
) -> None:
    if isinstance(raw(name), RawWireError):
        pytest.skip("it does not start on this machine")
    watch = Watch(homes)
    entry = entries[name]
    server = {key: value for key, value in entry.items() if not key.startswith("x-")}
    failures: list[ServerError] = []
    with anyio.fail_after(300 + 2 * CALL * len(entry["x-call"])):
        async with connect_mcp({"timeout": 240, **server}, name=name) as conn:
            for call in entry["x-call"]:
                try:
                    result = await conn.call_tool(call["name"], call["arguments"], timeout=CALL)
                except ServerError as error:
                    failures.append(error)
                else:
                    assert result.is_error == (result.error is not None)
            assert conn.state == "ready"
    assert [failure.server for failure in failures] == [name] * len(failures)
    for process in watch.leftovers():
        if name in DETACHED and DETACHED[name] in process.command:
            os.kill(process.pid, signal.SIGTERM)
