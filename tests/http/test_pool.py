"""The connections of our own HTTP lane: how many there are, who waits for one, which are used again, how they begin."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.connect.proxying import certificate
from tests.connect.scripted import Exchange, HttpScript, listening, modern_answer
from tests.connect.targets import Json, connected, eventually
from tests.http.hosts import named, swallowing
from toolweave import RequestTimeoutError
from toolweave.http import HttpClient, TransportError

MEGABYTE = 1_000_000


def client(url: str, **options: Any) -> HttpClient:
    return HttpClient(url, connect_seconds=20, **options)


async def fetch(http: HttpClient, body: bytes = b"{}", *, repeatable: bool = False) -> bytes:
    with await http.send("POST", "/mcp", {}, body, repeatable=repeatable) as response:
        return await response.read(MEGABYTE)


async def hello(exchange: Exchange) -> None:
    await exchange.respond(200, b"hello")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("callers", "options", "most"), [(16, {}, 16), (150, {}, 100), (1_000, {}, 100), (150, {"max_connections": 7}, 7)]
)
async def test_callers_share_the_connections_of_the_pool_and_none_is_refused(
    callers: int, options: dict[str, int], most: int
) -> None:
    async with (
        listening(HttpScript(modern_answer).handle) as (url, connections),
        connected({"url": url, "timeout": {"connect": 20, "call": 60}, **options}, 100) as connection,
    ):
        texts: list[str] = []

        async def call() -> None:
            texts.extend([(await connection.call_tool("t")).text for _ in range(3)])

        async with anyio.create_task_group() as tasks:
            for _ in range(callers):
                tasks.start_soon(call)
        assert texts == ["done"] * 3 * callers
        assert len(connections) <= most + 1  # one may have been closed by the server meanwhile
        made = len(connections)
        async with anyio.create_task_group() as tasks:
            for _ in range(min(callers, most)):
                tasks.start_soon(call)
        assert len(connections) == made


@pytest.mark.slow
async def test_a_call_waits_for_a_connection_as_long_as_its_own_bound_and_not_as_connecting_may_take() -> None:
    calls: list[Exchange] = []
    let_go = anyio.Event()

    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call":
            calls.append(exchange)
            await let_go.wait()
        return False

    options = {"max_connections": 2, "timeout": {"connect": 2, "call": 60}}
    async with (
        listening(HttpScript(modern_answer, special).handle) as (url, connections),
        connected({"url": url, **options}, 60) as connection,
    ):
        texts: list[str] = []

        async def call() -> None:
            texts.append((await connection.call_tool("t")).text)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call)
            await eventually(lambda: len(calls) == 2)
            try:
                with pytest.raises(RequestTimeoutError):
                    await connection.call_tool("t", timeout=2.5)  # longer than `connect`
            finally:
                let_go.set()
        assert texts == ["done"] * 5
        assert len(connections) == 2
        assert len(calls) == 5  # the one that was given up was never sent


async def test_the_one_who_waited_longest_goes_first() -> None:
    bodies: list[bytes] = []
    let_go = anyio.Event()

    async def handle(exchange: Exchange) -> None:
        bodies.append(exchange.body)
        await let_go.wait()
        await exchange.respond(200, b"hello")

    with anyio.fail_after(20):
        async with listening(handle) as (url, connections):
            http = client(url, max_connections=1)
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(fetch, http, b"%d" % number)
                    await eventually(lambda waiting=number: http.waiting == waiting)
                let_go.set()
            assert bodies == [b"%d" % number for number in range(20)]
            assert len(connections) == 1
            http.close()


@pytest.mark.parametrize("steps", range(12))
async def test_waiters_who_are_cancelled_leave_nothing_behind_whenever_that_is(steps: int) -> None:
    gate = asyncio.Semaphore(0)
    scope = anyio.CancelScope()
    done: list[bytes] = []

    async def handle(exchange: Exchange) -> None:
        await gate.acquire()
        await exchange.respond(200, b"hello")

    async def one() -> None:
        done.append(await fetch(http))

    async def five() -> None:
        with scope:
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(fetch, http)

    with anyio.fail_after(20):
        async with listening(handle) as (url, _):
            http = client(url, max_connections=2)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one)
                tasks.start_soon(one)
                await eventually(lambda: http.open_sockets == 2)
                tasks.start_soon(five)
                tasks.start_soon(one)
                await eventually(lambda: http.waiting == 6)
                gate.release()
                gate.release()
                for _ in range(steps):  # the turns of some come meanwhile
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
                await eventually(lambda: http.waiting == 0)
                for _ in range(10):
                    gate.release()
            assert done == [b"hello"] * 3
            assert http.open_sockets <= 2
            async with anyio.create_task_group() as tasks:  # and both places are free
                for _ in range(4):
                    tasks.start_soon(one)
            assert len(done) == 7
            assert http.open_sockets <= 2
            http.close()
            assert http.open_sockets == 0


class GatedServer:
    """Answers a request for each `let_go`, and counts those that it has received.

    Attributes:
        gate: Lets answers go.
        received: How many requests it has received.
        headers: The headers of its answers.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(0)
        self.received = 0
        self.headers: dict[str, str] = {}

    async def handle(self, exchange: Exchange) -> None:
        self.received += 1
        await self.gate.acquire()
        await exchange.respond(200, b"hello", **self.headers)

    def let_go(self, answers: int) -> None:
        for _ in range(answers):
            self.gate.release()

    async def several(self, http: HttpClient, requests: int, at_once: int) -> None:
        """Make requests of which so many have a connection at once, and let them be answered."""
        before = self.received
        async with anyio.create_task_group() as tasks:
            for _ in range(requests):
                tasks.start_soon(fetch, http)
            await eventually(lambda: (self.received - before, http.waiting) == (at_once, requests - at_once))
            self.let_go(requests)


