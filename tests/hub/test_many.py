"""More servers than the machine can start at once."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.hub.fleet import opened, waiting
from toolweave import McpConnection, ServerConfig
from toolweave.connect import ConnectionState
from toolweave.hub._starting import StartLimiter

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_no_more_servers_start_at_once_than_the_limit_and_all_of_them_do(tmp_path: Path) -> None:
    limit, count = StartLimiter().limit, StartLimiter().limit + 3
    names = [f"s{number}" for number in range(count)]
    async with opened({name: waiting(tmp_path, name, limit + 1) for name in names}, wait=0) as hub:
        with anyio.fail_after(30):
            while len(list(tmp_path.glob("s*"))) < limit:
                await anyio.sleep(0.01)
            assert list(hub.states().values()).count(ConnectionState.CONNECTING) == limit
            assert list(hub.states().values()).count(ConnectionState.IDLE) == 3
            (tmp_path / "go").touch()
            while set(hub.states().values()) != {ConnectionState.READY}:
                await anyio.sleep(0.01)
        assert {spec.server for spec in hub.snapshot()} == set(names)


async def test_a_connection_that_was_closed_while_it_waited_is_passed_over() -> None:
    starts = StartLimiter(limit=1)
    first, second, third = (
        McpConnection(ServerConfig(name=name, command="toolweave-test-no-such-command")) for name in ("a", "b", "c")
    )
    for connection in (first, second, third):
        starts.begin(connection)
    await second.close()
    starts.settled(first)
    assert first.state is third.state is ConnectionState.CONNECTING
    assert second.state is ConnectionState.CLOSED
    await first.close()
    await third.close()
