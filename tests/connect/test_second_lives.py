"""A connection that is opened again after its last user has left: its previous life decides nothing about the next."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.connect.scripted import Exchange, HttpScript, listening, modern_answer
from tests.connect.targets import MODERN, ChannelServer, Json, eventually, initialized
from tests.connect.test_supervision import POLICY, Fickle
from toolweave import AuthRequiredError, McpConnection
from toolweave.config import server_config
from toolweave.connect import ConnectionState, StateChanged
from toolweave.errors import ServerError
from toolweave.testing import FakeClock


def reopened(target: Any, clock: FakeClock | None = None) -> McpConnection:
    """Return a connection by hand, which its tests enter twice."""
    return McpConnection(server_config(target, name="fickle"), clock=clock or FakeClock())


async def test_losses_of_the_previous_life_shorten_no_patience() -> None:
    server, clock = Fickle(), FakeClock()
    connection = reopened(server, clock)
    waits: list[float] = []

    def note(change: StateChanged) -> None:
        if change.retry_in is not None:
            waits.append(change.retry_in)

    connection.on("state", note)
    with anyio.fail_after(20):
        for _ in range(2):
            server.refuses = False
            async with connection:
                server.refuses = True
                server.hang_up()
                for _ in range(POLICY.attempts - 1):
                    await clock.until_sleeping()
                    await clock.advance(clock.sleepers[0])
                await clock.until_sleeping()
    assert len(waits) == 2 * POLICY.attempts
    assert waits[: POLICY.attempts] == waits[POLICY.attempts :]


async def test_a_server_that_does_not_come_up_in_the_next_life_is_not_tried_for_ever() -> None:
    server = Fickle()
    connection = reopened(server)
    with anyio.fail_after(20):
        async with connection:
            await connection.list_tools()
        server.refuses = True
        with pytest.raises(ServerError, match="not today"):
            await connection.open()


async def test_the_era_of_a_server_is_found_out_again() -> None:
    modern: list[bool] = []

    def tools(_: Json) -> Json:
        return {"result": {"tools": []}}

    def script(message: Json) -> Json | None:
        return modern_answer(message) if modern else initialized(tools)(message)

    connection = reopened(ChannelServer(script))
    versions: list[str | None] = []
    with anyio.fail_after(20):
        for _ in range(2):
            async with connection:
                versions.append(connection.protocol_version)
            modern.append(True)
    assert versions == ["2025-11-25", MODERN]


async def test_one_refused_request_of_the_previous_life_and_one_of_the_next_are_not_two_in_a_row() -> None:
    refusing: list[bool] = []

    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/list":
            error = {"code": -32000, "message": "no list today"}  # a list would be a request that succeeds
            await exchange.respond_json(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
            return True
        if refusing:
            await exchange.respond(401, www_authenticate='Bearer realm="gate"')
        return bool(refusing)

    async with listening(HttpScript(modern_answer, special).handle) as (url, _):
        connection = reopened({"url": url, "protocol": MODERN})
        with anyio.fail_after(20):
            for _ in range(2):
                async with connection:
                    refusing.append(True)
                    with pytest.raises(AuthRequiredError):
                        await connection.call_tool("quick")
                    await anyio.wait_all_tasks_blocked()
                    assert connection.state is ConnectionState.DEGRADED
                    refusing.clear()


async def test_a_connection_that_failed_before_its_first_user_came_fails_for_that_one_too() -> None:
    server = Fickle()
    server.refuses = True
    connection = reopened(server)
    with anyio.fail_after(20):
        connection.start()
        await eventually(lambda: connection.state is ConnectionState.FAILED)
        with pytest.raises(ServerError, match="not today"):
            await connection.open()