@pytest.mark.parametrize("end", ["answered", "answered and closed", "abandoned"])
async def test_a_request_that_was_begun_gives_its_place_to_one_that_waits(end: str) -> None:
    server = GatedServer()
    with anyio.fail_after(20):
        async with listening(server.handle) as (url, _):
            http = client(url, max_connections=2)
            await server.several(http, 2, 2)
            head = http.head("POST", "/mcp", {})
            begun = [http.begin(head, b"{}", lambda: None) for _ in range(2)]
            sockets = [one for one in begun if one is not None]
            assert len(sockets) == 2
            await eventually(lambda: server.received == 4)
            if end == "answered and closed":
                server.headers = {"connection": "close"}
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(fetch, http)
                await eventually(lambda: http.waiting == 3)
                if end == "abandoned":
                    for one in sockets:
                        http.abandon(one)
                    server.let_go(2)  # their handlers wait still
                else:
                    server.let_go(2)
                    await eventually(lambda: all(one.complete for one in sockets))
                    for one in sockets:
                        http.release(one)
                server.let_go(3)
            server.headers = {}
            await server.several(http, 4, 2)  # no place was lost, and none made
            http.close()


async def test_a_server_that_is_gone_fails_each_of_those_who_wait() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        http = client(f"http://127.0.0.1:{free.getsockname()[1]}/", max_connections=2)
        failed: list[TransportError] = []

        async def one() -> None:
            with pytest.raises(TransportError, match="ConnectError") as gone:
                await fetch(http)
            failed.append(gone.value)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for _ in range(30):
                    tasks.start_soon(one)
        assert [exc.sent for exc in failed] == [False] * 30


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncGenerator[tuple[str, list[int]]]:
    """Serve connections that stay open and answer each head of a request with the next bytes, whatever they are."""
    made: list[int] = []
    left = list(answers)
    over = asyncio.Event()
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        made.append(1)
        try:
            while left and await reader.readuntil(b"\r\n\r\n"):
                writer.write(left.pop(0))
                await writer.drain()
            await over.wait()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client is gone
        finally:
            writer.close()
            serving.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", made
    finally:
        over.set()
        server.close()
        await eventually(lambda: not serving)


def answer(body: bytes, head: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)


async def get(http: HttpClient) -> bytes:
    with await http.send("GET", "/", {}) as response:
        return await response.read(MEGABYTE)


@pytest.mark.parametrize("known", [False, True])
async def test_an_answer_that_nobody_asked_for_is_never_taken_for_the_next_one(known: bool) -> None:
    split = answer(b"ok") + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n"  # the next answer would be its body
    before = [answer(b"ok")] if known else []
    with anyio.fail_after(10):
        async with answering(*before, split, answer(b"second"), answer(b"third")) as (url, made):
            http = client(url)
            assert [await get(http) for _ in [*before, split]] == [b"ok"] * (len(before) + 1)
            assert await get(http) == b"second"
            assert len(made) == 2
            http.close()


async def test_empty_lines_behind_a_response_cost_no_connection() -> None:
    """RFC 9112, 9.2: they are no response, and may be discarded."""
    was_read = asyncio.Event()

    async def handle(exchange: Exchange) -> None:
        await hello(exchange)
        await was_read.wait()
        exchange.writer.write(b"\r\n\r\n")

    with anyio.fail_after(10):
        async with listening(handle) as (url, connections):
            http = client(url)
            assert await fetch(http) == b"hello"
            before = http.received_mark()
            was_read.set()
            await eventually(lambda: http.received_mark() != before)
            assert await fetch(http) == b"hello"
            assert len(connections) == 1
            http.close()


