"""OpenTelemetry spans and metrics of runs, by the conventions for generative AI.

A span `invoke_agent` is around each run, `chat` around each turn of the model and `execute_tool` around each call.
A turn or call that a resumed run replays from its journal gets a span with `toolweave.replayed`, and is in no metric:
it was measured when it happened. The names are those of `open-telemetry/semantic-conventions-genai` (status
Development), as texts. Imported only where OpenTelemetry is loaded; without a configured SDK its API does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram, MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer

from toolweave._json_types import Json, JsonObject, without_empty, without_none
from toolweave._value import Value
from toolweave.agent._events import StopReason
from toolweave.errors import ModelError
from toolweave.models import (
    AssistantMessage,
    Finished,
    Message,
    ModelRequest,
    TextPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
)
from toolweave.models._base import StopReason as TurnEnd
from toolweave.protocol.meta import trace_context_in, with_trace_context
from toolweave.tools import ToolResult, ToolSpec
from toolweave.tools.arguments import encode
from toolweave.version import VERSION

_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
_FINISH_REASONS: dict[TurnEnd, str] = {
    "end": "stop",
    "tool_calls": "tool_call",
    "max_tokens": "length",
    "refusal": "content_filter",
    "malformed_call": "error",
}


class _Instruments(Value, frozen=True, eq=False):
    """The histograms of one meter provider."""

    model_seconds: Histogram
    tokens: Histogram
    agent_seconds: Histogram
    tool_seconds: Histogram


_instruments: WeakKeyDictionary[MeterProvider, _Instruments] = WeakKeyDictionary()


class ActiveSpan:
    """A span that is under way.

    Args:
        span: The span.
        content: Whether messages, arguments and results are recorded.

    Attributes:
        error: The kind of the error, or None.
    """

    def __init__(self, span: Span, *, content: bool) -> None:
        self.error: str | None = None
        self._opened = span
        self._content = content

    @property
    def is_recording(self) -> bool:
        """Whether anybody keeps the span."""
        return self._opened.is_recording()

    def fail(self, kind: str) -> None:
        """Note an error."""
        self.error = kind
        self._opened.set_attribute("error.type", kind)
        self._opened.set_status(StatusCode.ERROR)


class RunSpan(ActiveSpan):
    """The span of a run."""

    def finish(self, reason: StopReason, usage: Usage, steps: int) -> None:
        """Note how the run ended, and the usage of its turns: runs below it have other spans."""
        ended: Json = {"toolweave.run.stop_reason": reason, "toolweave.run.steps": steps}
        self._opened.set_attributes({**ended, **_usage_of(usage)})


class TurnSpan(ActiveSpan):
    """The span of a turn of the model.

    Attributes:
        usage: The usage of the turn, once it is finished.
    """

    usage: Usage | None = None

    def finish(self, finished: Finished) -> None:
        """Note the turn."""
        self.usage = finished.usage
        reason = _FINISH_REASONS.get(finished.stop_reason, finished.stop_detail or finished.stop_reason)
        attributes: Json = {"gen_ai.response.finish_reasons": (reason,), **_usage_of(finished.usage)}
        if finished.model is not None:
            attributes["gen_ai.response.model"] = _provider_and_model(finished.model)[1]
        if self._content:
            said = {**_message_of(finished.message), "finish_reason": reason}
            attributes["gen_ai.output.messages"] = _json([said])
        self._opened.set_attributes(attributes)


class ToolSpan(ActiveSpan):
    """The span of a call."""

    def carried(self, meta: JsonObject) -> JsonObject:
        """Return the `_meta` of the call with this span's context instead of the one it has (SEP-414)."""
        return with_trace_context(meta, trace_context())

    def finish(self, result: ToolResult) -> None:
        """Note the result."""
        if result.is_error:
            self.fail(result.require_error().kind.value)
        if self._content:
            self._opened.set_attribute("gen_ai.tool.call.result", result.text)


_SpanT = TypeVar("_SpanT", bound=ActiveSpan)


