"""Progress of a call on its way to the client: only where it was asked for, rising, not too often, never late."""

from __future__ import annotations

import math
from asyncio import CancelledError
from functools import partial
from typing import Any

import anyio
import pytest

from tests.clocks import Clock
from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from tests.serve.lines import Peer
from toolweave import Progress, ToolError
from toolweave.errors import RequestError
from toolweave.serve import McpServer, create_mcp_server
from toolweave.serve._progress import BURST, ProgressStream
from toolweave.serve._task_spawner import ServingGroups
from toolweave.tools import CallContext, ProgressReporter

METHOD = "notifications/progress"


def serve(*tools: Any) -> McpServer:
    return create_mcp_server(name="works", version="1", tools=list(tools))


def amounts(peer: Peer) -> list[float]:
    return [params["progress"] for method, params in peer.notifications if method == METHOD]


async def work(ctx: CallContext) -> str:
    await ctx.progress(0.25, total=1, message="a quarter")
    await ctx.progress(1, total=1)
    return "done"


@EACH_CARRIER
@pytest.mark.requirement("C13")
async def test_a_client_that_asks_for_progress_gets_it_before_the_answer(carrier: str, era: str) -> None:
    seen: list[Progress] = []

    async with connected(serve(work), carrier, era) as connection:
        result = await connection.call_tool("work", {}, on_progress=seen.append)

    assert result.text == "done"
    assert seen == [Progress(progress=0.25, total=1, message="a quarter"), Progress(progress=1, total=1)]


@EACH_ERA
@pytest.mark.requirement("C13")
async def test_progress_carries_the_callers_token_and_only_what_was_said(era: str) -> None:
    peer = Peer(version=era)

    await peer.call(serve(work), "work", _meta={"progressToken": "t-1"})

    assert peer.notifications == [
        (METHOD, {"progressToken": "t-1", "progress": 0.25, "total": 1, "message": "a quarter"}),
        (METHOD, {"progressToken": "t-1", "progress": 1, "total": 1}),
    ]


@EACH_ERA
@pytest.mark.parametrize("meta", [{}, {"progressToken": None}, {"progressToken": True}, {"progressToken": ["x"]}])
async def test_nobody_is_told_of_progress_who_did_not_ask(era: str, meta: dict[str, Any]) -> None:
    peer = Peer(version=era)

    await peer.call(serve(work), "work", _meta=meta)

    assert peer.notifications == []


@pytest.mark.requirement("C13")
async def test_progress_only_rises() -> None:
    async def wavering(ctx: CallContext) -> None:
        for amount in (1, 1, 0.5, 2, math.nan, math.inf, -1, 3):
            await ctx.progress(amount)

    peer = Peer()

    await peer.call(serve(wavering), "wavering", _meta={"progressToken": 0})

    assert amounts(peer) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.requirement("C13")
async def test_a_flood_of_progress_is_thinned_and_its_last_report_goes_out_before_the_answer() -> None:
    async def flood(ctx: CallContext) -> str:
        for amount in range(10_000):
            await ctx.progress(amount)
        return "done"

    peer = Peer()
    server = serve(flood)

    async with server.running():
        result = await peer.call(server, "flood", _meta={"progressToken": 0})

    sent = amounts(peer)
    assert result["content"][0]["text"] == "done"
    assert sent[:BURST] == list(range(BURST))
    assert sent[-1] == 9_999
    assert len(sent) < 5_000
    assert sent == sorted(set(sent))


@pytest.mark.requirement("C13")
async def test_after_the_answer_there_is_no_progress() -> None:
    contexts: list[CallContext] = []

    async def leaky(ctx: CallContext) -> None:
        contexts.append(ctx)
        await ctx.progress(1)

    peer = Peer()
    await peer.call(serve(leaky), "leaky", _meta={"progressToken": 0})

    await contexts[0].progress(2)

    assert amounts(peer) == [1]


async def test_what_is_held_back_goes_out_when_a_call_fails_too() -> None:
    async def failing(ctx: CallContext) -> None:
        for amount in range(BURST + 10):
            await ctx.progress(amount)
        raise ToolError("no")

    peer = Peer()
    server = serve(failing)

    async with server.running():
        result = await peer.call(server, "failing", _meta={"progressToken": 0})

    assert result["isError"] is True
    assert amounts(peer)[-1] == BURST + 9


async def test_a_call_with_progress_may_ask_as_any_other() -> None:
    async def asking(ctx: CallContext) -> str:
        await ctx.progress(1)
        return (await ctx.elicit("Sure?", key="sure")).action

    server = serve(asking)
    peer = Peer()

    asked = await peer.call(server, "asking", _meta={"progressToken": 1})
    answers = {"sure": {"action": "cancel"}}
    result = await peer.call(server, "asking", _meta={"progressToken": 2}, inputResponses=answers)

    assert asked["resultType"] == "input_required"
    assert result["content"][0]["text"] == "cancel"
    assert [params["progressToken"] for _, params in peer.notifications] == [1, 2]


