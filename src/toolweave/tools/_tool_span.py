"""The OpenTelemetry span around one call of a tool.

It has the kind of an error and never its text, which may quote arguments, or credentials that a server repeats.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from toolweave.tools._call import ToolCall
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


async def in_tool_span(
    tracer: Tracer, call: ToolCall, spec: ToolSpec, run: Callable[[], Awaitable[ToolResult]]
) -> ToolResult:
    """Run a call in a span `tool:run`, and return its result."""
    from opentelemetry.trace import StatusCode

    attributes = {"gen_ai.tool.name": spec.original_name}
    if spec.server is not None:
        attributes["toolweave.server"] = spec.server
    if call.id is not None:
        attributes["gen_ai.tool.call.id"] = call.id
    with tracer.start_as_current_span(
        "tool:run", attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        failed: str | None = None
        try:
            result = await run()
            if result.is_error:
                failed = result.require_error().kind.value
            return result
        except BaseException as exc:
            failed = type(exc).__qualname__
            raise
        finally:
            if failed is not None:
                span.set_attribute("error.type", failed)
                span.set_status(StatusCode.ERROR)
