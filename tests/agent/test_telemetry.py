"""OpenTelemetry spans and metrics of runs: what happened, below whom, at what cost, and nothing private."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from typing import Any

import anyio
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.jobs.places import working
from tests.programs import ran
from toolweave import Agent, ScriptedModel, connect_mcp
from toolweave.errors import ModelError, ToolError
from toolweave.jobs import Backend
from toolweave.models import AssistantMessage, Finished, ModelSettings, TextPart, Usage, tool_call
from toolweave.serve import create_mcp_server
from toolweave.state import MemoryStore
from toolweave.tools import CallContext

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Recorded:
    """The spans and metrics of the providers that are the global ones during a test."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracing = TracerProvider()
        self.tracing.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.metering = MeterProvider(metric_readers=[self.reader])

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """All spans, in the order in which they ended."""
        return self.exporter.get_finished_spans()

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        [found] = [one for one in self.spans if one.name == name]
        return found

    def points(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Return the attributes and sums of a histogram."""
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        found = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        points: list[Any] = [point for metric in found for point in metric.data.data_points]
        return [(dict(point.attributes), point.sum) for point in points]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Generator[Recorded]:
    """Collects what the providers of the process are given during the test."""
    found = Recorded()
    monkeypatch.setattr(trace, "get_tracer", found.tracing.get_tracer)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: found.metering)
    monkeypatch.delenv(CONTENT, raising=False)
    yield found
    found.tracing.shutdown()
    found.metering.shutdown()


def turn(text: str, *, stop: Any = "end", **usage: Any) -> Finished:
    message = AssistantMessage(parts=(TextPart(text=text),))
    return Finished(message=message, usage=Usage(**usage), stop_reason=stop)


def calling(*calls: Any, **usage: Any) -> Finished:
    return Finished(message=AssistantMessage(parts=calls), usage=Usage(**usage), stop_reason="tool_calls")


def below(span: ReadableSpan, other: ReadableSpan) -> bool:
    """Whether a span is a child of another."""
    return span.parent is not None and other.context is not None and span.parent.span_id == other.context.span_id


async def look(secret: str) -> str:
    """Look."""
    return f"seen {secret}"


async def test_a_run_has_a_span_with_one_for_each_turn_and_each_call_below_it(recorded: Recorded) -> None:
    model = ScriptedModel(
        [
            calling(tool_call("look", {"secret": "hush"}), input_tokens=70, output_tokens=7, cost=0.25),
            turn("all seen", input_tokens=90, output_tokens=9, cached_tokens=60, cost=0.5),
        ],
        name="acme:large",
    )
    agent = Agent(model, name="scout", tools=[look], settings=ModelSettings(temperature=0.5, max_tokens=100))
    run = agent.send("go", session="s1")
    await run

    whole, call = recorded.one("invoke_agent scout"), recorded.one("execute_tool look")
    first, second = [one for one in recorded.spans if one.name == "chat large"]
    assert [below(one, whole) for one in (first, call, second)] == [True] * 3
    assert dict(whole.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "scout",
        "gen_ai.conversation.id": "s1",
        "gen_ai.provider.name": "acme",
        "gen_ai.request.model": "large",
        "gen_ai.usage.input_tokens": 160,
        "gen_ai.usage.output_tokens": 16,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "operation.cost": 0.75,
        "toolweave.run.id": run.id,
        "toolweave.run.stop_reason": "end",
        "toolweave.run.steps": 2,
    }
    assert dict(second.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.name": "scout",
        "gen_ai.conversation.id": "s1",
        "gen_ai.provider.name": "acme",
        "gen_ai.request.model": "large",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.response.model": "large",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 90,
        "gen_ai.usage.output_tokens": 9,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "operation.cost": 0.5,
        "toolweave.run.id": run.id,
    }
    assert (call.attributes or {})["gen_ai.operation.name"] == "execute_tool"
    assert (call.attributes or {})["gen_ai.tool.description"] == "Look."
    assert first.kind is second.kind is trace.SpanKind.CLIENT
    assert whole.kind is call.kind is trace.SpanKind.INTERNAL


async def test_what_is_said_is_recorded_only_where_it_is_asked_for(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agent() -> Agent:
        turns = [calling(tool_call("look", {"secret": "hush"})), "all seen"]
        return Agent(ScriptedModel(turns), system="be brief", tools=[look])

    await agent().send("a question")
    quiet = "".join(one.to_json() for one in recorded.spans)
    recorded.exporter.clear()
    monkeypatch.setenv(CONTENT, "true")
    await agent().send("a question")

    assert not any(word in quiet for word in ("hush", "a question", "be brief", "all seen"))
    call, [_, last] = recorded.one("execute_tool look"), [one for one in recorded.spans if one.name == "chat scripted"]
    assert json.loads(str((call.attributes or {})["gen_ai.tool.call.arguments"])) == {"secret": "hush"}
    assert (call.attributes or {})["gen_ai.tool.call.result"] == "seen hush"
    attributes = last.attributes or {}
    assert json.loads(str(attributes["gen_ai.system_instructions"])) == [{"type": "text", "content": "be brief"}]
    said = json.loads(str(attributes["gen_ai.input.messages"]))
    assert [one["role"] for one in said] == ["user", "assistant", "tool"]
    assert said[0]["parts"] == [{"type": "text", "content": "a question"}]
    assert (said[1]["parts"][0]["type"], said[1]["parts"][0]["arguments"]) == ("tool_call", {"secret": "hush"})
    assert (said[2]["parts"][0]["type"], said[2]["parts"][0]["response"]) == ("tool_call_response", "seen hush")
    [answer] = json.loads(str(attributes["gen_ai.output.messages"]))
    expected = {"role": "assistant", "parts": [{"type": "text", "content": "all seen"}], "finish_reason": "stop"}
    assert answer == expected


async def test_failures_are_named_by_their_kind_and_not_by_their_text(recorded: Recorded) -> None:
    def fail() -> str:
        """Fail."""
        raise ToolError("the secret is out", kind="timeout")

    refused = ModelError("the secret is out", model="scripted", kind="overloaded")
    run = Agent(ScriptedModel([calling(tool_call("fail")), refused]), tools=[fail]).send("go")
    with pytest.raises(ModelError):
        await run

    call, whole = recorded.one("execute_tool fail"), recorded.one("invoke_agent agent")
    _, last = [one for one in recorded.spans if one.name == "chat scripted"]
    assert [(one.attributes or {}).get("error.type") for one in (call, last, whole)] == [
        "timeout",
        "overloaded",
        "overloaded",
    ]
    assert {one.status.status_code for one in (call, last, whole)} == {trace.StatusCode.ERROR}
    assert "secret" not in "".join(one.to_json() for one in recorded.spans)
    [(attributes, _)] = [one for one in recorded.points("gen_ai.client.operation.duration") if "error.type" in one[0]]
    assert attributes["error.type"] == "overloaded"


async def test_a_run_that_is_cancelled_ends_its_spans(recorded: Recorded) -> None:
    begun = anyio.Event()

    async def wait() -> None:
        """Wait."""
        begun.set()
        await anyio.sleep_forever()

    run = Agent(ScriptedModel([calling(tool_call("wait"))]), tools=[wait]).send("go")
    run.start()
    await begun.wait()
    run.cancel()
    await run

    assert [one.name for one in recorded.spans] == ["chat scripted", "execute_tool wait", "invoke_agent agent"]
    assert (recorded.spans[-1].attributes or {})["error.type"] == "CancelledError"


async def test_a_server_is_sent_the_context_of_the_call_it_serves(recorded: Recorded) -> None:
    seen: list[Any] = []

    async def peek(ctx: CallContext) -> str:
        """Peek."""
        seen.append(ctx.meta["traceparent"])
        return "ok"

    async with connect_mcp(create_mcp_server(name="eyes", tools=[peek])) as client:
        await Agent(ScriptedModel([calling(tool_call("peek")), "done"]), tools=[client]).send("go")

    call = recorded.one("execute_tool peek")
    assert call.context is not None
    assert [one[:52] for one in seen] == [f"00-{call.context.trace_id:032x}-{call.context.span_id:016x}"]
    assert (call.attributes or {})["toolweave.server"] == "eyes"


async def test_a_run_is_below_the_span_it_was_started_in_or_the_context_it_was_sent(recorded: Recorded) -> None:
    agent = Agent(ScriptedModel(lambda _: "done"))
    sent = CallContext(meta={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    with recorded.tracing.get_tracer("mine").start_as_current_span("outer"):
        await agent.send("go", ctx=sent)
    await agent.send("go", ctx=sent)

    first, second = [one for one in recorded.spans if one.name == "invoke_agent agent"]
    assert below(first, recorded.one("outer"))
    assert second.parent is not None
    assert (f"{second.parent.trace_id:032x}", f"{second.parent.span_id:016x}") == (TRACE, PARENT)


async def test_an_agent_that_is_a_tool_has_its_spans_below_its_call(recorded: Recorded) -> None:
    inner = Agent(ScriptedModel(["found it"]), name="finder")
    outer = Agent(
        ScriptedModel([calling(tool_call("agent_finder", {"message": "find"})), "done"]), tools=[inner.as_tool()]
    )
    await outer.send("go")

    assert below(recorded.one("invoke_agent finder"), recorded.one("execute_tool agent_finder"))


async def test_a_submitted_run_belongs_to_the_trace_of_its_submission(recorded: Recorded) -> None:
    async with Backend("memory://") as backend:
        agent = Agent(ScriptedModel(lambda _: "done"), backend=backend)
        with recorded.tracing.get_tracer("mine").start_as_current_span("outer"):
            run = await agent.submit("go")
        async with working(backend, agent):
            await run

    assert below(recorded.one("invoke_agent agent"), recorded.one("outer"))


async def test_what_a_resumed_run_takes_from_its_journal_is_marked_and_measured_only_once(recorded: Recorded) -> None:
    store = MemoryStore()
    broken = ModelError("down", model="scripted", kind="unreachable")
    usage = {"input_tokens": 10, "output_tokens": 1}

    def agent(*turns: Any) -> Agent:
        return Agent(ScriptedModel(turns), tools=[look], store=store)

    run = agent(calling(tool_call("look", {"secret": "x"}), **usage), broken).send("go")
    with pytest.raises(ModelError):
        await run
    recorded.exporter.clear()
    await (await agent(turn("done", **usage)).resume(run.id))

    replayed = [(one.name, (one.attributes or {}).get("toolweave.replayed", False)) for one in recorded.spans]
    assert replayed == [
        ("chat scripted", True),
        ("execute_tool look", True),
        ("chat scripted", False),
        ("invoke_agent agent", False),
    ]
    sums = {one[0]["gen_ai.token.type"]: one[1] for one in recorded.points("gen_ai.client.token.usage")}
    assert sums == {"input": 20, "output": 2}


async def test_turns_calls_and_runs_are_measured(recorded: Recorded) -> None:
    turns = [calling(tool_call("look", {"secret": "x"}), input_tokens=5), turn("done", output_tokens=3)]
    await Agent(ScriptedModel(turns, name="acme:large"), name="scout", tools=[look]).send("go")

    model = {"gen_ai.provider.name": "acme", "gen_ai.request.model": "large"}
    labels: dict[str, Callable[[], list[dict[str, Any]]]] = {
        name: lambda name=name: [one[0] for one in recorded.points(name)]
        for name in (
            "gen_ai.client.operation.duration",
            "gen_ai.execute_tool.duration",
            "gen_ai.invoke_agent.duration",
        )
    }
    assert labels["gen_ai.client.operation.duration"]() == [{"gen_ai.operation.name": "chat", **model}]
    assert labels["gen_ai.execute_tool.duration"]() == [
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    ]
    assert labels["gen_ai.invoke_agent.duration"]() == [
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "scout", **model}
    ]


@pytest.mark.slow
def test_an_agent_loads_no_telemetry_that_nobody_has_loaded() -> None:
    script = """
import asyncio, sys
from toolweave import Agent, ScriptedModel
asyncio.run(Agent(ScriptedModel(["done"])).send("go").outcome())
print("opentelemetry" in sys.modules)
"""
    ended = ran([sys.executable, "-c", script], check=True)
    assert ended.stdout == "False\n"