async def test_an_error_of_the_protocol_is_not_wrapped_by_progress() -> None:
    async def asking(ctx: CallContext) -> None:
        await ctx.elicit("Sure?")

    with pytest.raises(Exception, match="did not declare") as caught:
        await Peer(capabilities={}).call(serve(asking), "asking", _meta={"progressToken": 1})

    assert getattr(caught.value, "code", None) == -32021


async def test_progress_is_earned_with_time() -> None:
    clock = Clock()
    peer = Peer()
    burst: list[float] = []
    groups = ServingGroups("delayed progress is sent")
    stream = ProgressStream(peer, 1, groups, interval=1, clock=clock)
    async with anyio.create_task_group() as tasks:
        with groups.within(tasks):
            for amount in range(BURST + 5):
                await stream.report(Progress(progress=amount))
            burst = amounts(peer)
            clock.now += 2
            for amount in range(100, 105):
                await stream.report(Progress(progress=amount))
            await stream.end(CancelledError())

    assert burst == list(range(BURST))
    assert amounts(peer)[len(burst) :] == [100, 101]


async def test_a_delayed_report_that_cannot_be_sent_fails_its_call_and_no_other() -> None:
    class Gone(Peer):
        async def notify(self, method: str, params: Any) -> None:
            if params["progress"] >= BURST:
                raise ValueError("the client is gone")
            await super().notify(method, params)

    async def flood(ctx: CallContext) -> str:
        for amount in range(BURST + 1):
            await ctx.progress(amount)
        return "done"

    server = serve(flood, work)
    async with server.running():
        with pytest.raises(RequestError, match="Internal error"):
            await Gone().call(server, "flood", _meta={"progressToken": 0})
        result = await Peer().call(server, "work", _meta={"progressToken": 0})

    assert result["content"][0]["text"] == "done"


async def test_nothing_follows_a_cancelled_call_with_delayed_progress() -> None:
    full = anyio.Event()

    async def flood(ctx: CallContext) -> None:
        for amount in range(BURST + 1):
            await ctx.progress(amount)
        full.set()
        await anyio.sleep_forever()

    peer = Peer()
    server = serve(flood)
    async with server.running(), anyio.create_task_group() as callers:
        callers.start_soon(partial(peer.call, server, "flood", _meta={"progressToken": 0}))
        await full.wait()
        callers.cancel_scope.cancel()

    assert amounts(peer) == list(range(BURST))


async def test_a_client_that_takes_no_delayed_progress_does_not_hold_a_call_that_is_cancelled() -> None:
    stuck = anyio.Event()

    class Slow(Peer):
        async def notify(self, method: str, params: Any) -> None:
            if params["progress"] >= BURST:
                stuck.set()
                await anyio.sleep_forever()

    async def flood(ctx: CallContext) -> str:
        for amount in range(BURST + 1):
            await ctx.progress(amount)
        return "done"

    server = serve(flood)
    async with server.running(), anyio.create_task_group() as callers:
        callers.start_soon(partial(Slow().call, server, "flood", _meta={"progressToken": 0}))
        await stuck.wait()
        callers.cancel_scope.cancel()


async def test_what_is_held_back_goes_out_in_its_time_though_the_handler_is_silent() -> None:
    reported = anyio.Event()

    class Watching(Peer):
        async def notify(self, method: str, params: Any) -> None:
            await super().notify(method, params)
            if params["progress"] == 999:
                reported.set()

    async def quiet(ctx: CallContext) -> str:
        for amount in range(1000):
            await ctx.progress(amount)
        await reported.wait()
        return "done"

    server = serve(quiet)
    async with server.running():
        result = await Watching().call(server, "quiet", _meta={"progressToken": 0})

    assert result["content"][0]["text"] == "done"


@EACH_ERA
@pytest.mark.requirement("R99", "C13")
async def test_percent_becomes_progress_of_a_hundred(era: str) -> None:
    async def loading(ctx: CallContext) -> None:
        reporter = ProgressReporter(ctx)
        await reporter.report(12.5, "unpacking", data={"file": "a"})
        await ctx.percent(100)

    seen: list[Progress] = []
    async with connected(serve(loading), era=era) as connection:
        await connection.call_tool("loading", {}, on_progress=seen.append)

    assert seen == [Progress(progress=12.5, total=100, message="unpacking"), Progress(progress=100, total=100)]


@pytest.mark.parametrize("percent", [-0.1, 100.1, math.nan])
@pytest.mark.requirement("R99")
async def test_percent_is_from_zero_to_a_hundred(percent: float) -> None:
    with pytest.raises(ValueError, match="0 to 100"):
        await ProgressReporter(CallContext()).report(percent)
