"""OpenTelemetry histograms of a gateway: durations of requests and sessions, by names of the conventions alone."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

from tests.serve.serving import served_app
from toolweave import ProtocolError, connect_mcp, create_mcp_server
from toolweave.errors import ToolError
from toolweave.gateway import GatewayManager, GatewayOptions


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Generator[InMemoryMetricReader]:
    """Reads the metrics of a provider that is the global one during the test."""
    found = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[found])
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    yield found
    provider.shutdown()


def points(reader: InMemoryMetricReader) -> dict[str, list[HistogramDataPoint]]:
    """Return the data points of each histogram."""
    found: dict[str, list[HistogramDataPoint]] = {}
    data: Any = reader.get_metrics_data()
    for of_resource in data.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                assert metric.unit == "s"
                found[metric.name] = list(metric.data.data_points)
    return found


def counted(found: list[HistogramDataPoint], **wanted: str) -> int:
    """Return how often something with these attributes was measured; two underscores stand for a dot."""
    names = {name.replace("__", "."): value for name, value in wanted.items()}
    return sum(one.count for one in found if names.items() <= dict(one.attributes or {}).items())


async def look(secret: str) -> str:
    """Look."""
    return secret


async def fail() -> str:
    """Fail."""
    raise ToolError("on purpose")


async def test_requests_and_sessions_are_measured_by_their_names_and_outcomes(reader: InMemoryMetricReader) -> None:
    server = create_mcp_server(name="inner", version="1", tools=[look, fail])
    manager = GatewayManager({"inner": server}, options=GatewayOptions(tracing=True))
    async with (
        served_app(manager.asgi_app()) as base,
        connect_mcp({"url": f"{base}/mcp", "protocol": "2025-11-25"}) as connection,
    ):
        await connection.call_tool("inner_look", {"secret": "hunter2"})
        await connection.call_tool("inner_fail")
        with pytest.raises(ProtocolError):
            await connection.request("tools/call", {"name": "made up", "arguments": {}})

    found = points(reader)
    callers, upstreams = found["mcp.server.operation.duration"], found["mcp.client.operation.duration"]
    call: dict[str, str] = {"mcp__method__name": "tools/call"}
    assert counted(callers, **call) == counted(upstreams, **call) == 3
    assert counted(callers, gen_ai__tool__name="inner_look", network__transport="tcp") == 1
    assert counted(upstreams, gen_ai__tool__name="look", toolweave__server="inner") == 1
    assert counted(callers, **call, error__type="tool_error") == 1
    assert counted(callers, **call, error__type="-32602") == 1
    assert counted(callers, mcp__method__name="initialize") == 1
    assert tuple(callers[0].explicit_bounds)[:6] == (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
    assert counted(found["mcp.server.session.duration"]) == 1
    assert counted(found["mcp.client.session.duration"], toolweave__server="inner") == 1
    said = str(reader.get_metrics_data()) + str(found)
    assert "hunter2" not in said
    assert "made up" not in said
    assert "jsonrpc.request.id" not in said
