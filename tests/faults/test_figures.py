"""The counted targets: malformed tools, Retry-After, causes, isolation, lost connections, storms, bombs and bulk."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

from tests.programs import ran
from tests.servers.fixtures import echo_command
from toolweave import CallContext, McpConnection, ToolCall, ToolResult, connect_mcp, connect_mcp_servers
from toolweave.testing.servers import http_fault_server, stdio_fault_command

MODERN = ("--version", "2026-07-28")
ERAS = [("--version", "2025-11-25"), MODERN]
BOUND = 120.0

MALFORMED = [
    *("schema_true", "schema_null", "schema_missing", "schema_of_text", "schema_deep", "non_object_schema"),
    *("invalid_schema", "tool_without_name", "tool_not_object", "duplicate_tool_names", "bad_annotations"),
]
STATUSES = ["400", "403", "404", "405", "409", "415", "500", "502", "504"]
WORDS = {"exits_at_once": "fatal: no API key", "dies_mid_call": "segmentation fault, on purpose"}
ISOLATION = [
    *("bogus_version", "cursor_loop", "dies_after_initialize", "dies_at_initialize", "duplicate_tool_names"),
    *("endless_cursor", "exits_at_once", "garbage_stdout", "hang_initialize", "hang_list", "ignores_sigterm"),
    *("invalid_schema", "list_error", "never_answers", "refuses_initialize", "schema_deep", "schema_null"),
    *("schema_true", "stderr_flood", "tool_not_object", "tools_missing", "tools_not_list", "tools_null"),
]


async def echoed(connection: McpConnection, text: str) -> ToolResult:
    """Call `echo`; faults come back as results."""
    return await connection.call(ToolCall(name="echo", arguments={"text": text}), CallContext())


@pytest.mark.requirement("R68", "D12")
@pytest.mark.parametrize("era", ERAS, ids=" ".join)
@pytest.mark.parametrize("mode", MALFORMED)
async def test_a_healthy_tool_is_usable_beside_a_malformed_one(mode: str, era: tuple[str, str]) -> None:
    assert len(MALFORMED) == 11
    async with connect_mcp(stdio_fault_command(mode, *era)) as connection:
        assert {"echo", "add"} <= {tool.name for tool in await connection.list_tools()}
        assert (await echoed(connection, "fine")).text == "fine"


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS, ids=" ".join)
@pytest.mark.parametrize("mode", ["status_429", "status_503", "status_503_until_date"])
async def test_a_server_that_says_when_to_come_back_is_asked_again_then(mode: str, era: tuple[str, str]) -> None:
    options = [*era, "--on", "tools/call", "--times", "1", "--retry-after", "1"]
    with http_fault_server(mode, *options) as url, anyio.fail_after(BOUND):
        async with connect_mcp(url) as connection:
            assert (await echoed(connection, "patient")).text == "patient"


@pytest.mark.requirement("R59", "D14")
@pytest.mark.parametrize("era", ERAS, ids=" ".join)
@pytest.mark.parametrize("status", STATUSES)
async def test_an_error_names_the_status(status: str, era: tuple[str, str]) -> None:
    assert len(STATUSES) + len(WORDS) == 11
    with http_fault_server(f"status_{status}", *era, "--on", "tools/call") as url, anyio.fail_after(BOUND):
        async with connect_mcp(url, name="odd", timeout=10) as connection:
            result = await echoed(connection, "x")
    assert result.is_error
    assert result.text.startswith("MCP error: server 'odd': ")
    assert f"HTTP {status}" in result.text


@pytest.mark.requirement("R59", "D14")
@pytest.mark.parametrize("era", ERAS, ids=" ".join)
@pytest.mark.parametrize("mode", WORDS)
async def test_an_error_names_the_last_words_of_a_process(mode: str, era: tuple[str, str]) -> None:
    said = ""
    try:
        async with connect_mcp(stdio_fault_command(mode, *era), name="odd", restart="never") as connection:
            said = (await echoed(connection, "x")).text
    except Exception as exc:
        said = str(exc)
    assert "server 'odd'" in said
    assert "exit code" in said
    assert WORDS[mode] in said


@pytest.mark.slow
@pytest.mark.requirement("R60", "R64", "C3")
@pytest.mark.parametrize("era", ERAS, ids=" ".join)
async def test_twenty_three_bad_servers_leave_the_two_between_them_usable(era: tuple[str, str]) -> None:
    assert len(set(ISOLATION)) == 23
    commands = {"first": echo_command(), **{mode: stdio_fault_command(mode, *era) for mode in ISOLATION}}
    commands["last"] = echo_command()
    bounds = {"connect": 5, "probe": 1, "list": 2, "call": 5, "close": 1}
    servers: dict[str, Any] = {
        name: {"command": command[0], "args": command[1:], "timeout": bounds} for name, command in commands.items()
    }
    with anyio.fail_after(BOUND):
        async with connect_mcp_servers({"mcpServers": servers}) as hub:
            assert {"first_echo", "first_add", "last_echo", "last_add"} <= {tool.name for tool in hub.tools}
            for name in ("first", "last"):
                assert (await hub.execute(f"{name}_echo", {"text": name})).text == name


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS, ids=" ".join)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_twenty_thousand_notifications_before_an_answer_cost_only_their_time(
    transport: str, era: tuple[str, str]
) -> None:
    with ExitStack() as stack, anyio.fail_after(BOUND):
        http = transport == "http"
        target = (
            stack.enter_context(http_fault_server("notification_storm", *era))
            if http
            else stdio_fault_command("notification_storm", *era)
        )
        async with connect_mcp(target) as connection:
            heard = 0

            def hear(notification: tuple[str, object]) -> None:
                nonlocal heard
                heard += notification[0] == "notifications/message"

            connection.on("notification", hear)
            assert (await echoed(connection, "calm")).text == "calm"
    assert heard == 20_000


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_result_of_fifty_megabytes_arrives_whole(transport: str) -> None:
    with ExitStack() as stack, anyio.fail_after(BOUND):
        target = (
            stack.enter_context(http_fault_server("huge_body", *MODERN, "--on", "tools/call"))
            if transport == "http"
            else stdio_fault_command("huge_line", *MODERN)
        )
        async with connect_mcp(target) as connection:
            text = (await echoed(connection, "x")).text
    assert len(text) == 50_000_000
    assert text.strip("x") == ""


BOMB = """
import anyio, json, resource, sys
from toolweave import connect_mcp

async def main(url):
    async with connect_mcp(url, timeout={"call": 60}) as connection:
        await connection.refresh()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            said = (await connection.call_tool("echo", {"text": "boom"})).text
        except Exception as exc:
            said = f"{type(exc).__name__}: {exc}"
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        grown //= 1024 if sys.platform == "linux" else 2**20
        after = (await connection.call_tool("echo", {"text": "alive"})).text
    print(json.dumps({"said": said[:300], "grown": grown, "after": after}))

anyio.run(main, sys.argv[1])
"""


@pytest.mark.slow
def test_a_bomb_of_a_gigabyte_is_refused_and_takes_no_memory() -> None:
    with http_fault_server("gzip_bomb", *MODERN, "--on", "tools/call", "--times", "1") as url:
        done = ran([sys.executable, "-c", BOMB, url], seconds=BOUND, check=True)
    seen = json.loads(done.stdout)
    assert seen["said"].startswith("ProtocolError")
    assert seen["grown"] < 50
    assert seen["after"] == "alive"
