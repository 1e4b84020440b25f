"""OpenTelemetry spans and metrics of a gateway, by the conventions for MCP and generative AI.

A span of kind SERVER is around every request of a caller, its parent the `traceparent` in the request's `_meta`; one of
kind CLIENT is around the request to an upstream, which is sent the context of that span in turn. The names are those of
`open-telemetry/semantic-conventions-genai` (status Development), as texts: the package's own constants are deprecated
since the conventions moved. The histograms of durations have the attributes of their spans but the id. Arguments,
results, URIs and principals are not recorded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry import context as otel_context
from opentelemetry import metrics, propagate, trace
from opentelemetry.metrics import Histogram
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer

from toolweave._json_types import without_members
from toolweave.connect import ConnectionState, McpConnection, StateChanged
from toolweave.errors import RequestError
from toolweave.gateway._observe.telemetry import BUCKETS, KNOWN_METHODS
from toolweave.middleware._observers import request_subject
from toolweave.middleware._outcome import is_failed
from toolweave.protocol import methods
from toolweave.protocol.meta import trace_context_in, with_trace_context
from toolweave.serve import CallNext, Request
from toolweave.serve.request import Json
from toolweave.version import VERSION

_UPSTREAM = frozenset({methods.TOOLS_CALL, methods.PROMPTS_GET, methods.RESOURCES_READ, methods.COMPLETION_COMPLETE})
"""The requests that go to one upstream."""
_MAX_TEXT = 200
_REQUEST_ID = "jsonrpc.request.id"
_OPEN = frozenset({ConnectionState.READY, ConnectionState.DEGRADED})


def _seconds(name: str, text: str) -> Histogram:
    meter = metrics.get_meter("toolweave.gateway", VERSION)
    return meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=BUCKETS)


class _Spans:
    """Middleware with spans, and the histogram of their durations.

    Args:
        durations: The histogram.
        tracer: Makes the spans; by default that of the globally configured provider.
    """

    reads_results = False
    judges_offers = False

    def __init__(self, durations: Histogram, tracer: Tracer | None) -> None:
        self._durations = durations
        self._tracer = tracer or trace.get_tracer("toolweave.gateway", VERSION)


class CallerSpans(_Spans):
    """Middleware with a span around every request of a caller, and the histogram of their durations.

    Args:
        tracer: Makes the spans; by default that of the globally configured provider.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        super().__init__(_seconds("mcp.server.operation.duration", "Duration of a request of a caller."), tracer)

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request within its span."""
        parent = propagate.extract(trace_context_in(request.meta), context=otel_context.Context())
        over_http = propagate.extract(trace_context_in(request.headers), context=otel_context.Context())
        outer = trace.get_current_span(over_http).get_span_context()
        links = [Link(outer)] if outer.is_valid else None
        attributes = _attributes(request)
        network = ("tcp", "http") if request.headers else ("pipe", None)
        attributes["network.transport"] = network[0]
        if network[1] is not None:
            attributes["network.protocol.name"] = network[1]
        with self._tracer.start_as_current_span(
            _name(request),
            context=parent,
            kind=SpanKind.SERVER,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            return await _observed(span, self._durations, attributes, request, call_next)


class UpstreamSpans(_Spans):
    """Middleware with a span around the request to an upstream, and the histogram of durations there.

    It is the innermost, so that it sees the request that is really sent.

    Args:
        tracer: Makes the spans; by default that of the globally configured provider.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        super().__init__(_seconds("mcp.client.operation.duration", "Duration of a request to an upstream."), tracer)

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request within its span, whose context the upstream finds in `_meta`."""
        if request.method not in _UPSTREAM:
            return await call_next(request)
        target = request_subject(request)
        attributes = _attributes(request)
        if target.upstream:
            attributes["toolweave.server"] = target.upstream
        if target.tool is not None:
            attributes["gen_ai.tool.name"] = target.tool
        with self._tracer.start_as_current_span(
            _name(request),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            sent: dict[str, str] = {}
            propagate.inject(sent)
            if sent:
                request = request.replace(params={**request.params, "_meta": with_trace_context(request.meta, sent)})
            return await _observed(span, self._durations, attributes, request, call_next)


class SessionDurations:
    """The histograms of how long sessions last: those of legacy callers, and the connections to upstreams."""

    def __init__(self) -> None:
        self._callers = _seconds("mcp.server.session.duration", "Duration of a session of a caller.")
        self._upstreams = _seconds("mcp.client.session.duration", "Duration of a connection to an upstream.")
        self._since: dict[McpConnection, float] = {}

    def caller_left(self, seconds: float) -> None:
        """Record the session of a caller, which has ended."""
        self._callers.record(seconds)

    def upstream_moved(self, connection: McpConnection, change: StateChanged) -> None:
        """Record the connection to an upstream when it ends; a listener of the hub's event `"state"`."""
        if change.state in _OPEN:
            self._since.setdefault(connection, time.monotonic())
            return
        since = self._since.pop(connection, None)
        if since is not None:
            attributes = {"toolweave.server": connection.name}
            if connection.protocol_version is not None:
                attributes["mcp.protocol.version"] = connection.protocol_version
            if change.error is not None:
                attributes["error.type"] = type(change.error).__qualname__
            self._upstreams.record(time.monotonic() - since, attributes)


async def _observed(
    span: Span, durations: Histogram, attributes: Mapping[str, str], request: Request, call_next: CallNext
) -> Json:
    """Answer a request, note the outcome in its span, and record how long it took."""
    begun = time.perf_counter()
    failed: dict[str, str] = {}
    try:
        result = await call_next(request)
        if is_failed(result):
            failed = {"error.type": "tool_error"}
        return result
    except RequestError as error:
        failed = {"error.type": str(error.code), "rpc.response.status_code": str(error.code)}
        raise
    except Exception as error:
        failed = {"error.type": type(error).__qualname__}
        raise
    except BaseException:
        failed = {"error.type": "cancelled"}
        raise
    finally:
        span.set_attributes(failed)
        if failed:
            # without its text, which may quote the caller's arguments
            span.set_status(StatusCode.ERROR)
        # which lasts as long as its caller listens
        if request.method != methods.SUBSCRIPTIONS_LISTEN:
            measured = without_members(attributes, _REQUEST_ID)
            durations.record(time.perf_counter() - begun, measured | failed)


def _name(request: Request) -> str:
    """Return the name of a span: the method, and the tool or prompt where that is one that is offered."""
    if request.method in KNOWN_METHODS:
        method = request.method
    else:
        method = "other"
    name = _offered(request)
    if name is None:
        return method
    return f"{method} {name}"


def _attributes(request: Request) -> dict[str, str]:
    attributes = {
        "mcp.method.name": request.method if request.method in KNOWN_METHODS else "other",
        "mcp.protocol.version": request.client.version,
        _REQUEST_ID: str(request.id)[:_MAX_TEXT],
    }
    name = _offered(request)
    if request.method == methods.TOOLS_CALL:
        attributes["gen_ai.operation.name"] = "execute_tool"
        if name is not None:
            attributes["gen_ai.tool.name"] = name
    elif name is not None:
        attributes["gen_ai.prompt.name"] = name
    return attributes


def _offered(request: Request) -> str | None:
    """Return the name of the tool or prompt of a request, if there is one of that name."""
    name = request.params.get("name")
    if request.server is None or not isinstance(name, str):
        return None
    if request.method == methods.TOOLS_CALL:
        spec = request.server.find_tool(name)
        if spec is None:
            return None
        return spec.name
    if request.method == methods.PROMPTS_GET:
        if request.server.offers_of(request.method, request.params):
            return name
        return None
    return None
