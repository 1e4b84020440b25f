"""How long a server may take to start: as long as it shows life, within a bound, and no longer than it is silent."""

from __future__ import annotations

import sys

import anyio
import pytest

from tests.connect.targets import MODERN, connected
from tests.hub.fleet import opened
from tests.servers.fixtures import echo_command, fault_command, http_server
from toolweave import RequestTimeoutError, connect_mcp
from toolweave.connect import ConnectionState

pytestmark = pytest.mark.slow

LEGACY = "2025-11-25"
BUSY = "end = time.process_time() + 2.0\nwhile time.process_time() < end: pass"
TALKATIVE = "for _ in range(18): print('.', file=sys.stderr, flush=True); time.sleep(0.1)"
ENDLESS = [sys.executable, "-S", "-E", "-c", "while True: pass"]


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> float:
    """The default bound of silence, shortened; return it in seconds."""
    monkeypatch.setattr("toolweave.config._model._CONNECT_SILENCE_SECONDS", 1.0)
    return 1.0


@pytest.mark.parametrize(("how", "version"), [(BUSY, MODERN), (TALKATIVE, LEGACY)], ids=["busy", "talkative"])
@pytest.mark.usefixtures("silence")
async def test_a_server_that_shows_life_may_start_for_longer_than_the_bound_of_silence(how: str, version: str) -> None:
    program = f"import os, sys, time\n{how}\nos.execv(sys.argv[1], sys.argv[1:])"
    slow = [sys.executable, "-S", "-E", "-c", program, *echo_command("--version", version)]
    async with connected(slow) as connection:
        assert connection.protocol_version == version
        assert (await connection.call_tool("echo", {"text": "late"})).text == "late"
        assert connection.report.seconds > 1.5


async def test_a_server_that_shows_no_life_is_given_up_and_the_error_says_so(silence: float) -> None:
    with anyio.fail_after(20), pytest.raises(RequestTimeoutError) as late:
        await connect_mcp(fault_command("never_answers"), name="mute")
    assert late.value.seconds == silence
    assert str(late.value) == (
        "server 'mute': it showed no sign of life for 1 s; set timeout.connect if it is only slow"
    )


async def test_however_much_life_it_shows_a_server_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.config._model._CONNECT_SECONDS", 1.5)
    with anyio.fail_after(20), pytest.raises(RequestTimeoutError, match=r"connecting within 1\.5 s; set"):
        await connect_mcp(ENDLESS)


@pytest.mark.usefixtures("silence")
async def test_a_bound_that_is_set_is_exact_whatever_life_is_shown() -> None:
    with anyio.fail_after(20), pytest.raises(RequestTimeoutError, match=r"within 0.4 s; raise timeout.connect") as late:
        await connect_mcp(ENDLESS, timeout={"connect": 0.4})
    assert late.value.seconds == 0.4


@pytest.mark.usefixtures("silence")
async def test_a_call_waits_for_its_server_for_as_long_as_that_shows_life() -> None:
    program = f"import os, sys, time\n{BUSY}\nos.execv(sys.argv[1], sys.argv[1:])"
    slow = [sys.executable, "-S", "-E", "-c", program, *echo_command()]
    bounds = {"close": 0.05, "list": 0.75}  # the least that a call waits is 1.8 s
    with anyio.fail_after(20):
        async with connect_mcp(slow, lazy=True, timeout=bounds) as connection:
            assert (await connection.call_tool("echo", {"text": "late"})).text == "late"


@pytest.mark.usefixtures("silence")
async def test_bytes_of_an_answer_over_http_are_a_sign_of_life() -> None:
    options = ("--mode", "drip_body", "--on", "initialize", "--times", 1, "--seconds", 0.004, "--version", LEGACY)
    with http_server(*options) as url:
        async with connected({"url": url}) as connection:
            assert connection.protocol_version == LEGACY
            assert connection.report.seconds > 1.1


@pytest.mark.usefixtures("silence")
async def test_half_an_answer_over_http_that_stays_half_is_given_up() -> None:
    with (
        http_server("--mode", "hang_body", "--on", "server/discover", "--version", MODERN) as url,
        anyio.fail_after(20),
        pytest.raises(RequestTimeoutError, match="it showed no sign of life for 1 s"),
    ):
        await connect_mcp({"url": url})


async def test_a_hub_waits_for_an_answer_that_arrives_slowly_over_http() -> None:
    options = ("--mode", "drip_body", "--on", "initialize", "--times", 1, "--seconds", 0.004, "--version", LEGACY)
    with http_server(*options) as url:
        async with opened({"slow": {"url": url}}, patience=0.75) as hub:
            assert hub.states() == {"slow": ConnectionState.READY}
            assert hub.clients["slow"].report.seconds > 1.1
