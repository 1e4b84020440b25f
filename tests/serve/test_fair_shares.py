"""No caller locks out the others: one holds all that it can of sessions, streams, calls and sockets, another works."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given
from hypothesis import strategies as st

from tests.connect.targets import eventually
from tests.serve.exchanges import (
    Answer,
    call,
    call_body,
    connected,
    exchange,
    handshake,
    head,
    modern_headers,
    read_answer,
)
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_app
from toolweave.errors import ConfigError
from toolweave.serve import BearerAuth, McpServer
from toolweave.serve._http.app import HttpApp
from toolweave.serve._http.limits import HttpLimits
from toolweave.serve._http.options import HttpOptions
from toolweave.serve._http.shares import ShareFigures, Shares

GREEDY = "127.0.0.2"
HONEST = "127.0.0.3"
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
TOKENS = {"greedy": "greedy-0123456789", "honest": "honest-0123456789"}


def bearer(name: str) -> dict[str, str]:
    """Return the header of a caller's token."""
    return {"Authorization": f"Bearer {TOKENS[name]}"}


def auth() -> BearerAuth:
    """Return an authorization that knows both callers."""
    return BearerAuth(tokens={token: name for name, token in TOKENS.items()})


@asynccontextmanager
async def served(
    server: McpServer | None = None, *, options: HttpOptions | None = None, **limits: float
) -> AsyncGenerator[tuple[str, HttpApp]]:
    """Serve a server with low limits; yield the URL of the endpoint, and the app."""
    given: dict[str, Any] = {"shutdown_seconds": 2, **limits}
    sent: HttpOptions = {**(options or {}), "limits": HttpLimits(**given)}
    app = (server or doing_server()).asgi_app(**sent)
    async with served_app(app) as base:
        yield base + app.path, app


async def adds(url: str, address: str = HONEST, **headers: str) -> int:
    """Return the status of a call."""
    body = call_body("add", {"a": 1, "b": 2})
    sent = {**modern_headers("add"), **headers}
    return (await exchange(url, headers=sent, body=body, address=address)).status


async def opened(stack: AsyncExitStack, url: str, request: bytes, address: str) -> SocketStream:
    """Send a request on a connection that stays open."""
    stream = await stack.enter_async_context(connected(url, address))
    await stream.send(request)
    return stream


def listening(url: str, headers: dict[str, str] | None = None) -> bytes:
    """Return a request for a stream of notifications."""
    body = call_body("", method="subscriptions/listen", notifications={"toolsListChanged": True})
    sent = {**modern_headers("", "subscriptions/listen"), "Content-Length": str(len(body)), **(headers or {})}
    return head(url, headers=sent) + body


def waiting(url: str, headers: dict[str, str] | None = None) -> bytes:
    """Return a call that lasts until the test ends it."""
    body = call_body("wait")
    return head(url, headers={**modern_headers("wait"), "Content-Length": str(len(body)), **(headers or {})}) + body


# sessions


async def test_a_caller_that_opens_all_sessions_loses_its_oldest_to_another() -> None:
    async with served(sessions=5) as (url, app):
        greedy = [await handshake(url, address=GREEDY) for _ in range(8)]
        begun, honest = await handshake(url, address=HONEST)
        more = [await handshake(url, address=GREEDY) for _ in range(8)]
        kept = await exchange(url, headers=honest, body=PING, address=HONEST)
        first = await exchange(url, headers=greedy[0][1], body=PING, address=GREEDY)
        last = await exchange(url, headers=more[-1][1], body=PING, address=GREEDY)
        figures = app.shares.figures["sessions"]

    assert [answer.status for answer, _ in (*greedy, *more)] == [200] * 16
    assert (begun.status, kept.status, first.status, last.status) == (200, 200, 404, 200)
    assert (figures.evicted, figures.refused) == (12, 0)


async def test_a_principal_with_many_addresses_counts_once() -> None:
    async with served(sessions=4, options={"auth": auth()}) as (url, _):
        _, honest = await handshake(url, bearer("honest"), address=HONEST)
        for number in range(20, 40):
            begun, _ = await handshake(url, bearer("greedy"), address=f"127.0.0.{number}")
            assert begun.status == 200
        kept = await exchange(url, headers=honest, body=PING, address=HONEST)

    assert kept.status == 200


async def test_sessions_whose_streams_are_open_are_no_protection_for_a_caller_with_the_most() -> None:
    async with served(sessions=4) as (url, app), AsyncExitStack() as stack:
        for _ in range(4):
            _, session = await handshake(url, address=GREEDY)
            await opened(stack, url, head(url, "GET", {**session, "Accept": "text/event-stream"}), GREEDY)
        await eventually(lambda: _is(app.streams, 4), 30)
        begun, honest = await handshake(url, address=HONEST)
        refused, _ = await handshake(url, address=GREEDY)
        kept = await exchange(url, headers=honest, body=PING, address=HONEST)

    assert (begun.status, kept.status) == (200, 200)
    assert (refused.status, refused.headers.get("retry-after")) == (503, "1")
    assert "sessions" in refused.json()["error"]["message"]


