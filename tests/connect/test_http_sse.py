"""The HTTP+SSE transport of 2024-11-05: a stream that names where to post, and every way that can go wrong."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from tests.connect.proxying import proxying
from tests.connect.scripted import Exchange, answer_to, answers_to, legacy_answer, listening
from tests.connect.targets import Json, connected, eventually, initialized, steps_of
from tests.servers.fixtures import http_server
from toolweave import (
    AuthRequiredError,
    ConnectError,
    ConnectionLostError,
    ErrorKind,
    McpConnection,
    ProtocolError,
    connect_mcp,
)
from toolweave.connect import ConnectionState

TOKEN = "s3cr3t-t0k3n-0123456789"

Taken = Callable[[Exchange, Json], Awaitable[bool]]


async def _nothing(_exchange: Exchange, _message: Json) -> bool:
    return False


class Old:
    """A server with the one tool `t` behind HTTP+SSE; what `special` takes, it leaves alone.

    Attributes:
        names: What the first event of each stream says; None for no such event.
        posts: The messages that came.
        seen: Every request that came.
    """

    def __init__(self, special: Taken = _nothing, *, names: str | None = "/messages?session_id=1") -> None:
        self.names = names
        self.posts: list[Json] = []
        self.seen: list[Exchange] = []
        self.stream: Exchange | None = None
        self._special = special
        self._answer = initialized(legacy_answer, version="2024-11-05")

    async def handle(self, exchange: Exchange) -> None:
        """Answer one exchange."""
        self.seen.append(exchange)
        if exchange.method == "GET":
            await exchange.start_stream()
            self.stream = exchange
            await exchange.chunk(b": hello\n\nevent: other\ndata: 1\n\n")
            if self.names is not None:
                await exchange.event(self.names, event="endpoint")
            await exchange.reader.gone.wait()
            return
        message: Json = json.loads(exchange.body)
        self.posts.append(message)
        if await self._special(exchange, message):
            return
        await exchange.respond(202, b"Accepted")
        answer = self._answer(message)
        if answer is not None and "id" in message:
            await self.say({"jsonrpc": "2.0", "id": message["id"], **answer})

    async def say(self, message: Json) -> None:
        """Send a message on the stream."""
        assert self.stream is not None
        await self.stream.event(json.dumps(message))


def at(url: str, **more: Any) -> Json:
    return {"transport": "sse", "url": url.replace("/mcp", "/sse"), **more}


@pytest.mark.requirement("C7", "R11")
async def test_the_older_transport_is_carried_without_the_sdk() -> None:
    server = Old()
    async with listening(server.handle) as (url, _), connected(at(url)) as connection:
        assert (await connection.call_tool("t")).text == "done"
        assert "load the SDK" not in steps_of(connection)
        assert connection.protocol_version == "2024-11-05"
    assert {(one.method, one.path) for one in server.seen} == {("GET", "/sse"), ("POST", "/messages")}
    assert {one.query["session_id"] for one in server.seen if one.method == "POST"} == {"1"}


@pytest.mark.slow
async def test_many_calls_at_once_each_get_their_own_answer() -> None:
    with http_server("--era", "sse", path="/sse") as url:
        async with connected({"transport": "sse", "url": url}) as connection:
            texts: list[str] = []

            async def call(number: int) -> None:
                result = await connection.call_tool("echo", {"text": str(number)})
                assert result.text == str(number)
                texts.append(result.text)

            async with anyio.create_task_group() as tasks:
                for number in range(150):
                    tasks.start_soon(call, number)
            assert len(texts) == 150


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            "http://127.0.0.1:1/messages?token=hidden",
            "another origin for messages, http://127.0.0.1:1/messages; nothing",
        ),
        ("https://elsewhere.example/", "another origin for messages, https://elsewhere.example/"),
        ("http://[half/", "a text that is not a URL for messages"),
    ],
)
async def test_messages_go_to_the_origin_of_the_stream_alone(names: str, words: str) -> None:
    server = Old(names=names)
    async with listening(server.handle) as (url, _):
        with anyio.fail_after(20), pytest.raises(ConnectError, match=words) as refused:
            await connect_mcp(at(url))
    assert "hidden" not in str(refused.value)
    assert server.posts == []


async def test_the_url_for_messages_may_be_relative_or_whole() -> None:
    for names in ("post/here", "{origin}/post/here", "//{authority}/post/here"):
        server = Old()
        async with listening(server.handle) as (url, _):
            origin = url.removesuffix("/mcp")
            server.names = names.format(origin=origin, authority=origin.removeprefix("http://"))
            async with connected(at(url)) as connection:
                assert (await connection.call_tool("t")).text == "done"
        assert {one.path for one in server.seen} == {"/sse", "/post/here"}


async def test_a_stream_that_ends_before_it_named_the_url_says_so() -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.start_stream()
        await exchange.end_stream()

    async with listening(handle) as (url, _):
        with anyio.fail_after(20), pytest.raises(ConnectError, match="its event stream ended before it named the URL"):
            await connect_mcp(at(url))


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (500, b"out of order", ProtocolError, "HTTP 500.*out of order"),
        (413, b"", ProtocolError, "HTTP 413"),
        (400, b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32602, "message": "odd"}}', ProtocolError, "odd"),
        (401, b"", AuthRequiredError, "HTTP 401"),
        (307, b"", ProtocolError, "not followed"),
    ],
)
async def test_a_post_that_is_refused_costs_its_own_call_alone(
    status: int, body: bytes, error: type[Exception], words: str
) -> None:
    refused = 0

    async def special(exchange: Exchange, message: Json) -> bool:
        nonlocal refused
        if message["method"] != "tools/call" or refused:
            return False
        refused += 1
        await exchange.respond(status, body, **({"location": "http://127.0.0.1:1/"} if status == 307 else {}))
        return True

    server = Old(special)
    async with listening(server.handle) as (url, _), connected(at(url)) as connection:
        with pytest.raises(error, match=words):
            await connection.call_tool("t")
        assert (await connection.call_tool("t")).text == "done"
        assert connection.restarts == 0


async def test_a_session_that_the_server_has_forgotten_is_begun_anew_and_the_call_sent_again() -> None:
    forgets = True

    async def special(exchange: Exchange, message: Json) -> bool:
        nonlocal forgets
        if message["method"] != "tools/call" or not forgets:
            return False
        forgets = False
        await exchange.respond(404, b"Could not find session")
        return True

    server = Old(special)
    async with listening(server.handle) as (url, _), connected(at(url)) as connection:
        assert (await connection.call_tool("t")).text == "done"
        assert connection.restarts == 1


async def test_an_answer_that_comes_before_that_of_its_post_is_waited_for_no_longer() -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await server.say(json.loads(answer_to(message)))
        await exchange.reader.gone.wait()

    server = Old(special)
    async with listening(server.handle) as (url, _), connected(at(url), 10) as connection:
        assert (await connection.call_tool("t")).text == "done"


async def test_a_stream_that_breaks_off_ends_the_calls_on_it_and_is_opened_anew() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message["method"] != "tools/call" or message["params"].get("arguments") != {"break": True}:
            return False
        assert server.stream is not None
        await exchange.respond(202)
        await server.stream.reset()
        return True

    server = Old(special)
    async with listening(server.handle) as (url, _), connected(at(url)) as connection:
        with pytest.raises(ConnectionLostError, match="its event stream failed") as lost:
            await connection.call_tool("t", {"break": True})
        assert lost.value.kind is ErrorKind.OUTCOME_UNKNOWN
        assert (await connection.call_tool("t")).text == "done"


async def test_an_event_over_the_bound_is_not_read_to_its_end() -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond(202)
        assert server.stream is not None
        await server.stream.event("x" * 200_000)

    server = Old(special)
    async with (
        listening(server.handle) as (url, _),
        connected(at(url, max_message_bytes=100_000, restart="never")) as connection,
    ):
        with pytest.raises(ConnectionLostError, match="larger than 100000 bytes"):
            await connection.call_tool("t")


async def test_a_call_that_is_given_up_is_told_to_the_server() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message["method"] == "tools/call":
            await exchange.respond(202)
        return message["method"] == "tools/call"

    server = Old(special)
    async with listening(server.handle) as (url, _), connected(at(url)) as connection:
        with anyio.move_on_after(0.2):
            await connection.call_tool("t")
        call = next(message for message in server.posts if message["method"] == "tools/call")
        await eventually(lambda: server.posts[-1]["method"] == "notifications/cancelled")
        assert server.posts[-1]["params"]["requestId"] == call["id"]


async def test_what_the_server_asks_is_answered_by_a_post() -> None:
    server = Old()
    async with listening(server.handle) as (url, _), connected(at(url)):
        await server.say({"jsonrpc": "2.0", "id": "ping-1", "method": "ping"})
        await eventually(lambda: {"jsonrpc": "2.0", "id": "ping-1", "result": {}} in server.posts)


async def test_credentials_are_made_for_each_request_and_masked_where_they_are_said_back() -> None:
    numbers = iter(range(100))

    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond(202)
        error = {"code": -32000, "message": f"no use for {exchange.headers['authorization']}"}
        await server.say({"jsonrpc": "2.0", "id": message["id"], "error": error})

    server = Old(special)
    async with (
        listening(server.handle) as (url, _),
        connected(at(url), auth=lambda: f"{TOKEN}-{next(numbers)}") as connection,
    ):
        with pytest.raises(ProtocolError, match="no use for") as failure:
            await connection.call_tool("t")
    assert TOKEN not in str(failure.value)
    given = [one.headers["authorization"] for one in server.seen]
    assert len(given) == len(set(given)) >= 4


async def test_a_compressed_stream_through_a_proxy_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    deflater = zlib.compressobj(wbits=31)
    server = Old()

    async def handle(exchange: Exchange) -> None:
        if exchange.method != "GET":
            await server.handle(exchange)
            return
        await exchange.start_stream(content_encoding="gzip")
        plain = exchange.chunk

        async def chunk(data: bytes) -> None:
            await plain(deflater.compress(data) + deflater.flush(zlib.Z_SYNC_FLUSH))

        monkeypatch.setattr(exchange, "chunk", chunk)
        server.stream = exchange
        await exchange.event("/messages?session_id=1", event="endpoint")
        await exchange.reader.gone.wait()

    async with proxying() as proxy, listening(handle) as (url, _):
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        async with connected(at(url)) as connection:
            assert (await connection.call_tool("t")).text == "done"
    assert {line.split(" ")[0] for line in proxy.lines} == {"GET", "POST"}


class Behind:
    """A server of the older transport behind a proxy that adds `prefix` to its paths.

    Attributes:
        posts: The paths of the POSTs that came.
    """

    def __init__(self, prefix: str, *, names: str, at: str | None = None) -> None:
        self.posts: list[str] = []
        self._path = f"{prefix}{names.partition('?')[0]}" if at is None else at
        self._server = Old(names=names)

    async def handle(self, exchange: Exchange) -> None:
        """Pass on what the server has, and answer 404 to the rest."""
        if exchange.method == "POST":
            self.posts.append(exchange.path)
            if exchange.path != self._path:
                await exchange.respond(404, b"404 page not found")
                return
        await self._server.handle(exchange)


@pytest.mark.parametrize(
    ("stream", "prefix", "names"),
    [
        ("/gw/sse", "/gw", "/messages?session_id=1"),
        ("/gw/sse", "/gw", "/messages/?session_id=1"),
        ("/a/b/sse", "/a/b", "/messages?session_id=1"),
        ("/gw/mcp/sse", "/gw", "/mcp/messages?session_id=1"),
        ("/gw/sse/", "/gw/sse", "/messages?session_id=1"),
        ("/gw/sse", "/gw", "/messages/one/two?session_id=1"),
    ],
)
async def test_messages_go_below_the_prefix_of_the_stream_if_the_named_url_is_not_there(
    stream: str, prefix: str, names: str
) -> None:
    server = Behind(prefix, names=names)
    async with listening(server.handle) as (url, _):
        target = {"transport": "sse", "url": url.replace("/mcp", stream)}
        async with connected(target) as connection:
            assert (await connection.call_tool("t")).text == "done"
            (problem,) = connection.problems
    named = names.partition("?")[0]
    assert f"{named} for messages" in problem
    assert f"{prefix}{named}" in problem
    assert server.posts[:2] == [named, f"{prefix}{named}"]
    assert named not in server.posts[1:]  # found once, used for all


async def test_a_url_without_the_prefix_is_an_error_if_the_owner_wants_no_repairs() -> None:
    server = Behind("/gw", names="/messages?session_id=1")
    async with listening(server.handle) as (url, _):
        target = {"transport": "sse", "url": url.replace("/mcp", "/gw/sse"), "repair_messages": False}
        with pytest.raises(ConnectError, match="'repair_messages': true"):
            await connect_mcp(target)


async def test_an_error_names_the_url_for_messages_that_is_not_there() -> None:
    server = Behind("", names="/messages?session_id=1", at="/elsewhere")
    async with listening(server.handle) as (url, _):
        with pytest.raises(
            ConnectError, match="/gw/messages, which its event stream names for messages: HTTP 404"
        ) as no:
            await connect_mcp({"transport": "sse", "url": url.replace("/mcp", "/gw/sse")})
    assert "session has ended" not in str(no.value)
    assert server.posts == ["/messages", "/gw/messages"]


async def test_a_url_for_messages_that_is_there_is_used_as_it_is() -> None:
    server = Behind("", names="/messages?session_id=1")
    async with listening(server.handle) as (url, _), connected(at(url.replace("/mcp", "/gw/mcp"))) as connection:
        assert (await connection.call_tool("t")).text == "done"
        assert connection.problems == ()
    assert set(server.posts) == {"/messages"}


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_success_between_two_refusals_keeps_the_session_whichever_way_it_was_sent(at_once: bool) -> None:
    """A single tool may need more rights than the others: only two refusals in a row concern the session."""

    async def refuse(exchange: Exchange, message: Json) -> bool:
        if message.get("params", {}).get("arguments") != {"refuse": True}:
            return False
        await exchange.respond(401, www_authenticate="Bearer")
        return True

    async def succeed(connection: McpConnection) -> None:
        if not at_once:
            await connection.call_tool("t")
            return
        direct = connection.gateway_side.direct_calls
        loop = asyncio.get_running_loop()
        session = direct.session_for("t", loop)
        assert session is not None
        sent = direct.send(session, "t", b',"method":"tools/call","params":{"name":"t"}}', loop)
        assert sent is not None
        await sent.answer
        sent.forget()

    old = Old(refuse)
    async with listening(old.handle) as (url, _), connected(at(url)) as connection:
        for _ in range(2):
            with pytest.raises(AuthRequiredError):
                await connection.call_tool("t", {"refuse": True})
            await succeed(connection)
        assert [post["method"] for post in old.posts].count("initialize") == 1
        assert connection.state is ConnectionState.READY
