"""Backoff, giving up, trying again and asking for other credentials, on a clock that the tests move."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.connect.scripted import Exchange, HttpScript, listening
from tests.connect.targets import ChannelServer, Json, error, eventually, initialized
from toolweave import (
    AuthRequiredError,
    CallContext,
    ConnectError,
    ConnectionLostError,
    ErrorKind,
    McpConnection,
    ProtocolError,
    ToolCall,
)
from toolweave.config import Timeouts, server_config
from toolweave.connect import ConnectionState, StateChanged
from toolweave.connect._restart import RestartPolicy
from toolweave.testing import FakeClock

POLICY = RestartPolicy()


class Fickle(ChannelServer):
    """A server in this process that refuses to shake hands while `refuses` is set."""

    def __init__(self) -> None:
        self.refuses = False
        self.on_call: Callable[[], Json | None] = lambda: {"result": {"content": [{"type": "text", "text": "done"}]}}
        super().__init__(self._answer)

    def _answer(self, message: Json) -> Json | None:
        if self.refuses:
            return error(-32000, "not today")
        return initialized(self._offer)(message)

    def _offer(self, message: Json) -> Json | None:
        if message["method"] == "tools/call":
            return self.on_call()
        return {"result": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}}


@asynccontextmanager
async def supervised(
    target: Any, clock: FakeClock, **options: Any
) -> AsyncGenerator[tuple[McpConnection, list[StateChanged]], None]:
    """Yield a connection on this clock that is not begun yet, and the list of its changes of state."""
    config = server_config(target, name="fickle").replace(**options)
    connection = McpConnection(config, lazy=True, clock=clock)
    changes: list[StateChanged] = []
    connection.on("state", changes.append)
    with anyio.fail_after(20):
        async with connection:
            yield connection, changes


async def lose(server: ChannelServer, connection: McpConnection, clock: FakeClock) -> None:
    """End the conversation and wait for the backoff that follows."""
    server.hang_up()
    await clock.until_sleeping()
    assert connection.state is ConnectionState.BACKOFF


async def give_up(server: Fickle, connection: McpConnection, clock: FakeClock) -> None:
    """Bring a connection up, and let it be given up."""
    await connection.list_tools()
    server.refuses = True
    server.hang_up()
    for _ in range(POLICY.attempts):
        await clock.until_sleeping()
        await clock.advance(clock.sleepers[0])
    await eventually(lambda: connection.state is ConnectionState.FAILED)


async def test_waits_between_attempts_are_those_of_the_policy_and_no_attempt_begins_before_its_time() -> None:
    server, clock = Fickle(), FakeClock(jitter=0.5)
    async with supervised(server, clock) as (connection, changes):
        await connection.list_tools()
        server.refuses = True
        await lose(server, connection, clock)
        for _ in range(2):
            before = server.conversations
            (wait,) = clock.sleepers
            await clock.advance(wait * 0.99)
            assert (server.conversations, connection.state) == (before, ConnectionState.BACKOFF)
            await clock.advance(wait * 0.02)
            await clock.until_sleeping()
            assert server.conversations == before + 1
    waits = [change.retry_in for change in changes if change.state is ConnectionState.BACKOFF]
    assert waits == pytest.approx([0.1 * 0.75, 0.3 * 0.75, 0.9 * 0.75])


async def fail(clock: FakeClock, *, times: int) -> None:
    """Let so many attempts fail, and return in the backoff after the last."""
    for _ in range(times):
        await clock.until_sleeping()
        (wait,) = clock.sleepers
        await clock.advance(wait)
    await clock.until_sleeping()


@pytest.mark.requirement("C24")
async def test_a_connection_that_was_given_up_answers_at_once_with_the_cause_and_dials_nobody() -> None:
    server, clock = Fickle(), FakeClock()
    async with supervised(server, clock) as (connection, _):
        await give_up(server, connection, clock)
        assert connection.restarts == POLICY.attempts
        before = server.conversations
        for _ in range(3):
            with pytest.raises(ConnectError) as cause:
                await connection.call_tool("work")
            assert str(cause.value) == (
                "server 'fickle': given up after 7 failures in a row (a use after 30 s tries again): not today"
            )
        result = await connection.call(ToolCall(name="work"), CallContext())
        assert result.require_error().kind is ErrorKind.NOT_SENT
        assert server.conversations == before


async def test_a_use_after_the_cool_down_tries_again_and_works() -> None:
    server, clock = Fickle(), FakeClock()
    async with supervised(server, clock) as (connection, changes):
        await give_up(server, connection, clock)
        server.refuses = False
        await clock.advance(POLICY.cooldown)
        assert connection.state is ConnectionState.FAILED, "nothing is tried behind the user's back"
        assert (await connection.call_tool("work")).text == "done"
    assert [change.state.value for change in changes][-4:] == ["failed", "connecting", "ready", "closed"]


async def test_a_trial_after_the_cool_down_that_fails_is_the_only_one_until_the_next_cool_down() -> None:
    server, clock = Fickle(), FakeClock()
    async with supervised(server, clock) as (connection, _):
        await give_up(server, connection, clock)
        await clock.advance(POLICY.cooldown)
        before = server.conversations
        for _ in range(3):
            with pytest.raises(ConnectError, match="given up after 8 failures in a row"):
                await connection.list_tools()
        assert server.conversations == before + 1


async def test_uses_after_the_cool_down_share_one_trial() -> None:
    server, clock = Fickle(), FakeClock()
    async with supervised(server, clock) as (connection, _):
        await give_up(server, connection, clock)
        server.refuses = False
        await clock.advance(POLICY.cooldown)
        before = server.conversations
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(connection.call_tool, "work")
        assert server.conversations == before + 1


async def test_a_connection_that_comes_up_and_falls_again_and_again_is_given_up_too() -> None:
    server, clock = Fickle(), FakeClock()
    async with supervised(server, clock) as (connection, _):
        await connection.list_tools()
        for _ in range(POLICY.losses):
            await clock.advance(POLICY.stable)  # each time long enough to be forgiven by the count of failures
            await lose(server, connection, clock)
            await clock.advance(POLICY.first)
            await eventually(lambda: connection.state is ConnectionState.READY)
        server.hang_up()
        await eventually(lambda: connection.state is ConnectionState.FAILED)
        with pytest.raises(ConnectionLostError, match="given up after 21 losses within 300 s"):
            await connection.call_tool("work")


async def test_without_restart_what_ended_stays_ended() -> None:
    server, clock = Fickle(), FakeClock()
    async with supervised(server, clock, restart="never") as (connection, _):
        await connection.list_tools()
        server.hang_up()
        await eventually(lambda: connection.state is ConnectionState.FAILED)
        await clock.advance(10 * POLICY.cooldown)
        with pytest.raises(ConnectionLostError, match=r"^server 'fickle': the connection ended$"):
            await connection.call_tool("work")
        assert server.conversations == 1


async def test_a_server_that_never_came_up_is_tried_again_by_a_use_after_the_cool_down() -> None:
    server, clock = Fickle(), FakeClock()
    server.refuses = True
    async with supervised(server, clock) as (connection, _):
        for _ in range(2):
            with pytest.raises(ConnectError, match="not today"):
                await connection.list_tools()
        server.refuses = False
        await clock.advance(POLICY.cooldown)
        assert [tool.name for tool in await connection.list_tools()] == ["work"]


async def test_a_server_that_is_always_tried_again_comes_up_however_late() -> None:
    server, clock = Fickle(), FakeClock()
    server.refuses = True
    async with supervised(server, clock, restart="always") as (connection, changes):
        connection.start()
        await fail(clock, times=20)
        waits = [change.retry_in for change in changes if change.retry_in is not None]
        assert waits[0] <= POLICY.first_unreached
        assert POLICY.cap < waits[-1] <= POLICY.slowest
        assert connection.restarts == 0

        server.refuses = False
        await clock.advance(POLICY.slowest)
        await eventually(lambda: connection.state is ConnectionState.READY)
        assert (await connection.call_tool("work")).text == "done"


async def test_a_use_of_a_server_that_is_away_fails_at_once_or_ends_the_backoff_after_the_cool_down() -> None:
    server, clock = Fickle(), FakeClock()
    server.refuses = True
    async with supervised(server, clock, restart="always") as (connection, changes):
        connection.start()
        await fail(clock, times=12)
        attempts = len(changes)
        with pytest.raises(ConnectError, match="not today"):
            await connection.list_tools()
        assert len(changes) == attempts

        server.refuses = False
        await clock.advance(POLICY.cooldown)
        assert [tool.name for tool in await connection.list_tools()] == ["work"]


async def test_a_server_that_was_ready_and_is_always_tried_again_is_not_given_up() -> None:
    server, clock = Fickle(), FakeClock()
    async with supervised(server, clock, restart="always") as (connection, _):
        await connection.list_tools()
        server.refuses = True
        server.hang_up()
        await fail(clock, times=POLICY.attempts + 2)
        assert connection.away
        result = await connection.call(ToolCall(name="work", arguments={}), CallContext())
        assert result.is_error
        assert "not today" in result.text

        server.refuses = False
        await clock.advance(POLICY.slowest)
        await eventually(lambda: connection.state is ConnectionState.READY)
        assert (await connection.call_tool("work")).text == "done"


async def test_a_call_that_comes_during_a_backoff_waits_for_the_restart() -> None:
    server, clock = Fickle(), FakeClock()
    texts: list[str] = []
    async with supervised(server, clock) as (connection, _):
        await connection.list_tools()
        await lose(server, connection, clock)

        async def call() -> None:
            texts.append((await connection.call_tool("work")).text)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            assert texts == []
            await clock.advance(POLICY.first)
    assert texts == ["done"] * 3


async def test_closing_during_a_backoff_does_not_wait_for_its_end() -> None:
    server, clock = Fickle(), FakeClock()
    async with supervised(server, clock, timeout=Timeouts(close=20)) as (connection, changes):
        await connection.list_tools()
        await lose(server, connection, clock)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.close)
            await eventually(lambda: connection.state is ConnectionState.CLOSED)
        assert clock.sleepers == ()
    assert [change.state.value for change in changes][-2:] == ["backoff", "closed"]


async def test_a_closed_connection_is_not_begun_again() -> None:
    server, clock = Fickle(), FakeClock()
    async with supervised(server, clock) as (connection, _):
        await connection.list_tools()
        await connection.close()
        connection.start()
        await anyio.wait_all_tasks_blocked()
        assert (connection.state, server.conversations) == (ConnectionState.CLOSED, 1)


# credentials


class Gate:
    """A script over HTTP behind a bearer token: what does not bring `token` is answered 401 with a challenge."""

    def __init__(self) -> None:
        self.token = "first"
        self.sent = "first"
        self.forbidden: set[str] = set()
        self.held = anyio.Event()
        self.release = anyio.Event()
        self.script = HttpScript(initialized(self._answer), self._special)

    def config(self, url: str, **more: Any) -> Json:
        """Return the config of a client whose token is read anew for each request."""
        return {"url": url, "headers": lambda: {"Authorization": f"Bearer {self.sent}"}, **more}

    async def _special(self, exchange: Exchange, message: Json) -> bool:
        if message.get("method") in self.forbidden:
            await exchange.respond(403)
            return True
        if exchange.headers.get("authorization") != f"Bearer {self.token}":
            await exchange.respond(401, www_authenticate='Bearer realm="gate"')
            return True
        if message.get("method") == "tools/call" and message["params"]["name"] == "slow":
            self.held.set()
            with anyio.move_on_after(10):  # a test that fails must not wait for itself
                await self.release.wait()
        return False

    def _answer(self, message: Json) -> Json | None:
        if message["method"] == "tools/call":
            return {"result": {"content": [{"type": "text", "text": message["params"]["name"]}]}}
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("quick", "slow")]
        return {"result": {"tools": tools}}


@pytest.mark.requirement("R27")
async def test_a_server_that_refuses_the_first_listing_wants_credentials_and_is_asked_again_by_a_later_use() -> None:
    gate, clock = Gate(), FakeClock()
    gate.sent = "wrong"
    async with (
        listening(gate.script.handle) as (url, _),
        supervised(gate.config(url), clock) as (connection, changes),
    ):
        with pytest.raises(AuthRequiredError) as refused:
            await connection.list_tools()
        assert (refused.value.status, refused.value.challenge) == (401, 'Bearer realm="gate"')
        assert connection.state is ConnectionState.AUTH_REQUIRED
        gate.sent = "first"
        asked = len(gate.script.exchanges)
        with pytest.raises(AuthRequiredError):
            await connection.call_tool("quick")
        assert len(gate.script.exchanges) == asked, "asked once in a second, however many want to know"

        await clock.advance(POLICY.auth_cooldown)
        assert (await connection.call_tool("quick")).text == "quick"
        assert connection.restarts == 0
    states = [change.state.value for change in changes]
    assert states == ["connecting", "auth_required", "connecting", "ready", "closed"]


async def test_a_listing_that_alone_is_refused_makes_no_half_working_connection() -> None:
    gate, clock = Gate(), FakeClock()
    gate.forbidden = {"tools/list"}
    async with listening(gate.script.handle) as (url, _), supervised(gate.config(url), clock) as (connection, _):
        with pytest.raises(AuthRequiredError, match="HTTP 403"):
            await connection.list_tools()
        assert connection.state is ConnectionState.AUTH_REQUIRED
        assert isinstance(connection.error, AuthRequiredError)


async def test_a_token_that_expires_costs_no_call_under_way_and_no_session() -> None:
    gate, clock = Gate(), FakeClock()
    texts: list[str] = []
    async with (
        listening(gate.script.handle) as (url, _),
        supervised(gate.config(url, protocol="legacy"), clock) as (connection, changes),
    ):
        await connection.list_tools()

        async def slow() -> None:
            texts.append((await connection.call_tool("slow")).text)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow)
            await gate.held.wait()
            gate.token = "second"
            result = await connection.call(ToolCall(name="quick"), CallContext())
            assert result.require_error().kind is ErrorKind.AUTH_REQUIRED
            assert connection.state is ConnectionState.READY, "it may be that one tool that wants others"
            result = await connection.call(ToolCall(name="quick"), CallContext())
            assert result.require_error().kind is ErrorKind.AUTH_REQUIRED
            await eventually(lambda: connection.state is ConnectionState.AUTH_REQUIRED)
            gate.release.set()
        assert texts == ["slow"]

        await clock.advance(POLICY.auth_cooldown)
        with pytest.raises(AuthRequiredError):  # asked again, and refused again
            await connection.call_tool("quick")
        await clock.advance(POLICY.auth_cooldown)
        gate.sent = "second"
        assert (await connection.call_tool("quick")).text == "quick"
        assert gate.script.methods().count("initialize") == 1
    states = [change.state.value for change in changes]
    again = ["connecting", "auth_required"]
    assert states == ["connecting", "ready", "auth_required", *again, "connecting", "ready", "closed"]


async def test_a_request_that_is_forbidden_says_nothing_about_the_connection() -> None:
    gate, clock = Gate(), FakeClock()
    async with listening(gate.script.handle) as (url, _), supervised(gate.config(url), clock) as (connection, _):
        await connection.list_tools()
        gate.forbidden = {"tools/call"}
        with pytest.raises(AuthRequiredError, match="HTTP 403"):
            await connection.call_tool("quick")
        gate.forbidden = set()
        assert connection.state is ConnectionState.READY
        assert (await connection.call_tool("quick")).text == "quick"


async def test_one_tool_that_wants_other_credentials_costs_the_others_nothing() -> None:
    gate, clock = Gate(), FakeClock()

    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call" and message["params"]["name"] == "private":
            await exchange.respond(401, www_authenticate='Bearer error="insufficient_scope"')
            return True
        return False

    script = HttpScript(initialized(gate._answer), special)
    async with listening(script.handle) as (url, _), supervised(gate.config(url), clock) as (connection, changes):
        for _ in range(3):
            with pytest.raises(AuthRequiredError, match="HTTP 401"):
                await connection.call_tool("private")
            assert (await connection.call_tool("quick")).text == "quick"
        assert connection.state is ConnectionState.READY
    assert [change.state.value for change in changes] == ["connecting", "ready", "closed"]


async def test_a_connection_that_waits_for_credentials_closes_at_once() -> None:
    gate, clock = Gate(), FakeClock()
    async with (
        listening(gate.script.handle) as (url, _),
        supervised(gate.config(url, protocol="legacy"), clock) as (connection, changes),
    ):
        await connection.list_tools()
        gate.token = "second"
        for _ in range(2):
            with pytest.raises(AuthRequiredError):
                await connection.call_tool("quick")
        await eventually(lambda: connection.state is ConnectionState.AUTH_REQUIRED)
        gate.token = "first"
        await connection.close()
        assert gate.script.methods()[-1] == "DELETE", "the session is still ended politely"
    assert changes[-1].state is ConnectionState.CLOSED


async def test_an_error_of_the_server_is_no_question_of_credentials() -> None:
    server, clock = Fickle(), FakeClock()
    server.on_call = lambda: error(-32001, "Unauthorized")
    async with supervised(server, clock) as (connection, _):
        with pytest.raises(ProtocolError):
            await connection.call_tool("work")
        assert connection.state is ConnectionState.READY
