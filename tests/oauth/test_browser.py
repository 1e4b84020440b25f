"""The person who signs in: what reaches the listener for the redirect, what opens a browser, what is shown."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from toolweave.errors import AuthRequiredError
from toolweave.oauth import AuthorizationResponse, BrowserUserAgent, DevicePrompt, RedirectListener
from toolweave.oauth._browser import can_open_browser, plain_url

PAGE = "https://as.example/authorize?client_id=a&state=right"


async def knock(
    uri: str,
    query: str = "",
    *,
    path: str | None = None,
    method: str = "GET",
    host: str | None = None,
    raw: bytes | None = None,
) -> str:
    """Send one request to a listener and return the whole answer."""
    parts = urlsplit(uri)
    head = f"{method} {path or parts.path}{query} HTTP/1.1\r\nHost: {host or parts.netloc}\r\n\r\n"
    async with await anyio.connect_tcp(parts.hostname or "", parts.port or 0) as stream:
        await stream.send(raw or head.encode())
        answer = b""
        try:
            while True:
                answer += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return answer.decode()


class Waiting:
    """A sign-in that waits for its redirect."""

    def __init__(self, listener: RedirectListener) -> None:
        self.uri = listener.redirect_uri
        self.response: AuthorizationResponse | None = None


@asynccontextmanager
async def signing_in(agent: BrowserUserAgent | None = None, *, state: str = "right") -> AsyncGenerator[Waiting]:
    """Begin a sign-in; it is over at the end of the block, else the test fails."""
    agent = agent or BrowserUserAgent(browser=False, show=lambda _: None)
    with anyio.fail_after(30):
        async with agent.listener(server="api", seconds=30) as listener:
            waiting = Waiting(listener)

            async def wait() -> None:
                waiting.response = await listener.response(PAGE, state=state)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                yield waiting


async def test_the_redirect_with_the_right_state_is_the_answer() -> None:
    async with signing_in() as waiting:
        answer = await knock(waiting.uri, "?code=c%2F1&state=right&iss=https%3A%2F%2Fas.example&session_state=x")

    assert answer.startswith("HTTP/1.1 200 OK\r\n")
    assert waiting.response == AuthorizationResponse(code="c/1", state="right", issuer="https://as.example")


async def test_a_refusal_is_an_answer_and_none_of_it_is_on_the_page() -> None:
    async with signing_in() as waiting:
        query = "?error=access_denied&error_description=%3Cscript%3Ealert(1)%3C/script%3E&state=right"
        answer = await knock(waiting.uri, query)

    assert waiting.response is not None
    assert (waiting.response.error, waiting.response.code) == ("access_denied", None)
    assert "refused" in answer
    assert "script" not in answer


async def test_the_page_is_kept_by_nobody_and_runs_nothing() -> None:
    async with signing_in() as waiting:
        answer = (await knock(waiting.uri, "?code=c&state=right")).lower()

    assert "cache-control: no-store" in answer
    assert "referrer-policy: no-referrer" in answer
    assert "content-security-policy: default-src 'none'; style-src 'sha256-" in answer  # the one style of the page
    assert "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n" in answer


STRANGERS: Mapping[str, tuple[str, Callable[[str], Awaitable[str]]]] = {
    "another state": ("400", lambda uri: knock(uri, "?code=stolen&state=wrong")),
    "no state": ("400", lambda uri: knock(uri, "?code=stolen")),
    "a state beyond ASCII": ("400", lambda uri: knock(uri, "?code=stolen&state=%C3%BC")),
    "neither code nor error": ("400", lambda uri: knock(uri, "?state=right")),
    "both": ("400", lambda uri: knock(uri, "?code=stolen&error=x&state=right")),
    "a code twice": ("400", lambda uri: knock(uri, "?code=stolen&code=other&state=right")),
    "too many parameters": ("400", lambda uri: knock(uri, "?code=stolen&state=right" + "&a=" * 30)),
    "another path": ("404", lambda uri: knock(uri, "?code=stolen&state=right", path="/favicon.ico")),
    "another method": ("405", lambda uri: knock(uri, "?code=stolen&state=right", method="POST")),
    "another host": ("421", lambda uri: knock(uri, "?code=stolen&state=right", host="evil.example")),
    "localhost": ("421", lambda uri: knock(uri, "?code=s&state=right", host=f"localhost:{urlsplit(uri).port}")),
    "two hosts": (
        "421",
        lambda uri: knock(
            uri,
            raw=f"GET /callback?code=s&state=right HTTP/1.1\r\nHost: {uri[7:-9]}\r\nHost: x\r\n\r\n".encode(),
        ),
    ),
    "no HTTP": ("400", lambda uri: knock(uri, raw=b"\x16\x03\x01\x00\xa5\r\n\r\n")),
    "an endless head": ("431", lambda uri: knock(uri, raw=b"GET /callback HTTP/1.1\r\n" + b"A: b\r\n" * 5_000)),
}


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_a_stranger_is_refused_and_the_sign_in_goes_on(stranger: str) -> None:
    status, visit = STRANGERS[stranger]
    async with signing_in() as waiting:
        answer = await visit(waiting.uri)
        assert answer.startswith(f"HTTP/1.1 {status} ")
        assert "stolen" not in answer
        assert waiting.response is None
        await knock(waiting.uri, "?code=mine&state=right")

    assert waiting.response is not None
    assert waiting.response.code == "mine"


async def test_strangers_that_say_nothing_keep_nobody_out() -> None:
    async with signing_in() as waiting:
        parts = urlsplit(waiting.uri)
        silent = [await anyio.connect_tcp(parts.hostname or "", parts.port or 0) for _ in range(10)]
        await knock(waiting.uri, "?code=mine&state=right")
        for stream in silent:
            await stream.aclose()

    assert waiting.response is not None


async def test_the_listener_hangs_up_on_more_strangers_at_once_than_it_bears() -> None:
    async with signing_in() as waiting:
        parts = urlsplit(waiting.uri)
        async with AsyncExitStack() as strangers:
            for _ in range(16):
                stranger = await anyio.connect_tcp(parts.hostname or "", parts.port or 0)
                await strangers.enter_async_context(stranger)
            assert await knock(waiting.uri, "?code=c&state=wrong") == ""
        while not (await knock(waiting.uri, "?code=c&state=right")).startswith("HTTP/1.1 200 "):
            await anyio.sleep(0.01)  # the strangers' leaving has to be noticed

    assert waiting.response is not None


async def test_the_listener_is_there_for_one_redirect_only() -> None:
    async with signing_in() as waiting:
        await knock(waiting.uri, "?code=first&state=right")

    with pytest.raises(OSError, match=r".*"):
        await knock(waiting.uri, "?code=second&state=right")
    assert waiting.response is not None
    assert waiting.response.code == "first"


async def test_it_listens_on_this_machine_alone_on_a_port_of_its_own() -> None:
    agent = BrowserUserAgent(browser=False, show=lambda _: None)
    async with agent.listener(server="api", seconds=5) as one, agent.listener(server="api", seconds=5) as other:
        for listener in (one, other):
            assert listener.redirect_uri.startswith("http://127.0.0.1:")
        assert one.redirect_uri != other.redirect_uri


async def test_a_port_that_is_asked_for_is_taken_and_one_in_use_is_an_error() -> None:
    agent = BrowserUserAgent(browser=False, show=lambda _: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=r".*"):
            async with agent.listener(server="api", seconds=5, port=port):
                pytest.fail("it is taken")
    async with agent.listener(server="api", seconds=5, port=port) as listener:
        assert urlsplit(listener.redirect_uri).port == port


async def test_nobody_who_comes_back_in_time_is_an_error() -> None:
    agent = BrowserUserAgent(browser=False, show=lambda _: None)
    async with agent.listener(server="api", seconds=0.05) as listener:
        with pytest.raises(AuthRequiredError, match="server 'api': the sign-in was not completed in time"):
            await listener.response(PAGE, state="right")


async def test_the_address_is_shown_and_can_be_pasted_back() -> None:
    said: list[str] = []
    send, receive = anyio.create_memory_object_stream[str | None](10)
    agent = BrowserUserAgent(browser=False, show=said.append, read_line=receive.receive)
    with send, receive:
        async with signing_in(agent) as waiting:
            for line in ("", "what?", f"{waiting.uri}?code=mine&state=wrong", "http://evil.example/callback?code=x"):
                await send.send(line)
            await send.send(f"  {waiting.uri}?code=mine&state=right\n")

    assert f"\n  {PAGE}\n" in said[0]
    assert "paste the address" in said[0]
    assert len([text for text in said if "not the address of this sign-in" in text]) == 3
    assert waiting.response is not None
    assert waiting.response.code == "mine"


async def test_the_redirect_counts_also_when_nothing_can_be_typed_any_more() -> None:
    async def nothing() -> None:
        return None

    async with signing_in(BrowserUserAgent(browser=False, show=lambda _: None, read_line=nothing)) as waiting:
        await knock(waiting.uri, "?code=mine&state=right")

    assert waiting.response is not None


async def test_the_browser_is_given_the_address_without_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$#" "$1" > {opened}\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    agent = BrowserUserAgent(show=lambda _: None)
    url = "https://as.example/a b?x=$(touch /tmp/no)`id`;id|id&calc='\"<>\\&y=ü%20#fragment"
    async with anyio.create_task_group() as tasks, agent.listener(server="api", seconds=30) as listener:
        tasks.start_soon(_wait_for, listener, url)
        while not opened.exists() or not opened.read_text().endswith("\n"):
            await anyio.sleep(0.01)
        await knock(listener.redirect_uri, "?code=c&state=right")

    given = "https://as.example/a%20b?x=%24%28touch%20/tmp/no%29%60id%60%3Bid%7Cid&calc=%27%22%3C%3E%5C&y=%C3%BC%20"
    assert opened.read_text().splitlines() == ["1", given]


async def _wait_for(listener: RedirectListener, url: str) -> None:
    await listener.response(url, state="right")


async def test_a_browser_that_cannot_be_opened_leaves_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "/no/such/browser %s")
    said: list[str] = []
    async with signing_in(BrowserUserAgent(show=said.append)) as waiting:
        await knock(waiting.uri, "?code=c&state=right")

    assert PAGE in said[0]


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "https://",
        "https://user:password@as.example/",
        "-e https://as.example",
        "https://as.example:99999/",
        "https://as.example\\@evil.example/",
        "https://as.example\\.evil.example/",
        "https://as.ex\u200bample/",
        "https://[::1/",
        "",
    ],
)
async def test_a_page_that_is_no_web_page_is_never_opened(url: str) -> None:
    said: list[str] = []
    agent = BrowserUserAgent(browser=True, show=said.append)
    async with agent.listener(server="api", seconds=30) as listener:
        with pytest.raises(AuthRequiredError, match="server 'api': its authorization server names a page"):
            await listener.response(url, state="right")
    with pytest.raises(AuthRequiredError, match="names a page to sign in that is not a web page"):
        await agent.show_device_code(DevicePrompt(user_code="A", verification_uri=url), server="api")

    assert said == []


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://as.example", "https://as.example"),
        ("https://as.example:8443/a?b=c&d=e%2Ff+g", "https://as.example:8443/a?b=c&d=e%2Ff+g"),
        ("http://[::1]:80/~a", "http://[::1]:80/~a"),
        ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("https://as.example/\x1b[2J\u202e", "https://as.example/%1B%5B2J%E2%80%AE"),
    ],
)
def test_an_address_is_shown_in_plain_letters(url: str, plain: str) -> None:
    assert plain_url(url) == plain


@pytest.mark.parametrize(
    ("environment", "opens"),
    [
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "1 2 3 4"}, False),
        ({"DISPLAY": ":0", "TOOLWEAVE_NO_BROWSER": "1"}, False),
        ({"BROWSER": "firefox"}, True),
        ({"BROWSER": "firefox", "TOOLWEAVE_NO_BROWSER": "1"}, False),
    ],
)
def test_a_browser_is_opened_where_a_person_would_see_it(environment: dict[str, str], opens: bool) -> None:
    assert can_open_browser(environment) is opens


async def test_a_device_code_is_shown_with_its_page_and_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prompt = DevicePrompt(
        user_code="WDJB-MJHT\x1b[31m\n" + "X" * 1_000,
        verification_uri="https://as.example/device",
        verification_uri_complete="https://as.example/device?user_code=WDJB-MJHT",
        expires_in=60,
    )
    await BrowserUserAgent().show_device_code(prompt, server="a\x07pi")
    said = capsys.readouterr().err

    assert "https://as.example/device?user_code=WDJB-MJHT" in said
    assert "its code is: WDJB-MJHT\\x1b[31m XXX" in said
    assert len(said) < 500
    assert not {"\x1b", "\x07"} & set(said)


def test_nothing_of_the_environment_is_read_when_the_module_is_loaded() -> None:
    assert can_open_browser() is can_open_browser(dict(os.environ))
