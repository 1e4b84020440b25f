"""OpenTelemetry spans of a gateway: the caller's context goes through it, and nothing private is recorded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.gateway.running import upstream
from tests.serve.exchanges import call
from tests.serve.serving import served_app
from toolweave import ProtocolError, connect_mcp
from toolweave.errors import ToolError
from toolweave.gateway import GatewayManager, GatewayOptions
from toolweave.serve import create_mcp_server
from toolweave.tools import CallContext

BOUND = 60
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}


def seen_server(seen: list[Any]) -> Any:
    """Return a server that notes the `_meta` of its calls."""

    async def look(secret: str, ctx: CallContext) -> str:
        """Look at the context."""
        seen.append(dict(ctx.meta))
        return "a private result"

    async def fail() -> str:
        """Fail."""
        raise ToolError("on purpose")

    return create_mcp_server(name="inner", version="1", tools=[look, fail])


async def test_a_call_makes_a_span_for_the_caller_and_one_for_the_upstream(exporter: InMemorySpanExporter) -> None:
    seen: list[Any] = []
    manager = GatewayManager({"inner": seen_server(seen)}, options=GatewayOptions(tracing=True))
    async with served_app(manager.asgi_app()) as base, connect_mcp(f"{base}/mcp", name="g") as connection:
        exporter.clear()
        await connection.call_tool("inner_look", {"secret": "hunter2"}, meta=CONTEXT)
        await connection.call_tool("inner_fail", meta=CONTEXT)
        with pytest.raises(ProtocolError):
            await connection.request("tools/call", {"name": "made up", "arguments": {}})

    spans = [one for one in exporter.get_finished_spans() if one.name.startswith("tools/call")]
    client, server, failing, failed, unknown_client, unknown = spans
    assert [one.name for one in spans] == [
        *["tools/call inner_look"] * 2,
        *["tools/call inner_fail"] * 2,
        *["tools/call"] * 2,
    ]
    assert (server.kind, client.kind) == (trace.SpanKind.SERVER, trace.SpanKind.CLIENT)
    assert server.parent is not None
    assert server.context is not None
    assert client.parent is not None
    assert client.context is not None
    assert (f"{server.parent.trace_id:032x}", f"{server.parent.span_id:016x}") == (TRACE, PARENT)
    assert client.parent.span_id == server.context.span_id
    assert seen[0]["traceparent"] == f"00-{TRACE}-{client.context.span_id:016x}-01"
    assert seen[0]["tracestate"] == "a=b"
    assert attributes(server) >= {
        ("mcp.method.name", "tools/call"),
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "inner_look"),
        ("mcp.protocol.version", "2026-07-28"),
        ("network.transport", "tcp"),
    }
    assert attributes(client) >= {("toolweave.server", "inner"), ("gen_ai.tool.name", "look")}
    assert ("error.type", "tool_error") in attributes(failing) & attributes(failed)
    assert ("error.type", "-32602") in attributes(unknown) & attributes(unknown_client)
    recorded = "".join(one.to_json() for one in spans)
    assert "hunter2" not in recorded
    assert "private result" not in recorded
    assert "made up" not in recorded


async def test_the_context_of_the_http_request_is_linked(exporter: InMemorySpanExporter) -> None:
    manager = GatewayManager({"inner": seen_server([])}, options=GatewayOptions(tracing=True))
    async with served_app(manager.asgi_app()) as base:
        await call(f"{base}/mcp", "inner_fail", headers=CONTEXT)

    (server,) = (one for one in exporter.get_finished_spans() if one.kind is trace.SpanKind.SERVER)
    assert server.parent is None
    assert [f"{link.context.span_id:016x}" for link in server.links] == [PARENT]


def attributes(span: ReadableSpan) -> set[tuple[str, Any]]:
    return set((span.attributes or {}).items())


@pytest.mark.slow
def test_a_gateway_without_tracing_and_metrics_loads_neither_package(tmp_path: Path) -> None:
    file = tmp_path / "run.py"
    file.write_text(
        "import sys\n"
        "from toolweave.gateway import GatewayManager\n"
        f"GatewayManager({{'a': {upstream(tmp_path, 'a')!r}}}).asgi_app()\n"
        "print([name for name in ('opentelemetry', 'prometheus_client') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=BOUND, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "options, package",
    [(GatewayOptions(metrics=True), "prometheus-client"), (GatewayOptions(tracing=True), "opentelemetry-api")],
)
def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, options: GatewayOptions, package: str
) -> None:
    for name in ("prometheus_client", "opentelemetry", "opentelemetry.trace"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("toolweave.gateway._observe.metrics", "toolweave.gateway._observe.tracing"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    with pytest.raises(ValueError, match=f"{package} is not installed: pip install 'toolweave"):
        GatewayManager({"a": {"command": "x"}}, options=options)
