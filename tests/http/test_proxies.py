"""HTTP connections through proxies of the environment: what is forwarded, what is tunnelled, and who sees what."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from tests.connect.proxying import certificate, proxying, serving_tls
from tests.connect.scripted import Exchange, HttpScript, legacy_answer, listening, modern_answer
from tests.connect.targets import MODERN, Json, connected, initialized, steps_of
from tests.servers.fixtures import http_server
from toolweave import ConnectError, connect_mcp
from toolweave.http import HttpProxy, http_proxy_for, proxy_for

TOKEN = "s3cr3t-t0k3n-0123456789"
PASSWORD = "p@ss/w:rd?"
ERAS = {"modern": modern_answer, "legacy": initialized(legacy_answer)}


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the certificate of a server of this machine, which is trusted."""
    file = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    return file


@pytest.mark.parametrize("behind_tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("target", ["http", "https"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_proxy_forwards_what_is_plain_and_tunnels_what_is_encrypted(
    era: str, target: str, behind_tls: bool, trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = HttpScript(ERAS[era])
    tls = serving_tls(trusted)
    async with (
        proxying(password=PASSWORD, tls=tls if behind_tls else None) as proxy,
        listening(server.handle, tls if target == "https" else None) as (url, _),
    ):
        monkeypatch.setenv(f"{target.upper()}_PROXY", proxy.with_user("me", PASSWORD))
        async with connected({"url": url, "headers": {"Authorization": TOKEN}}) as connection:
            for _ in range(3):
                assert (await connection.call_tool("t")).text == "done"
            assert "load the SDK" not in steps_of(connection)
    authority = url.removesuffix("/mcp").partition("://")[2]
    lines = {tuple(line.split(" ")[:2]) for line in proxy.lines if not line.startswith(("GET", "DELETE"))}
    assert lines == {("POST", url) if target == "http" else ("CONNECT", authority)}
    assert {asked.headers["host"] for asked in proxy.asked} == {authority}
    assert len(server.exchanges) >= 5
    assert {one.headers["authorization"] for one in server.exchanges} == {TOKEN}
    assert [one for one in server.exchanges if "proxy-authorization" in one.headers] == []
    if target == "https":
        assert TOKEN not in str(proxy.asked)
        assert len(proxy.carried) > 1000
        assert [word for word in (TOKEN, "tools/call", "/mcp") if word.encode() in proxy.carried] == []
    if era == "modern":
        assert proxy.connections == 1  # kept, and used again


@pytest.mark.slow
async def test_answers_in_streams_and_sessions_come_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxying() as proxy:
        for version in ("2025-11-25", MODERN):
            with http_server("--version", version, "--answers", "sse") as url:
                monkeypatch.setenv("ALL_PROXY", proxy.url)
                reports: list[Any] = []
                async with connected(url) as connection:
                    result = await connection.call_tool("slow", {"seconds": 0.2}, on_progress=reports.append)
                assert not result.is_error
                big = "x" * 300_000
                async with connected(url) as connection:
                    assert (await connection.call_tool("echo", {"text": big})).text == big
        assert {line.split(" ")[1] for line in proxy.lines} >= {url}


async def test_a_proxy_is_left_out_where_no_proxy_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxying() as proxy, listening(HttpScript(modern_answer).handle) as (url, _):
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
        async with connected(url):
            assert proxy.asked == []


async def test_a_proxy_that_wants_credentials_is_named_without_those_it_got(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with proxying(password="another") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.with_user("me", TOKEN))
        words = f"https://no-such-host.invalid/mcp through the proxy {proxy.url}: .*407"
        connection = await connect_mcp({"url": "https://no-such-host.invalid/mcp"}, lazy=True, name="far")
        with anyio.fail_after(20), pytest.raises(ConnectError, match=words) as refused:
            await connection.list_tools()
        shown = [str(refused.value), repr(connection), caplog.text, *(step.detail for step in connection.report.steps)]
        await connection.close()
    assert [text for text in shown if TOKEN in text] == []
    assert "http://user:password@host:port" in str(refused.value)


async def test_a_proxy_that_wants_credentials_for_what_is_plain_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxying(password="another") as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.with_user("me", TOKEN))
        words = f"no answer from http://no-such-host.invalid/mcp through the proxy {proxy.url}: .*407 .*user:password@"
        with anyio.fail_after(20), pytest.raises(ConnectError, match=words) as refused:
            await connect_mcp("http://no-such-host.invalid/mcp?key=hidden")
    assert TOKEN not in str(refused.value)
    assert "hidden" not in str(refused.value)


