"""Every way a server can misbehave, between two healthy servers: those must not notice."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack

import anyio
import anyio.to_thread
import pytest

from tests.hub.fleet import BOUND, echo, fault, next_change, opened
from tests.servers.fixtures import SERVERS, http_server
from toolweave import CallContext, Hub, ToolResult

pytestmark = pytest.mark.anyio

MODES = sorted(
    name
    for module in ("fault_answers", "fault_life", "fault_lists")
    for name in re.findall(r"^@mode\ndef (\w+)", (SERVERS / f"{module}.py").read_text(), re.MULTILINE)
)
NEVER_UP = {
    "bogus_version",
    "dies_after_initialize",
    "dies_at_initialize",
    "exits_at_once",
    "hang_initialize",
    "never_answers",
    "refuses_initialize",
}
SIZES = {"huge_line": 1_000_000, "stderr_flood": 400_000, "stdout_flood": 400_000}
HTTP_MODES = re.findall(r"^@fault\nasync def (\w+)", (SERVERS / "http_faults.py").read_text(), re.MULTILINE)
TIMEOUT = {"connect": 5, "probe": 0.3, "list": 0.5, "call": 0.5, "close": 0.2}


def entry_of(mode: str) -> dict[str, object]:
    """Return the entry of a misbehaving server, with short deadlines."""
    patience = TIMEOUT | ({"connect": 0.7} if mode in {"hang_initialize", "never_answers"} else {})
    return fault(mode, "--seconds", "0.2", "--size", str(SIZES.get(mode, 0)), timeout=patience)


def test_the_modes_were_found() -> None:
    assert len(MODES) > 45
    assert len(HTTP_MODES) > 20
    assert set(MODES) >= NEVER_UP | SIZES.keys()


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
