"""What orchestrators and Prometheus read of a gateway: whether it lives, whether it is ready, and its figures."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.gateway.running import gateway, until, upstream, write_gateway_config
from toolweave import connect_mcp

TEST_SECONDS = 120

pytestmark = pytest.mark.slow


def test_a_gateway_is_ready_once_its_required_servers_are(tmp_path: Path) -> None:
    servers = {"a": upstream(tmp_path, "a"), "gone": {"command": "toolweave-test-no-such-command"}}
    config = write_gateway_config(tmp_path, servers, {"required": ["a", "gone"]})
    with gateway(tmp_path, config) as running:
        found = running.spoken("GET", "/readyz")
        assert (found.status, found.json["ready"]) == (503, False)
        assert found.json["missing"]["gone"] in ("backoff", "connecting")
        health = running.spoken("GET", "/healthz")
        assert (health.status, health.text) == (200, "ok")

        write_gateway_config(tmp_path, servers, {"required": ["a"]})
        until(lambda: running.spoken("GET", "/readyz").status == 200, "readiness")
        assert running.spoken("POST", "/readyz", {}).status == 405


def test_a_probe_under_a_foreign_name_learns_the_status_alone(tmp_path: Path) -> None:
    servers = {"gone": {"command": "toolweave-test-no-such-command"}}
    config = write_gateway_config(tmp_path, servers, {"required": ["gone"]})
    with gateway(tmp_path, config) as running:
        found = running.spoken("GET", "/readyz", headers={"host": "10.1.2.3:8000"})

        assert (found.status, found.text) == (503, "not ready")


async def test_requests_and_upstreams_are_counted_without_naming_anybody(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")}, {"virtual": {"v": {}}})
    with gateway(tmp_path, config, "--metrics") as running:
        async with (
            connect_mcp(running.entry(protocol="legacy"), name="g") as connection,
            connect_mcp(running.entry("/mcp/v"), name="v") as view,
        ):
            pid = (await view.call_tool("a_who")).structured_content["pid"]
            await connection.call_tool("a_add", {"a": 1, "b": 2})
            await connection.call_tool("a_fail")
            with pytest.raises(Exception, match="Unknown"):
                await connection.request("tools/call", {"name": "made_up_name", "arguments": {}})
            with pytest.raises(Exception, match="not found"):
                await connection.request("made/up", {})
            found = running.spoken("GET", "/metrics")
            page = found.text

        assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
        for line in (
            'toolweave_requests_total{method="tools/call",outcome="ok",upstream="a"} 2.0',
            'toolweave_requests_total{method="tools/call",outcome="tool_error",upstream="a"} 1.0',
            'toolweave_requests_total{method="tools/call",outcome="invalid",upstream=""} 1.0',
            'toolweave_tool_calls_total{outcome="ok",tool="add",upstream="a"} 1.0',
            'toolweave_upstream_state{state="ready",upstream="a"} 1.0',
            'toolweave_upstream_restarts{upstream="a"} 0.0',
            'toolweave_upstream_tools{upstream="a"} 4.0',
            'toolweave_request_duration_seconds_count{method="tools/call",upstream="a"} 3.0',
            "toolweave_sessions 1.0",
            'toolweave_held{kind="sessions"} 1.0',
            'toolweave_refused{kind="requests"} 0.0',
            'toolweave_evicted{kind="sessions"} 0.0',
            "toolweave_config_refused 0.0",
            "toolweave_ready 1.0",
        ):
            assert line in page.splitlines(), line
        assert "made_up_name" not in page
        assert "made/up" not in page
        assert "state://" not in page

        os.kill(pid, signal.SIGKILL)
        until(lambda: 'toolweave_upstream_restarts{upstream="a"} 1.0' in running.spoken("GET", "/metrics").text)
        assert running.spoken("GET", "/metrics", headers={"host": "evil.example"}).status == 421


def test_there_are_no_metrics_unless_they_are_wanted(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {"a": upstream(tmp_path, "a")})
    with gateway(tmp_path, config) as running:
        assert running.spoken("GET", "/metrics").status == 404
