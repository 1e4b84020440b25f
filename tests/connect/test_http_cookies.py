"""Cookies of an HTTP server, such as those by which a balancer knows a session's replica again."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.connect.scripted import DONE, Exchange, HttpScript, answers_to, legacy_answer, listening, modern_answer
from tests.connect.targets import Json, connected, initialized
from toolweave.connect._wire.endpoint import Cookies

URL = "https://api.example.com/mcp/v1"


def sent_after(*cookies: str, url: str = URL, to: str | None = None, now: float = 0, later: float = 0) -> str:
    jar = Cookies()
    jar.store(url, cookies, now=now)
    return jar.header(to or url, now=later)


async def test_a_cookie_is_sent_back_with_every_later_request_of_the_connection_and_with_no_other() -> None:
    @answers_to("initialize")
    async def special(exchange: Exchange, message: Json) -> None:
        answer = initialized(legacy_answer)(message)
        assert answer is not None
        value = {"jsonrpc": "2.0", "id": message["id"], **answer}
        await exchange.respond_json(200, value, mcp_session_id="s-1", set_cookie="replica=r%2F1; Path=/; HttpOnly")

    server = HttpScript(initialized(legacy_answer), special)
    async with listening(server.handle) as (url, _):
        for _ in range(2):
            server.exchanges.clear()
            async with connected({"url": url, "protocol": "legacy"}) as connection:
                await connection.call_tool("t")
                await connection.call_tool("t")
            first, *later = [exchange.headers.get("cookie") for exchange in server.exchanges]
            assert first is None
            assert len(later) >= 4
            assert set(later) == {"replica=r%2F1"}


async def test_cookies_come_beside_those_of_the_config_on_redirects_too_and_can_be_taken_back() -> None:
    calls = 0

    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await exchange.respond(307, location="/moved", set_cookie="a=1")
            return
        gone = {"set_cookie": "a=1; Max-Age=0"} if calls == 3 else {}
        await exchange.respond_json(200, {"jsonrpc": "2.0", "id": message["id"], "result": DONE}, **gone)

    server = HttpScript(modern_answer, special)
    async with (
        listening(server.handle) as (url, _),
        connected({"url": url, "headers": {"Cookie": "own=2"}}) as connection,
    ):
        for _ in range(3):
            assert (await connection.call_tool("t")).text == "done"
    sent = [exchange.headers["cookie"] for exchange in server.exchanges][-4:]
    assert sent == ["own=2", "own=2; a=1", "own=2; a=1", "own=2"]


async def test_no_cookie_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call":
            await exchange.respond(500, b"no", set_cookie="sid=S3CR3T-VALUE")
            return True
        return False

    server = HttpScript(modern_answer, special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        for _ in range(2):
            tool = (await connection.list_tools())["t"]
            assert "S3CR3T" not in str((await tool.execute()).error)
        assert "S3CR3T" not in repr(connection)
    assert server.exchanges[-1].headers["cookie"] == "sid=S3CR3T-VALUE"
    assert "S3CR3T" not in caplog.text
    jar = Cookies()
    jar.store(URL, ["sid=S3CR3T-VALUE"])
    assert "S3CR3T" not in f"{jar!r} {vars(jar)!r}"


@pytest.mark.parametrize(
    ("cookie", "sent"),
    [
        ("a=1", "a=1"),
        ("a=1; Domain=example.com", "a=1"),
        ("a=1; Domain=.API.example.com", "a=1"),
        ("a=1; Domain=other.com", ""),
        ("a=1; Domain=ple.com", ""),
        ("a=1; Domain=com", ""),
        ("a=1; Domain=x.api.example.com", ""),
        ("a=1; Path=/mcp", "a=1"),
        ("a=1; Path=/mcp/", "a=1"),
        ("a=1; Path=/mc", ""),
        ("a=1; Path=/other", ""),
        ("a=1; Path=nonsense", "a=1"),
        ("a=1; Secure; HttpOnly; SameSite=Strict", "a=1"),
        ('a="1 2"', 'a="1 2"'),
        ("a=", "a="),
        ("=1", ""),
        ("a", ""),
        ("a=1\t2", ""),
        ("a=\u00e9", ""),
        ("a b=1", ""),
        ("a=" + "x" * 5000, ""),
        ("a=1; Expires=Wed, 21 Oct 2015 07:28:00 GMT", "a=1"),
        ("a=1; Expires=Thu, 01-Jan-1970 00:00:05 GMT", ""),
        ("a=1; Expires=soon", "a=1"),
        ("a=1; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "a=1"),
        ("a=1; Max-Age=5", ""),
        ("a=1; Max-Age=-1", ""),
        ("a=1; Max-Age=soon", "a=1"),
    ],
)
def test_which_cookies_are_sent_back_ten_seconds_later(cookie: str, sent: str) -> None:
    assert sent_after(cookie, later=10) == sent


def test_a_cookie_belongs_to_its_folder_and_scheme_and_an_address_has_no_domain() -> None:
    assert sent_after("a=1", to="https://api.example.com/other") == ""
    assert sent_after("a=1", to="https://api.example.com/mcp/x/y") == "a=1"
    assert sent_after("a=1; Path=/mcp", to="https://api.example.com/mcpx") == ""
    assert sent_after("a=1; Secure", url="http://api.example.com/mcp") == ""
    assert sent_after("a=1; Secure", to="http://api.example.com/mcp/v1") == ""
    assert sent_after("a=1; Domain=0.0.1", url="http://127.0.0.1:80/") == ""
    assert sent_after("a=1", url="http://127.0.0.1/") == "a=1"


def test_the_special_one_goes_first_one_name_is_kept_once_and_there_is_room_for_fifty() -> None:
    assert sent_after("a=1; Path=/", "b=2; Path=/mcp/v1", "a=3; Path=/") == "b=2; a=3"
    assert sent_after(*(f"c{number}=x" for number in range(60))).count("=") == 50


@pytest.mark.slow
@given(st.lists(st.text(max_size=40), max_size=4))
def test_whatever_a_server_sets_what_is_sent_is_one_line_of_ascii(cookies: list[Any]) -> None:
    sent = sent_after(*cookies, *(f"a={text}; Path={text}; Expires={text}; Max-Age={text}" for text in cookies))
    assert sent.isascii()
    assert sent.isprintable()


@pytest.mark.parametrize(
    "cookie",
    [
        "__Host-a=1; Path=/",
        "__Host-a=1; Path=/mcp; Secure",
        "__Host-a=1; Path=/; Secure; Domain=api.example.com",
        "__Secure-a=1; Path=/",
        "__host-a=1; Path=/",
    ],
)
def test_a_cookie_that_breaks_the_rule_of_its_prefix_is_ignored(cookie: str) -> None:
    assert sent_after(cookie) == ""


def test_a_cookie_that_keeps_the_rule_of_its_prefix_is_sent_back() -> None:
    assert sent_after("__Host-a=1; Path=/; Secure", "__Secure-b=2; Path=/; Secure") == "__Host-a=1; __Secure-b=2"