async def _is(value: int, expected: int) -> bool:
    return value == expected


# running calls and streams


@pytest.mark.parametrize("kind", ["calls", "listens", "streams of sessions"])
@pytest.mark.parametrize("era", ["anonymous", "authorized"])
async def test_a_caller_that_holds_all_it_can_leaves_room_for_another(kind: str, era: str) -> None:
    doings = Doings()
    options: HttpOptions = {"auth": auth()} if era == "authorized" else {}
    greedy, honest = (bearer("greedy"), bearer("honest")) if era == "authorized" else ({}, {})
    async with served(doing_server(doings), connections=20, options=options) as (url, app), AsyncExitStack() as stack:
        streams: list[SocketStream] = []
        for _ in range(30):
            if kind == "streams of sessions":
                answer, session = await handshake(url, greedy, address=GREEDY)
                if answer.status != 200:
                    break
                request = head(url, "GET", {**session, "Accept": "text/event-stream"})
            else:
                request = listening(url, greedy) if kind == "listens" else waiting(url, greedy)
            streams.append(await opened(stack, url, request, GREEDY))
        statuses = [await adds(url, **honest) for _ in range(5)]
        held = app.shares.figures["requests"].held
        refused = await call_from(url, GREEDY, greedy)
        begun, _ = await handshake(url, honest, address=HONEST)

    assert statuses == [200] * 5
    assert begun.status == 200
    assert held == 15
    assert (refused.status, refused.headers.get("retry-after")) == (429, "1")
    assert "15 of yours are running" in refused.json()["error"]["message"]


async def call_from(url: str, address: str, headers: dict[str, str]) -> Answer:
    """Call a tool from an address."""
    sent = {**modern_headers("add"), **headers}
    return await exchange(url, headers=sent, body=call_body("add", {"a": 1, "b": 2}), address=address)


async def test_the_oldest_stream_of_the_largest_caller_ends_when_there_is_no_place_at_all() -> None:
    async with served(connections=6, caller_share=1) as (url, app), AsyncExitStack() as stack:
        streams: list[SocketStream] = []
        for number in range(6):
            streams.append(await opened(stack, url, listening(url), GREEDY))
            await eventually(lambda number=number: _is(app.shares.figures["streams"].held, number + 1), 30)
        served_elsewhere = app.shares.requests.enter({"client": (HONEST, 1), "headers": []})
        figures = app.shares.figures

        assert served_elsewhere is not None
        assert (figures["streams"].evicted, figures["streams"].held, figures["requests"].held) == (1, 5, 6)
        ended = await read_answer(streams[0])
        assert ended.status == 200
        served_elsewhere.leave()


async def test_no_stream_ends_for_a_caller_that_would_then_hold_more_than_the_one_that_loses_it() -> None:
    async with served(connections=5, caller_share=1) as (url, app), AsyncExitStack() as stack:
        for address in (GREEDY, GREEDY, GREEDY, HONEST, HONEST):
            await opened(stack, url, listening(url), address)
        await eventually(lambda: _is(app.shares.figures["streams"].held, 5), 30)
        one_more = app.shares.requests.enter({"client": (HONEST, 1), "headers": []})
        of_another = app.shares.requests.enter({"client": ("127.0.0.4", 1), "headers": []})
        evicted = app.shares.figures["streams"].evicted

        assert one_more is None
        assert of_another is not None
        assert evicted == 1
        of_another.leave()


async def test_a_session_of_calls_without_their_clients_counts_as_well() -> None:
    doings = Doings()
    async with served(doing_server(doings), connections=8) as (url, app):
        _, session = await handshake(url, address=GREEDY)
        for key in range(6):
            body = json.dumps(
                {"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": {"name": "wait"}}
            ).encode()
            async with connected(url, GREEDY) as stream:
                await stream.send(head(url, headers={**session, "Content-Length": str(len(body))}) + body)
                await eventually(lambda key=key: _is(app.shares.figures["requests"].held, key + 1), 30)
        refused = await exchange(url, headers=session, body=PING, address=GREEDY)
        honest = await adds(url)

    assert (refused.status, honest) == (429, 200)


# sockets