async def test_a_407_of_a_server_is_not_taken_for_one_of_a_proxy(
    trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.respond(407, b"who are you")

    async with proxying() as proxy, listening(refuse, serving_tls(trusted)) as (url, _):
        with anyio.fail_after(20), pytest.raises(ConnectError, match=r"HTTP 407.*who are you") as direct:
            await connect_mcp(url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        with anyio.fail_after(20), pytest.raises(ConnectError, match=r"HTTP 407.*who are you") as tunnelled:
            await connect_mcp(url)
    assert not [failure for failure in (direct, tunnelled) if "through the proxy" in str(failure.value)]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nbad",
            "refused to reach far.invalid:443: HTTP 502 Bad G",
        ),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n", "refused to reach far.invalid:443: HTTP 302"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "ProxyError: RemoteProtocolError"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"x" * 400_000, "ProxyError: RemoteProtocolError.*larger than"),
        (b"HTTP/1.1 200 OK\r\n\r\nnot TLS at all", "ConnectError"),
    ],
)
async def test_a_tunnel_that_does_not_come_about_names_the_proxy_and_the_server(
    answer: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxying(answer=answer) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        expected = f"no answer from https://far.invalid/mcp through the proxy {re.escape(proxy.url)}: .*{words}"
        with anyio.fail_after(20), pytest.raises(ConnectError, match=expected):
            await connect_mcp("https://far.invalid/mcp")


async def test_a_proxy_where_nobody_listens_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxying() as proxy:
        pass
    monkeypatch.setenv("ALL_PROXY", proxy.url)
    for url in ("http://far.invalid/mcp", "https://far.invalid/mcp"):
        words = f"no answer from {url} through the proxy {proxy.url}: ProxyError: "
        with anyio.fail_after(20), pytest.raises(ConnectError, match=words):
            await connect_mcp(url)


@pytest.mark.slow
async def test_a_proxy_that_never_answers_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    monkeypatch.setenv("ALL_PROXY", proxy)
    async with server:
        with anyio.fail_after(20), pytest.raises((ConnectError, TimeoutError), match=r"0\.5 s"):
            await connect_mcp("https://far.invalid/mcp", timeout={"connect": 0.5})


async def test_the_certificate_of_a_server_behind_a_tunnel_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = HttpScript(modern_answer)
    async with proxying() as proxy, listening(server.handle, serving_tls(certificate(tmp_path))) as (url, _):
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        words = f"through the proxy {proxy.url}: .*CERTIFICATE_VERIFY_FAILED.*SSL_CERT_FILE"
        with anyio.fail_after(20), pytest.raises(ConnectError, match=words):
            await connect_mcp(url)
    assert server.exchanges == []


@pytest.mark.slow
async def test_a_proxy_whose_certificate_is_not_trusted_is_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxying(tls=serving_tls(certificate(tmp_path))) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.with_user("me", PASSWORD))
        words = f"through the proxy {proxy.url}: ProxyError: .*CERTIFICATE_VERIFY_FAILED"
        for url in ("http://far.invalid/mcp", "https://far.invalid/mcp"):
            with anyio.fail_after(20), pytest.raises(ConnectError, match=words):
                await connect_mcp(url)
    assert proxy.asked == []


async def test_redirects_through_a_proxy_stay_within_the_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    async def move(exchange: Exchange) -> None:
        if exchange.path == "/mcp":
            await exchange.respond(307, location="/moved" if within else "http://elsewhere.invalid/mcp")
        else:
            await server.handle(exchange)

    server, within = HttpScript(modern_answer), True
    async with proxying() as proxy, listening(move) as (url, _):
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        async with connected(url) as connection:
            assert (await connection.call_tool("t")).text == "done"
        within = False
        with anyio.fail_after(20), pytest.raises(ConnectError, match=r"Redirect to http://elsewhere\.invalid/mcp not"):
            await connect_mcp(url)
    assert [line for line in proxy.lines if "elsewhere" in line] == []


async def test_cookies_and_compressed_answers_come_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def handle(exchange: Exchange) -> None:
        message: Json = json.loads(exchange.body)
        seen.append(exchange.headers.get("cookie", ""))
        answer = modern_answer(message)
        body = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": message["id"], **(answer or {})}).encode())
        headers = {"content_type": "application/json", "content_encoding": "gzip", "set_cookie": "route=a"}
        await exchange.respond(200, body, **headers)

    async with proxying() as proxy, listening(handle) as (url, _):
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        async with connected(url) as connection:
            assert (await connection.call_tool("t")).text == "done"
    assert (seen[0], seen[-1]) == ("", "route=a")


