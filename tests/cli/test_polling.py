"""Older clients resume the streams of `toolweave serve` and `toolweave gateway`, by options or the config."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import toolweave
from tests.gateway.running import SECONDS, gateway, spoken, write_gateway_config

RELEASING = """
from toolweave import CallContext, tool

@tool
async def slow(ctx: CallContext) -> str:
    "End the stream, then answer."
    await ctx.progress(1, 2)
    await ctx.release_stream()
    return "resumed"
"""
KEEPS = ("--event-store", "memory", "--retry-seconds", "0.25")


@contextmanager
def served(folder: Path, *options: str) -> Generator[str]:
    """Serve a tool that releases its stream; yield the address without the path."""
    code = folder / "releasing.py"
    code.write_text(RELEASING)
    command = [sys.executable, "-m", "toolweave", "serve", f"{code}:slow", "--http", "0", "--json", *options]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"].removesuffix("/mcp")
        finally:
            process.terminate()
            process.wait(SECONDS)


def session(base: str) -> Mapping[str, str]:
    """Begin a session of 2025-11-25; return the headers of its requests."""
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    begun = spoken(base, "POST", "/mcp", request("initialize", 0, params), headers)
    headers["mcp-session-id"] = begun.headers["mcp-session-id"]
    spoken(base, "POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
    return headers


def request(method: str, number: int, params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def polled(base: str, tool: str = "slow") -> tuple[str, str]:
    """Call the tool and resume its stream; return both responses."""
    headers = session(base)
    params = {"name": tool, "arguments": {}, "_meta": {"progressToken": "p"}}
    first = spoken(base, "POST", "/mcp", request("tools/call", 1, params), headers)
    (event, *_) = re.findall(r"^id: (.+?)\r?$", first.text, flags=re.MULTILINE) or [""]
    second = spoken(base, "GET", "/mcp", None, {**headers, "last-event-id": event}) if event else None
    return first.text, "" if second is None else second.text


@pytest.mark.slow
def test_a_served_tool_is_polled_with_an_event_store(tmp_path: Path) -> None:
    with served(tmp_path, *KEEPS) as base:
        first, second = polled(base)

    assert "retry: 250" in first
    assert '"resumed"' not in first
    assert '"resumed"' in second


@pytest.mark.slow
def test_without_an_event_store_a_stream_stays_until_its_response(tmp_path: Path) -> None:
    with served(tmp_path) as base:
        first, second = polled(base)

    assert "retry:" not in first
    assert '"resumed"' in first
    assert second == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "options", "retry"),
    [
        ({}, KEEPS, 250),
        ({}, ("--event-store", "memory"), 1000),
        ({"event_store": "memory"}, (), 1000),
        ({"event_store": "memory", "retry_seconds": 0.5}, (), 500),
        ({"event_store": "memory", "retry_seconds": 0.5}, ("--retry-seconds", "0.25"), 250),
        ({}, ("--workers", "2"), 1000),
        ({"retry_seconds": 0.5}, ("--workers", "2"), 500),
    ],
)
def test_a_stream_of_a_gateway_is_resumed(
    tmp_path: Path, section: Mapping[str, Any], options: tuple[str, ...], retry: int
) -> None:
    with served(tmp_path, *KEEPS) as upstream:
        entry = {"type": "http", "url": f"{upstream}/mcp", "tool_prefix": ""}
        config = write_gateway_config(tmp_path, {"up": entry}, section)
        with gateway(tmp_path, config, *options) as running:
            first, second = polled(running.base)

    assert f"retry: {retry}" in first
    assert '"resumed"' in second  # it follows the first event, whichever response it was sent in before


@pytest.mark.parametrize(
    ("options", "section", "reason"),
    [
        (("--event-store", "memory"), {}, "--event-store goes with --http"),
        (("--retry-seconds", "2"), {}, "--retry-seconds goes with --http"),
        (("--http", "0", "--event-store", "memory", "--stateless"), {}, "--event-store does not go with --stateless"),
        (("--http", "0", "--event-store", "memory", "--workers", "2"), {}, "--event-store is for one process"),
        (("--http", "0", "--event-store", "disk"), {}, "expected memory, got 'disk'"),
        (("--http", "0"), {"event_store": "memry"}, "'gateway.event_store'"),
        (("--http", "0"), {"retry_seconds": 0}, "'gateway.retry_seconds' must be more than 0 seconds"),
        (("--http", "0", "--stateless"), {"event_store": "memory"}, "a stateless app has no sessions"),
        (("--http", "0", "--workers", "2"), {"event_store": "memory"}, "'gateway.event_store' is for one process"),
    ],
)
def test_settings_of_an_event_store_that_contradict_others_are_refused(
    tmp_path: Path, options: tuple[str, ...], section: Mapping[str, Any], reason: str
) -> None:
    config = write_gateway_config(tmp_path, {"a": {"command": "toolweave-test-no-such-command"}}, section)

    refused = toolweave("gateway", "--config", str(config), *options)

    assert refused.code == 2
    assert reason in refused.err