@pytest.mark.parametrize(
    "request_part",
    [
        b"",
        b"POST /mcp HTTP/1.1\r\nHost",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{",
    ],
    ids=["silent", "head", "body"],
)
async def test_sockets_that_send_nothing_or_slowly_give_way_to_another_address(request_part: bytes) -> None:
    async with served(connections=10, header_seconds=300, body_seconds=300) as (url, app), AsyncExitStack() as stack:
        for _ in range(14):
            await opened(stack, url, request_part, GREEDY)
        statuses = [await adds(url) for _ in range(5)]
        evicted = app.shares.figures["connections"].evicted

    assert statuses == [200] * 5
    assert evicted >= 5


async def test_a_slow_request_gives_way_only_to_an_address_that_holds_less() -> None:
    part = b"POST /mcp HTTP/1.1\r\nHost"
    async with served(connections=4, header_seconds=300) as (url, _), AsyncExitStack() as stack:
        slow = [await opened(stack, url, part, f"127.0.0.{number}") for number in range(10, 14)]
        refused = await call_from(url, HONEST, {})
        body = call_body("add", {"a": 1, "b": 2})
        rest = head(url, headers={**modern_headers("add"), "Content-Length": str(len(body))}).partition(b"Host")[2]
        await slow[0].send(rest + body)
        answered = await slow[0].receive()

    assert (refused.status, refused.headers.get("retry-after")) == (503, "1")
    assert answered.startswith(b"HTTP/1.1 200")


# behind a proxy


async def test_callers_behind_a_trusted_proxy_count_by_their_forwarded_address() -> None:
    async with served(sessions=4, options={"trusted_proxies": ["127.0.0.0/24"]}) as (url, _):
        _, honest = await handshake(url, {"X-Forwarded-For": "203.0.113.9, 198.51.100.7"})
        for _ in range(8):
            await handshake(url, {"X-Forwarded-For": "192.0.2.1, 127.0.0.5"})
        kept = await exchange(url, headers=honest, body=PING)

    assert kept.status == 200


async def test_a_forwarded_address_of_anybody_else_is_not_believed() -> None:
    async with served(sessions=4) as (url, _):
        for number in range(8):
            await handshake(url, {"X-Forwarded-For": f"192.0.2.{number}"}, address=GREEDY)
        _, honest = await handshake(url, address=HONEST)
        for number in range(8):
            await handshake(url, {"X-Forwarded-For": f"198.51.100.{number}"}, address=GREEDY)
        kept = await exchange(url, headers=honest, body=PING, address=HONEST)

    assert kept.status == 200


@pytest.mark.parametrize("given", ["10.0.0.1/8", "proxy.example", ""])
def test_a_trusted_proxy_that_is_not_an_address_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        doing_server().asgi_app(trusted_proxies=[given])


def test_trusted_proxies_are_a_list() -> None:
    with pytest.raises(TypeError, match="trusted_proxies is a list of strings, not str"):
        doing_server().asgi_app(trusted_proxies="10.0.0.0/8")


@pytest.mark.parametrize(
    ("peer", "forwarded", "caller"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "", "192.0.2.1"),
        ("fe80::1%eth0", "", "fe80::/64"),
        ("10.0.0.1", "192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "192.0.2.1:4711", "192.0.2.1"),
        ("10.0.0.1", "[2001:db8::5]:4711", "2001:db8::/64"),
        ("10.0.0.1", "made-up, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
        ("10.0.0.1", "192.0.2.1, nonsense, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("::ffff:10.0.0.1", "192.0.2.1", "192.0.2.1"),
    ],
)
def test_a_caller_without_a_token_is_its_address(peer: str, forwarded: str, caller: str) -> None:
    app = doing_server().asgi_app(trusted_proxies=["10.0.0.0/8"])
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []

    assert app.shares.callers.of({"client": (peer, 1), "headers": headers}) == caller


async def test_an_ordinary_caller_alone_is_not_limited_before_its_share() -> None:
    answers: list[Answer] = []

    async def one(url: str) -> None:
        answers.append(await call(url, "add", {"a": 1, "b": 2}))

    async with served(connections=40) as (url, app), anyio.create_task_group() as tasks:
        for _ in range(30):
            tasks.start_soon(one, url)

    assert {answer.status for answer in answers} == {200}
    assert app.shares.figures["requests"].held == 0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60))
def test_the_callers_that_hold_the_most_come_first_after_any_changes(changes: list[tuple[str, bool]]) -> None:
    held: Counter[str] = Counter()
    shares = Shares(ShareFigures())
    for caller, is_added in changes:
        if is_added:
            shares.add(caller)
            held[caller] += 1
        elif held[caller]:
            shares.remove(caller)
            held[caller] -= 1

        found = list(shares.largest_first())

        numbers = [number for _, number in found]
        assert dict(found) == dict(+held)
        assert numbers == sorted(numbers, reverse=True)
        assert shares.figures.held == held.total()