class RunTelemetry:
    """The spans and metrics of one run.

    Args:
        agent: The agent's name.
        run_id: The run.
        model: Provider and model, such as `"anthropic:claude-sonnet-4-5"`.
        session: The conversation, or None.

    Attributes:
        usage: The usage of the turns so far, with their cost where it is known.
    """

    def __init__(self, *, agent: str, run_id: str, model: str, session: str | None) -> None:
        self._tracer: Tracer = trace.get_tracer("toolweave.agent", VERSION)
        self._metrics = _instruments_of(metrics.get_meter_provider())
        self._content = os.environ.get(_CONTENT, "").lower() == "true"
        self.usage = Usage()
        self._agent = agent
        provider, model_name = _provider_and_model(model)
        self._model: Json = {"gen_ai.provider.name": provider, "gen_ai.request.model": model_name}
        self._run: Json = {"gen_ai.agent.name": agent, "toolweave.run.id": run_id}
        if session is not None:
            self._run["gen_ai.conversation.id"] = session

    @contextmanager
    def run(self, meta: JsonObject, *, recorded: bool) -> Generator[RunSpan]:
        """Run the block in the span of the run.

        Args:
            meta: The run's `_meta`; the span that its `traceparent` names is the parent if no span is present.
            recorded: Whether `meta` was recorded when the run was submitted: then that is the parent in any case, and
                the present span, of the worker, is linked.
        """
        present = trace.get_current_span().get_span_context()
        carried = trace_context_in(meta)
        if carried and (recorded or not present.is_valid):
            parent = propagate.extract(carried)
        else:
            parent = None
        # A span has one parent. The worker's own span is linked, so that both traces lead to the run.
        if parent is not None and present.is_valid:
            links = [Link(present)]
        else:
            links = None
        attributes = {"gen_ai.operation.name": "invoke_agent", **self._run, **self._model}
        began = perf_counter()
        span = None
        try:
            with self._span(RunSpan, f"invoke_agent {self._agent}", attributes, parent=parent, links=links) as span:
                yield span
        finally:
            measured = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": self._agent, **self._model}
            self._metrics.agent_seconds.record(perf_counter() - began, {**measured, **_error_of(span)})

    @contextmanager
    def turn(self, request: ModelRequest) -> Generator[TurnSpan]:
        """Run the block, which asks the model, in the span of the turn."""
        attributes = {**self._turn_attributes(), **_settings_of(request)}
        if self._content:
            attributes |= _input_of(request)
        began = perf_counter()
        span = None
        try:
            with self._span(TurnSpan, self._turn_name, attributes, kind=SpanKind.CLIENT) as span:
                yield span
        finally:
            self._measure_turn(perf_counter() - began, span)

    def replayed_turn(self, finished: Finished) -> None:
        """Note a turn that comes from the journal."""
        attributes = {**self._turn_attributes(), "toolweave.replayed": True}
        with self._span(TurnSpan, self._turn_name, attributes, kind=SpanKind.CLIENT) as span:
            span.finish(finished)
        self.usage += finished.usage

    @contextmanager
    def tool(self, call: ToolCallPart, tool: ToolSpec) -> Generator[ToolSpan]:
        """Run the block, which makes a call, in the span of the call."""
        began = perf_counter()
        span = None
        try:
            with self._span(ToolSpan, f"execute_tool {call.name}", self._tool_attributes(call, tool)) as span:
                yield span
        finally:
            measured = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name}
            self._metrics.tool_seconds.record(perf_counter() - began, {**measured, **_error_of(span)})

    def replayed_tool(self, call: ToolCallPart, tool: ToolSpec | None, result: ToolResult) -> None:
        """Note a call whose result comes from the journal; its tool may be gone."""
        attributes = {**self._tool_attributes(call, tool), "toolweave.replayed": True}
        with self._span(ToolSpan, f"execute_tool {call.name}", attributes) as span:
            span.finish(result)

    @contextmanager
    def _span(
        self,
        kind_of: type[_SpanT],
        name: str,
        attributes: JsonObject,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: Context | None = None,
        links: Sequence[Link] | None = None,
    ) -> Generator[_SpanT]:
        """Open a span that notes the kind of an error, not its text: that may quote a server or a user."""
        with self._tracer.start_as_current_span(
            name,
            context=parent,
            kind=kind,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as opened:
            span = kind_of(opened, content=self._content)
            try:
                yield span
            except BaseException as error:
                span.fail(error.kind if isinstance(error, ModelError) else type(error).__qualname__)
                raise

    @property
    def _turn_name(self) -> str:
        return f"chat {self._model['gen_ai.request.model']}"

    def _turn_attributes(self) -> Json:
        return {"gen_ai.operation.name": "chat", **self._run, **self._model}

    def _tool_attributes(self, call: ToolCallPart, tool: ToolSpec | None) -> Json:
        attributes: Json = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            **self._run,
        }
        if tool is not None:
            attributes["gen_ai.tool.description"] = tool.description
            if tool.server is not None:
                attributes["toolweave.server"] = tool.server
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = _json(call.arguments)
        return attributes

    def _measure_turn(self, seconds: float, span: TurnSpan | None) -> None:
        attributes = {"gen_ai.operation.name": "chat", **self._model}
        self._metrics.model_seconds.record(seconds, {**attributes, **_error_of(span)})
        if span is not None and span.usage is not None:
            usage = span.usage
            self.usage += usage
            self._metrics.tokens.record(usage.input_tokens, {**attributes, "gen_ai.token.type": "input"})
            self._metrics.tokens.record(usage.output_tokens, {**attributes, "gen_ai.token.type": "output"})