async def test_an_answer_that_came_before_the_request_was_written_leaves_no_connection_behind() -> None:
    """The rest of the first request would be read as the second one."""
    seen: list[bytes] = []
    let_go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(b"early"))
        await let_go.wait()
        seen.append(head + await reader.read(100))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024)
    with anyio.fail_after(20):
        http = client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", max_connections=1)
        assert await fetch(http, bytes(30 * MEGABYTE)) == b"early"
        assert http.open_sockets == 0
        assert await fetch(http, b"{}") == b"early"
        http.close()
        let_go.set()
        await eventually(lambda: len(seen) == 2)
        server.close()


async def test_the_connection_of_a_stream_that_ended_is_kept_only_where_the_pool_has_room_for_it() -> None:
    begin, end = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"2\r\nok\r\n0\r\n\r\n"
    over = asyncio.Event()

    async def handle(exchange: Exchange) -> None:
        if exchange.method != "GET":
            await hello(exchange)
            return
        exchange.writer.write(begin)
        await over.wait()
        exchange.writer.write(end)
        exchange.finished = True

    with anyio.fail_after(20):
        async with listening(handle) as (url, _):
            for size, kept in ((1, 1), (2, 2)):
                over.clear()
                http = client(url, max_connections=size)
                with await http.send("GET", "/", {}, lasting=True) as stream:
                    assert await fetch(http) == b"hello"
                    assert http.open_sockets == 2
                    over.set()
                    assert await stream.read(MEGABYTE) == b"ok"
                assert http.open_sockets == kept
                http.close()


async def test_a_request_whose_answer_had_begun_is_not_sent_again() -> None:
    seen = 0

    async def handle(exchange: Exchange) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            exchange.writer.write(b"HTTP/1.1 200 OK\r\ncontent-le")
            await exchange.writer.drain()
            exchange.writer.close()
        else:
            await exchange.respond(200, b"hello")

    with anyio.fail_after(10):
        async with listening(handle) as (url, _):
            http = client(url)
            assert await fetch(http) == b"hello"
            with pytest.raises(TransportError) as broken:
                await fetch(http, repeatable=True)
            assert (broken.value.sent, broken.value.got_bytes, seen) == (True, True, 2)
            http.close()


@pytest.mark.parametrize("pieces", [1, 2, 7])
async def test_answers_under_the_same_head_are_whole_in_whatever_pieces_they_come(pieces: int) -> None:
    bodies = [b"%010d" % number for number in range(8)]

    async def handle(exchange: Exchange) -> None:
        text = answer(bodies[int(exchange.body)], b"content-type: application/json\r\n")
        size = len(text) // pieces + 1
        for start in range(0, len(text), size):
            exchange.writer.write(text[start : start + size])
            await exchange.writer.drain()
            await asyncio.sleep(0.001)
        exchange.finished = True

    with anyio.fail_after(20):
        async with listening(handle) as (url, connections):
            http = client(url)
            assert [await fetch(http, b"%d" % number) for number in range(8)] == bodies
            assert len(connections) == 1
            http.close()


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.skipif(not Path("/proc").exists(), reason="platform: needs addresses beside 127.0.0.1 and full backlogs")
async def test_an_address_that_swallows_packets_does_not_hide_the_next_one(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = None
    if secure:
        file = certificate(tmp_path)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(file)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with anyio.fail_after(20):
        async with listening(hello, tls) as (url, _):
            port = int(url.rpartition(":")[2].partition("/")[0])
            async with swallowing(port) as address:
                named(monkeypatch, "localhost", address, "127.0.0.1")
                http = client(url.replace("127.0.0.1", "localhost"))
                assert await fetch(http) == b"hello"
                http.close()


async def test_an_address_that_refuses_is_passed_over_at_once_and_all_are_named_when_all_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with anyio.fail_after(20):
        async with listening(hello) as (url, _):
            named(monkeypatch, "two.test", "127.0.0.8", "127.0.0.1")
            http = client(url.replace("127.0.0.1", "two.test"))
            assert await fetch(http) == b"hello"
            http.close()
        named(monkeypatch, "none.test", "127.0.0.7", "127.0.0.8")
        with pytest.raises(TransportError, match=r"ConnectError.*127\.0\.0\.7.*127\.0\.0\.8"):
            await fetch(client("http://none.test:9/"))


@pytest.mark.parametrize("status", [b"000", b"099"])
async def test_a_status_below_those_of_http_is_an_error_and_no_interim_answer(status: bytes) -> None:
    with anyio.fail_after(10):
        async with answering(b"HTTP/1.1 %b X\r\ncontent-length: 2\r\n\r\nok" % status) as (url, _):
            http = client(url)
            with pytest.raises(TransportError, match="is not an HTTP status"):
                await get(http)
            http.close()
