"""The thread in which plain code runs what is asynchronous."""

from __future__ import annotations

from toolweave import create_mcp_server, sync
from toolweave.connect import ConnectionState
from toolweave.testing import MemoryServer
from toolweave.tools._portal import PORTAL


def add(a: int, b: int) -> int:
    return a + b


def test_the_portal_is_closed_with_what_is_open_and_begins_anew() -> None:
    left = sync.connect_mcp(create_mcp_server(name="s", version="1", tools=[add]))
    PORTAL.close()
    assert left.state is ConnectionState.CLOSED
    with sync.connect_mcp(MemoryServer([add], name="memory")) as again:
        assert again.call_tool("add", {"a": 1, "b": 2}).text == "3"