def trace_context() -> dict[str, str]:
    """Return the current span's context as members of a `_meta`, for a run that another process executes."""
    carried: dict[str, str] = {}
    propagate.inject(carried)
    return carried


def _instruments_of(provider: MeterProvider) -> _Instruments:
    """Return the histograms of a provider, which warns of a second one with the same name."""
    # By provider, weakly: programs and tests replace it, and its histograms must not outlive it.
    found = _instruments.get(provider)
    if found is None:
        meter = provider.get_meter("toolweave.agent", VERSION)
        seconds = partial(meter.create_histogram, unit="s", explicit_bucket_boundaries_advisory=_SECONDS)
        found = _instruments[provider] = _Instruments(
            model_seconds=seconds("gen_ai.client.operation.duration", description="Time of a turn of a model"),
            tokens=meter.create_histogram(
                "gen_ai.client.token.usage",
                unit="{token}",
                description="Tokens of a turn of a model",
                explicit_bucket_boundaries_advisory=_TOKENS,
            ),
            agent_seconds=seconds("gen_ai.invoke_agent.duration", description="Time of a run"),
            tool_seconds=seconds("gen_ai.execute_tool.duration", description="Time of a call"),
        )
    return found


def _provider_and_model(name: str) -> tuple[str, str]:
    """Split the name of a model: `anthropic:claude-sonnet-4-5`, `http://host/v1#model`, or several with ` | `."""
    if " | " in name:
        return "_OTHER", name
    if "://" in name:
        return "_OTHER", name.rpartition("#")[2]
    provider, colon, model = name.partition(":")
    if colon:
        return (provider, model)
    return ("_OTHER", name)


def _settings_of(request: ModelRequest) -> Json:
    settings = request.settings
    found = {
        "gen_ai.request.temperature": settings.temperature,
        "gen_ai.request.max_tokens": settings.max_tokens,
        "gen_ai.request.top_p": settings.top_p,
    }
    return without_none(found)


def _usage_of(usage: Usage) -> Json:
    """Return the attributes of usage; zeros are left out, since the provider may not have sent them."""
    found = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_written_tokens,
        "operation.cost": usage.cost,
    }
    return without_empty(found)


def _input_of(request: ModelRequest) -> dict[str, str]:
    found = {"gen_ai.input.messages": _json(list(map(_message_of, request.messages)))}
    if request.system is not None:
        found["gen_ai.system_instructions"] = _json([{"type": "text", "content": request.system}])
    return found


def _message_of(message: Message) -> Json:
    match message:
        case UserMessage():
            return {"role": "user", "parts": [{"type": "text", "content": message.text}]}
        case AssistantMessage():
            return {"role": "assistant", "parts": list(_parts_of(message))}
        case ToolMessage():
            parts = [
                {"type": "tool_call_response", "id": one.call_id, "response": one.result.for_model().text}
                for one in message.outcomes
            ]
            return {"role": "tool", "parts": parts}


def _parts_of(message: AssistantMessage) -> Iterator[Json]:
    for part in message.parts:
        if isinstance(part, TextPart):
            yield {"type": "text", "content": part.text}
        elif isinstance(part, ToolCallPart):
            yield {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}


def _json(value: Any) -> str:
    try:
        return encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        # A value that was made in code.
        return repr(value)


def _error_of(span: ActiveSpan | None) -> dict[str, str]:
    if span is None or span.error is None:
        return {}
    return {"error.type": span.error}
