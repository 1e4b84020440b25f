"""Every way a server can misbehave, between two healthy servers: those must not notice."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import anyio.to_thread
import pytest

from tests.hub.fleet import BOUND, echo, fault, next_change, opened
from tests.servers.fixtures import http_server
from toolweave import CallContext, Hub, ToolResult, connect_mcp_servers
from toolweave.testing.servers import HTTP_FAULTS, STDIO_FAULTS

pytestmark = pytest.mark.slow

NEVER_UP = {
    *("bogus_version", "dies_after_initialize", "dies_at_initialize", "exits_at_once", "hang_initialize"),
    *("never_answers", "refuses_initialize"),
}
MODES = sorted(
    NEVER_UP
    | {"ansi_and_bidi", "bom", "cursor_loop", "dies_mid_call", "duplicate_tool_names", "endless_cursor"}
    | {"garbage_stdout", "hang_call", "hang_list", "huge_line", "ignores_sigterm", "list_changed_storm", "list_error"}
    | {"non_object_schema", "notification_storm", "partial_line_then_hang", "schema_deep", "stderr_flood"}
    | {"stdout_flood", "tool_not_object", "tool_without_name", "tools_not_list", "wrong_id"}
)
"""One of each kind; `tests/faults` plays all of them beside two healthy servers."""
SIZES = {"huge_line": 1_000_000, "stderr_flood": 400_000, "stdout_flood": 400_000}
HTTP_MODES = sorted(
    {"accepted_202", "bad_json", "broken_sse", "dropped_sse", "empty_answer", "gone_session", "hang_body"}
    | {"hang_headers", "hang_sse", "html_answer", "redirect_other_host", "redirect_same_origin", "reset_at_once"}
    | {"reset_mid_body", "status_401", "status_403", "status_404", "status_405", "status_429", "status_500"}
    | {"status_503", "truncated_body", "wrong_content_type"}
)
LESS_THAN_ANY_DEADLINE = 25.0
"""Seconds; by default a connection may take 30 s to be made or to list its tools, and a call 120 s."""
TIMEOUT = {"connect": 5, "probe": 0.3, "list": 0.5, "call": 0.5, "close": 0.2}


def entry_of(mode: str) -> dict[str, object]:
    """Return the entry of a misbehaving server, with short deadlines."""
    patience = TIMEOUT | ({"connect": 0.7} if mode in {"hang_initialize", "never_answers"} else {})
    return fault(mode, "--seconds", "0.2", "--size", str(SIZES.get(mode, 0)), timeout=patience)


def test_the_modes_exist() -> None:
    assert set(MODES) <= STDIO_FAULTS.keys()
    assert set(HTTP_MODES) <= HTTP_FAULTS.keys()


@pytest.mark.requirement("R60", "R64", "R66", "C3", "D21")
@pytest.mark.parametrize("modes", [MODES[start::8] for start in range(8)], ids=" ".join)
async def test_the_healthy_are_usable_beside(modes: list[str]) -> None:
    async with opened({"before": echo(), **{mode: entry_of(mode) for mode in modes}, "after": echo()}) as hub:
        assert await answers(hub, "before", "after")
        assert set(hub.clients) == {"before", *modes, "after"} - NEVER_UP
        assert set(hub.errors) >= NEVER_UP.intersection(modes)
        results = await called_at_once(hub, "before_echo", *(f"{mode}_echo" for mode in modes), "after_echo")
        assert results["before_echo"].text == results["after_echo"].text == "hello"
        assert await answers(hub, "before", "after")


@pytest.mark.requirement("R60", "R64", "R66", "C3", "D21")
async def test_with_default_settings_the_healthy_are_usable_beside_all_of_them_at_once() -> None:
    odd = {mode: fault(mode, "--size", SIZES.get(mode, 0)) for mode in MODES}
    assert len(odd) >= 23

    async with AsyncExitStack() as stack:
        with anyio.fail_after(LESS_THAN_ANY_DEADLINE):  # so none of the hub's own is what ends a wait
            hub = await connect_mcp_servers({"mcpServers": {"before": echo(), **odd, "after": echo()}})
            stack.push_async_callback(hub.close)
            assert await answers(hub, "before", "after")
            async with anyio.create_task_group() as tasks:
                for mode in set(hub.clients).intersection(MODES):  # of which some never answer
                    tasks.start_soon(hub.execute, f"{mode}_echo", {"text": "hello"})
                assert await answers(hub, "before", "after")
                tasks.cancel_scope.cancel()
            assert await answers(hub, "before", "after")


@pytest.mark.requirement("R60", "R64", "R66", "C3")
@pytest.mark.parametrize("on", ["initialize", "tools/list", "tools/call"])
async def test_the_healthy_are_usable_beside_every_fault_of_http(on: str) -> None:
    async with AsyncExitStack() as stack:
        urls: dict[str, str] = {}

        async def start(mode: str) -> None:
            server = http_server("--mode", mode, "--on", on, "--answers", "auto")
            urls[mode] = await anyio.to_thread.run_sync(server.__enter__)
            stack.push(server.__exit__)

        async with anyio.create_task_group() as tasks:
            for mode in HTTP_MODES:
                tasks.start_soon(start, mode)
        odd = {mode: {"url": url, "timeout": TIMEOUT} for mode, url in urls.items()}
        async with opened({"before": echo(), **odd, "after": echo()}) as hub:
            assert set(hub.states()) == {"before", *HTTP_MODES, "after"}
            assert await answers(hub, "before", "after")
            results = await called_at_once(hub, "before_echo", *(f"{mode}_echo" for mode in HTTP_MODES), "after_echo")
            assert [name for name, result in results.items() if not result.is_error][:1] == ["before_echo"]
            assert results["after_echo"].text == "hello"


@pytest.mark.requirement("R24", "R60", "R66")
async def test_a_server_that_dies_for_good_keeps_its_tools_and_gives_the_exact_cause() -> None:
    async with opened({"a": echo(), "b": echo(restart="never")}) as hub:
        crashed = await hub.execute("b_crash")
        after = await hub.execute("b_echo", {"text": "?"})
        assert "b_echo" in hub.tools
        assert "server 'b'" in str(hub.errors["b"])
        assert await answers(hub, "a")
    for result in (crashed, after):
        assert result.text.startswith("MCP error: server 'b'")
        assert "exit code 7" in result.text
        assert "fatal: crashed on purpose" in result.text


async def test_a_server_that_dies_comes_back_and_the_hub_follows() -> None:
    async with opened({"a": echo(), "b": echo()}) as hub:
        await hub.execute("b_grow")
        if "b_grown_1" not in hub.tools:
            async with next_change(hub, adds="b_grown_1"):
                pass
        assert (await hub.execute("b_crash")).is_error
        assert (await hub.execute("b_echo", {"text": "back"})).text == "back"
        assert hub.clients["b"].restarts == 1
        assert not hub.errors
        assert "b_grown_1" not in hub.tools  # the new process never grew it
        assert await answers(hub, "a", "b")


async def answers(hub: Hub, *servers: str) -> bool:
    """Return whether these servers answer a call."""
    results = await called_at_once(hub, *(f"{server}_echo" for server in servers))
    return all(result.text == "hello" for result in results.values())


async def called_at_once(hub: Hub, *names: str) -> dict[str, ToolResult]:
    """Call several tools concurrently, each within a bound, with the argument of `echo`."""
    results: dict[str, ToolResult] = {}

    async def one(name: str) -> None:
        results[name] = await hub.execute(name, {"text": "hello"}, CallContext())

    with anyio.fail_after(BOUND):
        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(one, name)
    return {name: results[name] for name in names}


@pytest.fixture(autouse=True)
def _no_log_storm(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR")  # floods fill the report of a failing test
