"""OpenTelemetry spans of a gateway, by the conventions for MCP and generative AI.

A span of kind SERVER is around every request of a caller, its parent the `traceparent` in the request's `_meta`; one of
kind CLIENT is around what goes to an upstream, which is sent the context of that span in turn. The names are those of
`open-telemetry/semantic-conventions-genai` (status Development), as texts: the package's own constants are deprecated
since the conventions moved. Arguments, results, URIs and principals are not recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer

from toolweave.errors import RequestError
from toolweave.gateway._telemetry import KNOWN_METHODS, outcome_of_result, subject_of
from toolweave.protocol import methods
from toolweave.serve._request import CallNext, Json, Request
from toolweave.version import VERSION

__all__ = ["CallerSpans", "UpstreamSpans"]

_KEYS = ("traceparent", "tracestate", "baggage")
_UPSTREAM = frozenset({methods.TOOLS_CALL, methods.PROMPTS_GET, methods.RESOURCES_READ, methods.COMPLETION_COMPLETE})
"""The requests that go to one upstream."""
_MOST_TEXT = 200


class CallerSpans:
    """Middleware with a span around every request of a caller.

    Args:
        tracer: Makes the spans; by default that of the globally configured provider.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("toolweave.gateway", VERSION)

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request within its span."""
        parent = propagate.extract(_trace_context(request.meta), context=otel_context.Context())
        over_http = propagate.extract(_trace_context(request.headers), context=otel_context.Context())
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
            return await _noted(span, request, call_next)


class UpstreamSpans:
    """Middleware with a span around what goes to an upstream; the innermost, so that it sees what really is sent.

    Args:
        tracer: Makes the spans; by default that of the globally configured provider.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("toolweave.gateway", VERSION)

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request within its span, whose context the upstream finds in `_meta`."""
        if request.method not in _UPSTREAM:
            return await call_next(request)
        target = subject_of(request)
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
                kept = {key: value for key, value in request.meta.items() if key not in _KEYS}
                request = request.replace(params={**request.params, "_meta": {**kept, **sent}})
            return await _noted(span, request, call_next)


async def _noted(span: Span, request: Request, call_next: CallNext) -> Json:
    """Answer a request and note the outcome in its span."""
    try:
        result = await call_next(request)
    except RequestError as error:
        span.set_attribute("error.type", str(error.code))
        span.set_attribute("rpc.response.status_code", str(error.code))
        span.set_status(StatusCode.ERROR)  # its text may hold what the caller sent
        raise
    except Exception as error:
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(StatusCode.ERROR)
        raise
    if outcome_of_result(result) == "tool_error":
        span.set_attribute("error.type", "tool_error")
        span.set_status(StatusCode.ERROR)
    return result


def _name(request: Request) -> str:
    """Return the name of a span: the method, and the tool or prompt where that is one that is offered."""
    method = request.method if request.method in KNOWN_METHODS else "other"
    name = _offered(request)
    return method if name is None else f"{method} {name}"


def _attributes(request: Request) -> dict[str, str]:
    attributes = {
        "mcp.method.name": request.method if request.method in KNOWN_METHODS else "other",
        "mcp.protocol.version": request.client.version,
        "jsonrpc.request.id": str(request.id)[:_MOST_TEXT],
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
        return None if spec is None else spec.name
    if request.method == methods.PROMPTS_GET:
        return name if request.server.offers_of(request.method, request.params) else None
    return None


def _trace_context(carrier: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key in _KEYS if isinstance(value := carrier.get(key), str)}
