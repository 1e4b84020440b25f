"""Limits on how often callers use offers, and on the size of arguments and results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clocks import Clock
from tests.middleware.company import caller, company, joined, token_of
from tests.serve.carriers import EACH_ERA
from tests.serve.lines import Peer
from toolweave import ProtocolError
from toolweave.errors import RequestError
from toolweave.middleware import CallBudget, MemoryLimits, OfferSelection, RateLimit, SizeLimits
from toolweave.serve import McpServer

ADA, BOB = token_of("ada"), token_of("bob")


async def refused(server: McpServer, peer: Peer, name: str = "find") -> RequestError:
    with pytest.raises(RequestError) as caught:
        await peer.call(server, name)
    return caught.value


async def test_a_burst_is_allowed_and_then_the_rate() -> None:
    clock = Clock()
    server = company(RateLimit(calls=2, seconds=10, burst=3, store=MemoryLimits(clock=clock)))
    for _ in range(3):
        await caller(ADA).call(server, "find")

    error = await refused(server, caller(ADA))
    clock.now += 5
    await caller(ADA).call(server, "find")
    again = await refused(server, caller(ADA))
    clock.now += 1000
    for _ in range(3):
        await caller(ADA).call(server, "find")
    await refused(server, caller(ADA))

    assert (error.code, error.data) == (-32603, {"retryable": True, "retryAfterMs": 5000})
    assert "2 calls in 10 s" in error.message
    assert again.data["retryAfterMs"] == 5000


async def test_a_rate_below_one_call_still_lets_one_through_at_once() -> None:
    clock = Clock()
    server = company(RateLimit(calls=0.5, seconds=1, store=MemoryLimits(clock=clock)))
    await caller(ADA).call(server, "find")

    error = await refused(server, caller(ADA))
    clock.now += 2
    await caller(ADA).call(server, "find")

    assert error.data["retryAfterMs"] == 2000


async def test_a_budget_holds_until_the_last_instant_of_its_period() -> None:
    clock = Clock()
    server = company(CallBudget(calls=1, per="minute", store=MemoryLimits(clock=clock)))
    clock.now += 59.5 - clock.now % 60
    await caller(ADA).call(server, "find")

    error = await refused(server, caller(ADA))
    clock.now += 0.5
    await caller(ADA).call(server, "find")

    assert error.data["retryAfterMs"] == 500


class AlmostThere:
    """Limits that are always refused, for a fraction of a millisecond."""

    async def take(self, key: str, *, rate: float, burst: float) -> float:
        return 0.0004

    async def spend(self, key: str, *, limit: int, period: float) -> float:
        return 0.0004


@pytest.mark.parametrize("kind", [RateLimit, CallBudget])
async def test_a_client_that_waits_as_long_as_it_is_asked_to_never_comes_too_early(kind: type[Any]) -> None:
    server = company(kind(calls=1, store=AlmostThere()))

    error = await refused(server, caller(ADA))

    assert error.data == {"retryable": True, "retryAfterMs": 1}
    assert str(error).endswith("try again in 0.001 s")


async def test_a_rate_and_a_budget_in_one_store_are_counted_apart() -> None:
    store = MemoryLimits(clock=Clock())
    rate = company(RateLimit(calls=1, seconds=100, store=store))
    budget = company(CallBudget(calls=1, store=store))

    await caller(ADA).call(rate, "find")
    await caller(ADA).call(budget, "find")
    await refused(rate, caller(ADA))
    await refused(budget, caller(ADA))


async def test_the_uris_of_a_template_share_one_count() -> None:
    server = company(RateLimit(calls=1, seconds=100, by=["tool"], store=MemoryLimits(clock=Clock())))
    peer = caller(ADA)

    await server.endpoint.answer(peer.request("resources/read", uri="notes://open/a"))
    with pytest.raises(RequestError, match="too many calls"):
        await server.endpoint.answer(peer.request("resources/read", uri="notes://open/b"))


async def test_each_caller_has_a_count_of_its_own() -> None:
    server = company(RateLimit(calls=1, seconds=60))
    await caller(ADA).call(server, "find")
    await caller(BOB).call(server, "find")
    await caller(conversation="one").call(server, "find")
    await caller(conversation="two").call(server, "find")

    for peer in (caller(ADA), caller(BOB), caller(conversation="one")):
        await refused(server, peer)


async def test_a_count_may_be_by_tool_or_for_all() -> None:
    by_tool = company(RateLimit(calls=1, seconds=60, by=("principal", "tool")))
    await caller(ADA).call(by_tool, "find")
    await caller(ADA).call(by_tool, "change")
    await refused(by_tool, caller(ADA), "change")

    for_all = company(RateLimit(calls=1, seconds=60, by=()))
    await caller(ADA).call(for_all, "find")
    await refused(for_all, caller(BOB), "change")


async def test_an_alias_is_counted_as_its_tool() -> None:
    server = company(RateLimit(calls=1, seconds=60, by=["tool"]))
    await caller(ADA).call(server, "wipe")

    await refused(server, caller(ADA), "erase")


async def test_only_what_is_selected_is_counted_and_lists_never() -> None:
    server = company(RateLimit(calls=1, seconds=60, only=[OfferSelection(annotations={"readOnlyHint": True})]))
    for _ in range(3):
        await caller(ADA).call(server, "wipe")
        await server.endpoint.answer(caller(ADA).request("tools/list"))
        await server.endpoint.answer(caller(ADA).request("prompts/get", name="greet"))
    await caller(ADA).call(server, "find")

    await refused(server, caller(ADA))


@EACH_ERA
async def test_a_budget_ends_with_its_period_over_http(era: str) -> None:
    clock = Clock()
    clock.now = 86_400.0 * 10 + 100
    server = company(CallBudget(calls=2, per="day", store=MemoryLimits(clock=clock)))
    async with joined(server, ADA, era) as connection:
        for _ in range(2):
            assert (await connection.call_tool("find", {})).text == "found "
        with pytest.raises(ProtocolError, match="2 calls a day") as caught:
            await connection.call_tool("find", {})
        clock.now += 86_400 - 100
        assert (await connection.call_tool("find", {})).text == "found "

    assert caught.value.code == -32603
    assert caught.value.data == {"retryable": True, "retryAfterMs": (86_400 - 100) * 1000}


async def test_budgets_of_two_periods_in_one_store_are_counted_apart() -> None:
    store = MemoryLimits(clock=Clock())
    by_minute = company(CallBudget(calls=1, per="minute", store=store))
    by_day = company(CallBudget(calls=1, per="day", store=store))
    await caller(ADA).call(by_minute, "find")
    await caller(ADA).call(by_day, "find")

    await refused(by_minute, caller(ADA))
    await refused(by_day, caller(ADA))


async def test_a_budget_of_nothing_refuses_everything() -> None:
    await refused(company(CallBudget(calls=0, per="minute")), caller(ADA))


async def test_counts_are_forgotten_beyond_a_bound() -> None:
    store = MemoryLimits(clock=Clock(), max_keys=2)
    for key in ("a", "b", "c"):
        assert await store.take(key, rate=1, burst=1) == 0
        assert await store.spend(key, limit=1, period=60) == 0

    assert await store.take("c", rate=1, burst=1) > 0
    assert await store.spend("c", limit=1, period=60) > 0
    assert await store.take("a", rate=1, burst=1) == 0
    assert await store.spend("a", limit=1, period=60) == 0


async def test_a_clock_that_goes_back_gives_no_tokens() -> None:
    clock = Clock()
    store = MemoryLimits(clock=clock)
    assert await store.take("a", rate=1, burst=1) == 0
    clock.now -= 1000

    assert await store.take("a", rate=1, burst=1) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: RateLimit(calls=0),
        lambda: RateLimit(calls=1, seconds=0),
        lambda: RateLimit(calls=1, burst=0),
        lambda: RateLimit(calls=1, by=("user",)),  # type: ignore[arg-type]
        lambda: CallBudget(calls=-1),
        lambda: CallBudget(calls=1, per="week"),  # type: ignore[arg-type]
        lambda: SizeLimits(arguments=0),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"at least|by is|per is"):
        make()


@EACH_ERA
async def test_arguments_and_results_beyond_a_size_are_errors_that_a_model_reads(era: str) -> None:
    server = company(SizeLimits(arguments=100, results=400))
    async with joined(server, ADA, era) as connection:
        small = await connection.call_tool("find", {"text": "x"})
        large = await connection.call_tool("find", {"text": "x" * 100})

    assert small.text == "found x"
    assert large.is_error
    assert "and 100 are allowed" in large.text


async def test_a_large_result_does_not_reach_the_caller() -> None:
    server = company(SizeLimits(results=400))

    result = await caller().call(server, "find", {"text": "x" * 1000})
    with pytest.raises(RequestError, match="the result is") as caught:
        await server.endpoint.answer(caller().request("resources/read", uri=f"notes://open/{'x' * 500}"))

    assert result["isError"]
    assert "xxx" not in str(result)
    assert caught.value.code == -32603


async def test_sizes_count_bytes_and_only_what_is_selected() -> None:
    limits = SizeLimits(arguments=25, only=[OfferSelection(names=["find"])])
    server = company(limits)

    assert "isError" not in await caller().call(server, "find", {"text": "eeeeeeee"})
    assert (await caller().call(server, "find", {"text": "éééééééé"}))["isError"]
    assert "isError" not in await caller().call(server, "change", {"text": "x" * 100})
    with pytest.raises(RequestError):  # an unknown tool is the server's to refuse
        await caller().call(server, "nothing", {"text": "x" * 100})