async def test_a_connection_of_a_proxy_that_closes_kept_ones_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(HttpScript(modern_answer).handle) as (url, connections), proxying() as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        async with connected(url, restart="never") as connection:
            assert (await connection.call_tool("t")).text == "done"
            for writer in list(connections):
                cast("asyncio.StreamWriter", writer).close()
            await anyio.sleep(0.2)
            assert (await connection.call_tool("t")).text == "done"
        assert proxy.connections == 2


@pytest.mark.parametrize("proxy", ["gopher://127.0.0.1:1", "socks5://127.0.0.1:1", "socks5h://me:hidden@127.0.0.1:1"])
async def test_a_proxy_of_a_kind_that_is_not_known_is_an_error_of_connecting(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with anyio.fail_after(20), pytest.raises(ConnectError, match=proxy.replace("me:hidden@", "")) as refused:
        await connect_mcp({"url": "http://no-such-host.invalid/mcp"})
    assert "hidden" not in str(refused.value)
    assert ("NO_PROXY" in str(refused.value)) == proxy.startswith("socks")


def test_a_proxy_is_read_with_its_credentials_and_shown_without() -> None:
    proxy = http_proxy_for("http://a.example/", {"HTTP_PROXY": "https://m%20e:p%40ss%2F@[::1]:3128"})
    assert proxy == HttpProxy(host="::1", port=3128, secure=True, authorization="Basic bSBlOnBAc3Mv")
    assert str(proxy) == "https://[::1]:3128"
    assert "bSBlOn" not in repr(proxy)
    assert http_proxy_for("http://a.example/", {}) is None
    assert http_proxy_for("http://a.example/", {"ALL_PROXY": "p"}) == HttpProxy(host="p", port=80)
    assert http_proxy_for("http://a.example/", {"ALL_PROXY": "https://p"}) == HttpProxy(host="p", port=443, secure=True)


@pytest.mark.parametrize(
    "named",
    ["http://", "http://[half", "http://me:hid/den@p:1", "http://me:hid?den@p:1", "http://me:1/den@p:1", "http://p:x"],
)
def test_what_is_no_url_of_a_proxy_is_refused_without_being_shown(named: str) -> None:
    with pytest.raises(ValueError, match="is not a URL such as") as refused:
        http_proxy_for("http://a.example/", {"ALL_PROXY": named})
    assert not [part for part in ("hid", "den", "half") if part in str(refused.value)]


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("http://a.example/", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("http://a.example/", {"http_proxy": "http://low:1", "HTTP_PROXY": "http://up:1"}, "http://low:1"),
        ("http://a.example/", {"http_proxy": "p:1"}, "http://p:1"),
        ("https://a.example/", {"HTTP_PROXY": "http://p:1"}, None),
        ("https://a.example/", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        ("http://a.example/", {"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, None),
        ("http://a.example/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ("http://a.example/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "b.example, example"}, None),
        ("http://a.example/", {"ALL_PROXY": "http://p:1", "NO_PROXY": ".example"}, None),
        ("http://a.example/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "*.example"}, None),
        ("http://notexample/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "example"}, "http://p:1"),
        ("http://a.example:81/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "a.example:80"}, "http://p:1"),
        ("http://a.example/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "a.example:80"}, None),
        ("http://10.1.2.3/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://11.1.2.3/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("http://a.example/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("http://[::1]:8/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "::1"}, None),
        ("http://[::1]:8/", {"ALL_PROXY": "http://p:1", "NO_PROXY": "[::1]"}, None),
        ("http://127.0.0.1/", {"ALL_PROXY": "http://p:1", "no_proxy": "localhost,127.0.0.1"}, None),
    ],
)
def test_the_environment_says_which_proxy_is_for_which_host(
    url: str, environment: dict[str, str], proxy: str | None
) -> None:
    assert proxy_for(url, environment) == proxy


@pytest.mark.parametrize("number", [0, 1], ids=["asyncio", "uvloop"])
def test_tunnels_within_tls_work_on_each_event_loop(
    number: int, trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uvloop

    async def life() -> str:
        tls = serving_tls(trusted)
        async with proxying(tls=tls) as proxy, listening(HttpScript(modern_answer).handle, tls) as (url, _):
            monkeypatch.setenv("ALL_PROXY", proxy.url)
            async with connected(url) as connection:
                return (await connection.call_tool("t")).text

    with asyncio.Runner(loop_factory=[asyncio.new_event_loop, uvloop.new_event_loop][number]) as runner:
        assert runner.run(life()) == "done"
