"""Kept connections that the server closes: a request is sent again only if it provably was not received."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import threading
from collections.abc import AsyncGenerator, Callable

import anyio
import anyio.to_thread
import pytest

from toolweave.http import HttpClient, Socket, TransportError

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the bytes that were not received")
BODY = b"x" * 300
REQUEST = b"POST /mcp HTTP/1.1\r\nhost: server\r\ncontent-length: 300\r\n\r\n" + BODY
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
SECONDS = 10.0

End = Callable[[socket.socket], None]


def close(connection: socket.socket) -> None:
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def half_close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)


class Server:
    """A blocking server in a thread, which serves one connection after the other and ends each.

    If it is `corked`, the last response leaves together with the end.

    Attributes:
        received: The number of whole requests that each connection has received.
        ended: Set when a connection has ended.
    """

    def __init__(self, end: End, *, responses: int, corked: bool = False) -> None:
        self.received: list[int] = []
        self.ended = threading.Event()
        self._end = end
        self._responses = responses
        self._is_corked = corked
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._listener.getsockname()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        connection.settimeout(SECONDS)
        self.received.append(0)
        for number in range(1, self._responses + 1):
            if not self._receive(connection):
                return
            if self._is_corked and number == self._responses:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
            connection.sendall(RESPONSE)
        if self._responses == 0:
            self._receive(connection)
        self._end(connection)
        self.ended.set()
        while connection.recv(1000):  # what comes behind the end is not processed
            pass

    def _receive(self, connection: socket.socket) -> bool:
        """Receive one request; return whether there was one."""
        missing = len(REQUEST)
        while missing:
            piece = connection.recv(missing)
            if not piece:
                return False
            missing -= len(piece)
        self.received[-1] += 1
        return True

    def close(self) -> None:
        """Serve no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(SECONDS)


@contextlib.asynccontextmanager
async def serving(end: End, *, responses: int, corked: bool = False) -> AsyncGenerator[Server]:
    server = Server(end, responses=responses, corked=corked)
    try:
        yield server
    finally:
        await anyio.to_thread.run_sync(server.close)  # meanwhile the event loop closes connections


async def opened(server: Server) -> Socket:
    _, connection = await asyncio.get_running_loop().create_connection(Socket, *server.address)
    return connection


async def exchange(connection: Socket, request: bytes = REQUEST) -> bytes:
    """Send a request and return the body of its response."""
    connection.begin(request)
    while not connection.complete:
        await connection.news()
    return connection.drain()


async def exchange_behind_the_end(server: Server) -> TransportError:
    """Return the error of a request on a kept connection whose end has arrived, but was not read."""
    connection = await opened(server)
    assert await exchange(connection) == b"ok"
    assert server.ended.wait(SECONDS)  # the event loop waits, so it reads nothing
    assert not connection.ended
    with pytest.raises(TransportError) as failed:
        await exchange(connection)
    assert connection.ended
    return failed.value


@linux
@pytest.mark.parametrize("end", [close, reset])
async def test_a_request_that_is_written_after_the_server_closed_or_reset_was_not_received(end: End) -> None:
    with anyio.fail_after(SECONDS):
        async with serving(end, responses=1) as server:
            error = await exchange_behind_the_end(server)
            assert (error.sent, error.got_bytes) == (False, False)
            assert server.received == [1]


@pytest.mark.parametrize("end", [close, reset, half_close])
async def test_a_request_that_the_server_received_before_it_ended_may_have_been_processed(end: End) -> None:
    with anyio.fail_after(SECONDS):
        async with serving(end, responses=0) as server:
            connection = await opened(server)
            with pytest.raises(TransportError) as failed:
                await exchange(connection)
            assert (failed.value.sent, failed.value.got_bytes) == (True, False)
            assert server.received == [1]


@linux
async def test_a_request_of_which_a_part_is_still_here_when_the_server_closes_was_not_received() -> None:
    with anyio.fail_after(SECONDS), socket.create_server(("127.0.0.1", 0)) as listener:
        _, connection = await asyncio.get_running_loop().create_connection(Socket, *listener.getsockname())
        accepted, _ = listener.accept()
        with accepted, pytest.raises(TransportError) as failed:
            connection.begin(REQUEST + bytes(30_000_000))
            accepted.shutdown(socket.SHUT_WR)
            while True:
                await connection.news()
        assert (failed.value.sent, failed.value.got_bytes) == (False, False)


async def post(http: HttpClient) -> bytes:
    """Send the request, which is not repeatable, through a pool, and return the body of its response."""
    with await http.ask(http.head("POST", "/mcp", {"host": "server"}), BODY) as response:
        return await response.read(100)


@pytest.mark.parametrize("end", [close, reset])
async def test_a_kept_connection_that_ended_unnoticed_costs_no_request(end: End) -> None:
    with anyio.fail_after(SECONDS):
        async with serving(end, responses=1) as server:
            host, port = server.address
            http = HttpClient(f"http://{host}:{port}/mcp", connect_seconds=SECONDS)
            for number in range(1, 20):
                assert await post(http) == b"ok"
                assert server.ended.wait(SECONDS)
                server.ended.clear()
                assert server.received == [1] * number
            http.close()


async def test_a_repeatable_request_that_a_new_connection_did_not_carry_is_not_sent_again() -> None:
    with anyio.fail_after(SECONDS):
        async with serving(close, responses=0) as server:
            host, port = server.address
            http = HttpClient(f"http://{host}:{port}/mcp", connect_seconds=SECONDS)
            with pytest.raises(TransportError):
                await http.ask(http.head("POST", "/mcp", {"host": "server"}), BODY, repeatable=True)
            http.close()
            assert server.received == [1]


async def test_a_request_behind_a_half_closed_connection_is_processed_at_most_once() -> None:
    with anyio.fail_after(SECONDS):
        async with serving(half_close, responses=1) as server:
            host, port = server.address
            http = HttpClient(f"http://{host}:{port}/mcp", connect_seconds=SECONDS)
            assert await post(http) == b"ok"
            assert server.ended.wait(SECONDS)
            try:
                assert await post(http) == b"ok"
            except TransportError as exc:
                is_unknown = exc.sent and not exc.got_bytes  # the server has acknowledged what it ignores
                assert is_unknown
            assert server.received in ([1], [1, 1])
            http.close()


@linux
async def test_a_request_that_waits_for_a_connection_that_ends_is_sent_on_another() -> None:
    with anyio.fail_after(SECONDS):
        async with serving(close, responses=1, corked=True) as server:
            host, port = server.address
            http = HttpClient(f"http://{host}:{port}/mcp", connect_seconds=SECONDS, max_connections=1)
            bodies: list[bytes] = []

            async def one() -> None:
                bodies.append(await post(http))

            async with anyio.create_task_group() as tasks:
                for _ in range(10):
                    tasks.start_soon(one)
            assert bodies == [b"ok"] * 10
            assert server.received == [1] * 10
            http.close()


@linux
async def test_a_server_that_closes_behind_every_third_response_loses_no_request_and_processes_none_twice() -> None:
    with anyio.fail_after(2 * SECONDS):
        async with serving(close, responses=3, corked=True) as server:
            host, port = server.address
            http = HttpClient(f"http://{host}:{port}/mcp", connect_seconds=SECONDS)
            for _ in range(600):
                assert await post(http) == b"ok"
            assert sum(server.received) == 600
            http.close()
