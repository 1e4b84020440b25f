"""Whatever happens to a connection, in whatever order: only legal changes of state, each one told, and an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connect.targets import ChannelServer, Json, error, initialized
from toolweave import AuthRequiredError, McpConnection
from toolweave.config import server_config
from toolweave.connect import Channel, ConnectionState, StateChanged
from toolweave.connect._session import ClientHandlers
from toolweave.connect._state import TRANSITIONS
from toolweave.connect._supervisor import Supervisor
from toolweave.errors import ServerError
from toolweave.testing import FakeClock

ENDS = {ConnectionState.FAILED, ConnectionState.AUTH_REQUIRED, ConnectionState.CLOSED}


class Whimsical(ChannelServer):
    """A server in this process whose `mood` decides what becomes of it; it is changed while it runs."""

    def __init__(self) -> None:
        self.mood = "well"
        super().__init__(self._answer)

    async def __aenter__(self) -> Channel:
        if self.mood == "locked":
            raise AuthRequiredError("HTTP 401", server="whimsical", status=401, challenge="Bearer")
        if self.mood == "absent":
            raise ConnectionRefusedError("nobody is there")
        return await super().__aenter__()

    def _answer(self, message: Json) -> Json | None:
        if self.mood == "silent":
            return None
        if self.mood == "refusing" and message.get("method") == "initialize":
            return error(-32000, "not today")
        return initialized(self._offer)(message)

    def _offer(self, message: Json) -> Json | None:
        if message["method"] == "tools/call":
            return {"result": {"content": []}}
        if self.mood == "listless":
            return error(-32603, "no list")
        return {"result": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}}


class Play:
    """One connection to one `Whimsical`, and what may happen to them."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.server = Whimsical()
        self.clock = FakeClock()
        self.changes: list[StateChanged] = []
        self.tasks = tasks
        self.users: set[anyio.CancelScope] = set()
        bounds = {"connect": 0.2, "probe": 0.05, "list": 0.2, "call": 0.2, "read": 0.2, "close": 0.2}
        config = server_config(self.server, name="whimsical", timeout=bounds)
        self.connection = McpConnection(config, lazy=True, clock=self.clock)
        self.connection.on("state", self.changes.append)

    async def act(self, act: str) -> None:
        """Let one thing happen, and everybody have some turns of the event loop."""
        match act:
            case "use" | "list":
                self.tasks.start_soon(self._use, act)
            case "start":
                self.connection.start()
            case "lose":
                self.server.hang_up()
            case "expire":
                self.connection._supervisor.refuse(AuthRequiredError("HTTP 401", server="whimsical", status=401))
            case "moment" | "minute":
                await self.clock.advance(0.2 if act == "moment" else 60)
            case "leave":
                for user in self.users:
                    user.cancel()
            case "close":
                self.tasks.start_soon(self.connection.close)
            case _:
                self.server.mood = act
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

    async def _use(self, act: str) -> None:
        with anyio.CancelScope() as user, suppress(ServerError):
            self.users.add(user)
            await (self.connection.call_tool("work") if act == "use" else self.connection.refresh())


MOODS = ["well", "refusing", "silent", "listless", "absent", "locked"]
ACTS = ["use", "list", "start", "lose", "expire", "moment", "minute", "leave"]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*ACTS, *ACTS, *MOODS]), max_size=14), st.booleans())
def test_any_fate_is_a_chain_of_legal_changes_that_ends_closed(acts: list[str], closed_in_between: bool) -> None:
    async def play() -> list[StateChanged]:
        stage: Play | None = None
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                stage = Play(tasks)
                for act in [*acts, "close", "use", "start", "lose"] if closed_in_between else acts:
                    await stage.act(act)
                await stage.connection.close()
                assert stage.connection.state is ConnectionState.CLOSED
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return stage.changes if stage is not None else []

    changes = anyio.run(play)
    assert changes[0].previous is ConnectionState.IDLE
    assert changes[-1].state is ConnectionState.CLOSED
    for one, following in pairwise(changes):
        assert following.previous is one.state, "a change was not told, or told out of order"
    for change in changes:
        assert change.state in TRANSITIONS[change.previous]
        assert change.state is not change.previous
        assert (change.retry_in is not None) == (change.state is ConnectionState.BACKOFF)


def test_every_state_leads_to_closed_and_closed_only_to_another_start() -> None:
    assert set(TRANSITIONS) == set(ConnectionState)
    assert TRANSITIONS[ConnectionState.CLOSED] == {ConnectionState.IDLE}
    for state in set(ConnectionState) - {ConnectionState.CLOSED}:
        assert ConnectionState.CLOSED in TRANSITIONS[state]
        assert state not in TRANSITIONS[state]
    assert TRANSITIONS[ConnectionState.BACKOFF].isdisjoint(ENDS - {ConnectionState.CLOSED})


async def nothing(_line: object) -> None:
    """Stand for what a connection does with a line."""


def an_owner(on_state: Callable[[StateChanged], None]) -> Supervisor:
    config = server_config(Whimsical(), name="any")
    peer = ClientHandlers(lambda _method, _params: None)
    return Supervisor(config, peer, prepare=nothing, run_background=nothing, on_state=on_state)


def test_an_illegal_change_is_refused() -> None:
    changes: list[StateChanged] = []
    owner = an_owner(changes.append)
    with pytest.raises(RuntimeError, match="server 'any': no way from idle to degraded"):
        owner.degrade(ValueError("too early"))
    assert (owner.state, changes) == (ConnectionState.IDLE, [])


async def test_a_task_that_was_left_behind_cannot_revive_a_closed_connection() -> None:
    changes: list[StateChanged] = []
    owner = an_owner(changes.append)
    await owner.stop()
    owner.degrade(ValueError("too late"))
    assert owner.state is ConnectionState.CLOSED
    assert [change.state for change in changes] == [ConnectionState.CLOSED]
