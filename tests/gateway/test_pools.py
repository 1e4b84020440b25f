"""What a gateway keeps for its callers is bounded: their connections, calls that wait for them, notifications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.connect.targets import eventually
from tests.gateway.relayed import MODERN, Json
from tests.gateway.upstreams import strange
from tests.serve.talking import talking
from toolweave import Callbacks, ToolError, connect_mcp
from toolweave.config import server_config
from toolweave.errors import RequestError
from toolweave.gateway import create_gateway
from toolweave.gateway._relay.caller_stream import CallerStream
from toolweave.gateway._relay.connections import AskingConnections
from toolweave.gateway._relay.parked_calls import ParkedCalls
from toolweave.gateway._relay.parking import LiveCall, ParkedRound, Parking, ParkingFull
from toolweave.gateway._tasks.kept_tasks import NO_REPLY_CHANNEL
from toolweave.serve import Client, Request
from toolweave.testing import MemoryServer

TEST_SECONDS = 60

LEGACY = "2025-11-25"
ABLE: Json = {"elicitation": {}}


def server() -> MemoryServer:
    made = MemoryServer(protocol="legacy")

    @made.tool
    def f() -> str:
        return "done"

    return made


async def used(pool: AskingConnections, config: Any, caller: str | None) -> object:
    """Use a connection for a call that is answered, and return it."""
    async with pool.lease(config, LEGACY, ABLE, caller) as asking:
        await anyio.lowlevel.checkpoint()
    return asking


async def test_calls_that_follow_one_another_get_the_same_connection() -> None:
    pool, config = AskingConnections(), server_config({"server": server()}, name="up")
    assert await used(pool, config, "ada") is await used(pool, config, "ada")
    assert await used(pool, config, "bob") is not await used(pool, config, "ada")
    await pool.close()

    assert len(pool) == 0


async def test_a_connection_of_nobody_is_used_again_only_when_its_call_was_answered() -> None:
    pool, config = AskingConnections(), server_config({"server": server()}, name="up")
    first = await used(pool, config, None)
    assert await used(pool, config, None) is first
    with anyio.CancelScope() as given_up:
        async with pool.lease(config, LEGACY, ABLE, None) as broken:
            assert broken is first
            given_up.cancel()
            await anyio.lowlevel.checkpoint()
    assert await used(pool, config, None) is not first
    await pool.close()


async def test_an_idle_connection_makes_room_and_one_in_use_is_waited_for() -> None:
    config = server_config({"server": server(), "timeout": {"call": 0.2}}, name="up")
    pool = AskingConnections(max_connections=1)
    await used(pool, config, "ada")
    async with pool.lease(config, LEGACY, ABLE, "bob"):
        assert len(pool) == 1
        with pytest.raises(ToolError, match="not sent") as refused:
            await used(pool, config, "ada")
        assert refused.value.retryable
    await pool.close()


async def test_a_caller_has_no_more_connections_at_once_than_it_may() -> None:
    config = server_config({"server": server(), "timeout": {"call": 0.2}}, name="up")
    pool = AskingConnections(max_per_caller=1)
    async with pool.lease(config, LEGACY, ABLE, "ada") as hers:
        with pytest.raises(ToolError, match="not sent"):
            await used(pool, config, "ada")
        await used(pool, config, "bob")
    assert await used(pool, config, "ada") is hers
    await pool.close()


@pytest.mark.slow
async def test_callers_whose_principal_is_not_known_share_a_bound_of_processes() -> None:
    pool = AskingConnections(max_unnamed=1)
    async with strange("legacy", "stdio") as entry:
        config = server_config({**entry, "timeout": {"call": 0.2}}, name="up")
        await used(pool, config, None)
        async with pool.lease(config, LEGACY, ABLE, "|made up"):
            assert len(pool) == 1  # the idle one made room
            for caller in (None, "|made up", "|another"):
                with pytest.raises(ToolError, match="not sent"):
                    await used(pool, config, caller)
            async with pool.lease(config, LEGACY, ABLE, "ada|", principal="ada"):
                assert len(pool) == 2
        await pool.close()


@pytest.mark.slow
async def test_a_connection_without_calls_is_closed_after_a_while() -> None:
    upstream = server()
    gateway = create_gateway({"up": {"server": upstream, "tool_prefix": ""}}, idle_seconds=0.2)
    async with connect_mcp(gateway, callbacks=Callbacks(elicitation=lambda request: {})) as caller:
        for _ in range(2):
            await caller.call_tool("f")
        assert upstream.conversations == 2  # that of the hub, and the caller's
        await eventually(lambda: "1 clients" in repr(upstream), 30)
        await caller.call_tool("f")

    assert upstream.conversations == 3


async def test_no_more_calls_wait_than_may_in_all_and_for_one_caller() -> None:
    parking = Parking(max_parked=3, max_per_caller=1, kept_seconds=0)
    async with anyio.create_task_group() as tasks:
        handles = [parking.park(LiveCall(), caller, tasks) for caller in ("ada", None, None)]
        with pytest.raises(ParkingFull, match="3 calls wait"):
            parking.park(LiveCall(), "bob", tasks)
        assert isinstance(parking.take(handles[1]), LiveCall)
        with pytest.raises(ParkingFull, match="of this caller"):
            parking.park(LiveCall(), "ada", tasks)
        with pytest.raises(RequestError, match="not waiting any more") as refused:
            parking.take(handles[1])
        assert refused.value.code == -32602
        tasks.cancel_scope.cancel()

    assert len(parking) == 0


async def test_a_round_is_answered_by_one_request_at_a_time() -> None:
    parking = Parking()
    async with anyio.create_task_group() as tasks:
        handle = parking.park(LiveCall(), "ada", tasks)
        parking.take(handle)
        with pytest.raises(RequestError, match="another request"):
            parking.take(handle)
        parking.keep(handle, ParkedRound(result={"content": []}))
        assert parking.take(handle) == ParkedRound(result={"content": []})


@pytest.mark.parametrize(
    ("method", "code"), [("elicitation/create", None), ("sampling/createMessage", -1), ("roots/list", -32603)]
)
async def test_a_question_whose_caller_does_not_come_back_is_answered_as_its_method_has_it(
    method: str, code: int | None
) -> None:
    live, parking = LiveCall(), Parking(seconds=0.05)

    async def work(call: LiveCall) -> Json:
        return await call.ask(method, {})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.run, work)
        await live.settled()
        parking.park(live, "ada", tasks)
        await live.ended()

    if code is None:
        assert live.outcome() == {"action": "cancel"}
    else:
        with pytest.raises(RequestError) as refused:
            live.outcome()
        assert refused.value.code == code


@pytest.mark.slow
async def test_a_call_that_does_not_end_when_its_caller_is_gone_is_cancelled_and_leaves_room() -> None:
    live, parking = LiveCall(), Parking(max_parked=1, seconds=0.05)
    cancelled = anyio.Event()

    async def work(call: LiveCall) -> Json:
        try:
            await call.ask("elicitation/create", {})
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return {}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.run, work)
        await live.settled()
        parking.park(live, "ada", tasks)
        await cancelled.wait()
        for _ in range(16):
            parking.take(parking.park(LiveCall(), "ada", tasks))


async def test_a_call_for_which_there_is_no_room_to_wait_is_cancelled() -> None:
    parts = create_gateway({})._parts
    groups = parts.groups
    parked = ParkedCalls(Parking(max_parked=0), groups)
    cancelled = anyio.Event()
    request = Request("tools/call", {"name": "f"}, Client(version=MODERN, capabilities={}), NO_REPLY_CHANNEL, 1)

    async def work(call: LiveCall) -> Json:
        try:
            return await call.ask("elicitation/create", {})
        finally:
            cancelled.set()

    async with anyio.create_task_group() as tasks:
        with groups.within(tasks):
            with pytest.raises(ParkingFull, match="0 calls wait"):
                await parked.begin(work, CallerStream(request, parts.logs), "ada")
            await cancelled.wait()


async def test_a_call_that_fails_in_an_unexpected_way_is_an_internal_error() -> None:
    async def work(call: LiveCall) -> Json:
        raise ZeroDivisionError

    live = LiveCall()
    await live.run(work)

    with pytest.raises(RequestError, match="Internal error"):
        live.outcome()


async def test_a_caller_that_does_not_read_gets_the_newest_progress() -> None:
    upstream = MemoryServer()

    @upstream.tool
    async def count() -> str:
        for number in range(1000):
            upstream.notify("notifications/progress", {"progressToken": token(), "progress": number})
        return "done"

    def token() -> Any:
        (call,) = [one for one in upstream.requests if one.method == "tools/call"]
        return call.params["_meta"]["progressToken"]

    gateway = create_gateway({"up": {"server": upstream, "tool_prefix": ""}})
    async with talking(gateway, MODERN) as talk:
        await talk.ask("tools/call", {"name": "count"}, progressToken=7)
        told = talk.of("notifications/progress")

    assert [one["progress"] for one in told] == sorted(one["progress"] for one in told)
    assert told[-1] == {"progressToken": 7, "progress": 999}


async def test_notifications_that_a_caller_does_not_read_are_bounded_and_the_newest_progress_stays() -> None:
    sent: list[Any] = []

    class Reader:
        """The reply channel of a caller that reads what it is sent."""

        async def notify(self, method: str, params: Mapping[str, Any]) -> None:
            sent.append(params["progress"])

        async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
            raise NotImplementedError

        async def release(self) -> None:
            raise NotImplementedError

    client = Client(version=MODERN, capabilities={})
    request = Request("tools/call", {"name": "f", "_meta": {"progressToken": 7}}, client, Reader(), 1)
    stream = CallerStream(request, create_gateway({})._parts.logs)
    async with stream.delivered():
        for number in range(1000):  # without a turn of the event loop, in which they would be sent
            stream.progress({"progress": number})

    assert sent == [*range(255), 999]
