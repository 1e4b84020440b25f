"""A bound on what a run costs: it holds, or the run says that it cannot be kept."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import pytest

from tests.agent import wires
from tests.agent.wires import WIRES, Wire, chunk
from tests.models.http_server import Answer, Received, serve
from toolweave import Agent, ConfigError, Limits, ModelError, RunResult, ScriptedModel
from toolweave.models import (
    AssistantMessage,
    FallbackModel,
    Finished,
    Model,
    Price,
    TextPart,
    Usage,
    model_from,
    tool_call,
)

PRICE = Price(input=1.0, output=2.0, cached=0.5)
MANY = 1_000_000


def look() -> str:
    """Look."""
    return "ok"


def chat_call(**usage: Any) -> Answer:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return wires.chat(chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), {"choices": [], "usage": usage})


def called(wire: Wire) -> Answer:
    """Return a turn that calls a tool and took a million tokens."""
    if wire == "chat":
        return chat_call(prompt_tokens=MANY, completion_tokens=0)
    if wire == "anthropic":
        usage = {"input_tokens": MANY, "output_tokens": 0}
        block: dict[str, Any] = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
        return wires.json_answer({"type": "message", "content": [block], "stop_reason": "tool_use", "usage": usage})
    usage = {"input_tokens": MANY, "output_tokens": 0}
    item = wires.call_item("look", "{}")
    return wires.json_answer({"object": "response", "status": "completed", "output": [item], "usage": usage})


async def run(wire: Wire, answer: Answer, *, limits: Limits, model: str = "m", **options: Any) -> tuple[RunResult, int]:
    """Return what came of a run whose model always answers the same, and how often it was asked."""

    async def handle(_: Received) -> Answer:
        return answer

    async with serve(handle) as server, wires.model_at(wire, server.url, model=model, **options) as asked:
        with anyio.fail_after(60):
            return await Agent(asked, tools=[look], limits=limits).send("q"), len(server.requests)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_bound_on_the_cost_holds_with_a_price_of_ones_own(wire: Wire) -> None:
    result, asked = await run(wire, called(wire), limits=Limits(cost=2.5), price=PRICE)

    assert (result.status, result.stop_reason, asked) == ("stopped", "cost_limit", 3)
    assert result.usage.cost == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("wire", "model", "options"),
    [("chat", "gpt-5.1", {"provider": "openai"}), ("anthropic", "claude-sonnet-4-5", {})],
)
async def test_a_bound_on_the_cost_holds_with_the_price_list(wire: Wire, model: str, options: dict[str, Any]) -> None:
    result, asked = await run(wire, called(wire), limits=Limits(cost=0.01), model=model, **options)

    assert (result.status, result.stop_reason, asked) == ("stopped", "cost_limit", 1)
    assert result.usage.cost is not None
    assert result.usage.cost > 0.5


@pytest.mark.parametrize("wire", WIRES)
async def test_a_bound_that_nobody_can_keep_is_refused_at_the_first_turn(wire: Wire) -> None:
    with pytest.raises(ConfigError, match=r"cost=0.01.*price=Price"):
        await run(wire, called(wire), limits=Limits(cost=0.01), model="my-own")


async def test_a_model_that_tells_no_tokens_is_no_free_model() -> None:
    with pytest.raises(ConfigError, match="cost"):
        await run("chat", wires.says("chat", "hello"), limits=Limits(cost=1), price=PRICE)


async def test_without_the_price_list_a_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        return None

    monkeypatch.setattr("toolweave.models._prices.find_spec", missing)

    with pytest.raises(ConfigError, match=r"toolweave\[prices\]"):
        await run("chat", called("chat"), limits=Limits(cost=1), model="gpt-5.1", provider="openai")


async def test_what_the_provider_says_goes_before_any_price() -> None:
    answer = chat_call(prompt_tokens=MANY, completion_tokens=0, cost=0.75)

    result, asked = await run("chat", answer, limits=Limits(cost=1), price=PRICE)

    assert (result.usage.cost, asked) == (1.5, 2)


async def test_without_a_bound_no_price_is_looked_up() -> None:
    loaded = "genai_prices" in sys.modules

    result, _ = await run("chat", called("chat"), limits=Limits(tool_calls=1), model="gpt-5.1", provider="openai")

    assert result.usage.cost is None
    assert ("genai_prices" in sys.modules) == loaded


@pytest.mark.parametrize("name", ["ollama:qwen3", "lmstudio:a", "llamacpp:b", "vllm:c", "command"])
def test_models_of_ones_own_machine_cost_nothing(name: str) -> None:
    price = getattr(model_from(name), "price", None)

    assert isinstance(price, Price)
    assert price.of(Usage(input_tokens=MANY, output_tokens=MANY)) == 0.0


def test_an_unknown_server_has_no_price() -> None:
    assert getattr(model_from("http://localhost:8080/v1#m"), "price", None) is None


async def test_a_chain_counts_at_the_price_of_whoever_answers() -> None:
    def busy(_: object) -> Exception:
        return ModelError("busy", model="a", kind="overloaded")

    answer = Finished(message=AssistantMessage(parts=(TextPart(text="x"),)), usage=Usage(input_tokens=MANY))
    second = ScriptedModel([answer], name="second")
    second.price = Price(input=3.0)
    chain: Model = FallbackModel(ScriptedModel(busy, name="first"), second)

    assert (await Agent(chain, limits=Limits(cost=10)).send("q")).usage.cost == pytest.approx(3.0)


async def test_what_agents_below_cost_counts_for_the_bound_above() -> None:
    answer = Finished(message=AssistantMessage(parts=(TextPart(text="x"),)), usage=Usage(input_tokens=MANY))
    dear = ScriptedModel(lambda _: answer, name="dear")
    dear.price = Price(input=3.0)
    below = Agent(dear, name="helper", description="Helps.")
    above = ScriptedModel(lambda _: tool_call("agent_helper", {"message": "go"}))

    result = await Agent(above, tools=[below.as_tool()], limits=Limits(cost=5)).send("q")

    assert (result.stop_reason, result.usage.cost) == ("cost_limit", pytest.approx(6.0))


async def test_an_agent_below_whose_cost_is_unknown_ends_the_bounded_run_above() -> None:
    answer = Finished(message=AssistantMessage(parts=(TextPart(text="x"),)), usage=Usage(input_tokens=MANY))
    unknown = ScriptedModel(lambda _: answer, name="unknown")
    unknown.price = None
    below = Agent(unknown, name="helper", description="Helps.")
    above = ScriptedModel(lambda _: tool_call("agent_helper", {"message": "go"}))

    with pytest.raises(ConfigError, match="cost"):
        await Agent(above, tools=[below.as_tool()], limits=Limits(cost=5)).send("q")


def test_tokens_of_the_cache_have_a_price_of_their_own() -> None:
    assert PRICE.of(Usage(input_tokens=3 * MANY, cached_tokens=MANY, output_tokens=MANY)) == pytest.approx(4.5)
    assert Price(input=1.0).of(Usage(input_tokens=MANY, cached_tokens=MANY)) == pytest.approx(1.0)


def test_a_price_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="below 0"):
        Price(output=-1)


def test_a_sum_of_which_one_part_is_unknown_is_unknown() -> None:
    known, unknown = Usage(input_tokens=1, cost=1.0), Usage(input_tokens=1)

    assert (known + known).cost == 2.0
    assert (known + unknown).cost is None
    assert (known + Usage()).cost == 1.0
