"""How an endpoint begins and ends: its lifespan, alone and below another app; signals, and calls that still run."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import anyio
import anyio.abc
import anyio.to_thread
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.connect.targets import eventually
from tests.serve.exchanges import call, call_body, connected, events, exchange, handshake, head, modern_headers
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_http
from toolweave import tool
from toolweave.serve import create_mcp_server
from toolweave.serve._http.app import HttpLimits
from toolweave.serve._http.http_server import serve_http
from toolweave.tools import ToolRegistry

TEST_SECONDS = 60

PROGRAM = Path(__file__).with_name("http_process.py")


class Watched(ToolRegistry):
    """A registry that knows whether it is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open = 0

    async def __aenter__(self) -> Self:
        self.open += 1
        return await super().__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.open -= 1
        await super().__aexit__(exc_type, exc, traceback)


def watched_server() -> tuple[Any, Watched]:
    registry = Watched()

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    registry.add(add)
    return create_mcp_server(name="s", version="1", tools=registry), registry


@pytest.mark.requirement("C21")
async def test_the_lifespan_of_the_app_opens_the_toolset_and_closes_it() -> None:
    server, registry = watched_server()

    async with served_http(server) as url:
        during = registry.open
        answer = await call(url, "add", {"a": 1, "b": 2})

    assert (during, registry.open) == (1, 0)
    assert answer.status == 200


@pytest.mark.requirement("C21")
async def test_an_app_answers_the_lifespan_protocol_of_any_asgi_server() -> None:
    server, registry = watched_server()
    app = server.asgi_app()
    said: list[Any] = []
    told_to_stop = anyio.Event()
    started = anyio.Event()
    messages = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> Any:
        kind = next(messages)
        if kind == "lifespan.shutdown":
            await told_to_stop.wait()
        return {"type": kind}

    async def send(message: Any) -> None:
        said.append(message["type"])
        started.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app, {"type": "lifespan"}, receive, send)
        await started.wait()
        assert registry.open == 1
        told_to_stop.set()

    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert registry.open == 0


async def test_a_start_that_fails_is_told_to_the_asgi_server() -> None:
    said: list[Any] = []

    class Broken(ToolRegistry):
        async def __aenter__(self) -> Self:
            raise OSError("no disk")

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        said.append(message)

    app = create_mcp_server(name="s", version="1", tools=Broken()).asgi_app()
    with pytest.raises(OSError, match="no disk"):
        await app({"type": "lifespan"}, receive, send)

    assert said == [{"type": "lifespan.startup.failed", "message": "OSError: no disk"}]


@pytest.mark.requirement("C21")
async def test_below_another_app_the_outer_lifespan_enters_it_and_the_path_is_below_the_mount() -> None:
    server, registry = watched_server()
    inner = server.asgi_app()
    outer = Starlette(routes=[Mount("/tools", app=inner)], lifespan=inner.lifespan)

    async with running(outer) as url:
        answer = await call(url + "/tools/mcp", "add", {"a": 1, "b": 2})
        health = await exchange(url + "/tools/healthz", "GET")
        opened = registry.open

    assert (answer.status, health.body, opened, registry.open) == (200, b"ok", 1, 0)


@asynccontextmanager
async def running(app: Any) -> AsyncGenerator[str]:
    """Serve any ASGI app with uvicorn as it comes."""
    import uvicorn

    here = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, [here])
        await eventually(lambda: server.started, 30)
        yield f"http://127.0.0.1:{here.getsockname()[1]}"
        server.should_exit = True


async def test_a_request_without_the_lifespan_says_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    inner = doing_server().asgi_app()
    outer = Starlette(routes=[Mount("/tools", app=inner)])  # which enters no lifespan of ours

    async with running(outer) as url:
        answer = await exchange(f"{url}/tools/mcp", headers=modern_headers("add"), body=call_body("add"))

    assert answer.status == 500
    assert b"mcp_app.lifespan()" in answer.body
    assert "mcp_app.lifespan()" in caplog.text


async def test_an_app_can_be_entered_again_but_not_twice_at_once() -> None:
    app = doing_server().asgi_app()
    for _ in range(2):
        async with app.lifespan():
            with pytest.raises(RuntimeError, match="already"):
                async with app.lifespan():
                    raise AssertionError


async def test_a_port_that_is_taken_is_an_error_of_the_caller() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await serve_http(doing_server().asgi_app(), port=taken.getsockname()[1])


async def test_a_server_that_is_cancelled_cancels_its_calls_and_frees_its_port() -> None:
    doings = Doings()
    app = doing_server(doings).asgi_app()
    url = ""

    async def serve(*, task_status: anyio.abc.TaskStatus[str]) -> None:
        await serve_http(app, port=0, on_started=task_status.started)

    async with anyio.create_task_group() as tasks:
        url = await tasks.start(serve)
        tasks.start_soon(ignored_call, url + "/mcp")
        await doings.started.wait()
        tasks.cancel_scope.cancel()

    assert doings.cancelled.is_set()
    with socket.create_server(("127.0.0.1", int(url.rpartition(":")[2])), reuse_port=False):
        pass


async def ignored_call(url: str) -> None:
    await call(url, "wait")


@asynccontextmanager
async def process(folder: Path, **options: Any) -> AsyncGenerator[tuple[str, anyio.abc.Process]]:
    command = [sys.executable, str(PROGRAM), json.dumps({"folder": str(folder), **options})]
    async with await anyio.open_process(command, stderr=None) as one:
        assert one.stdout is not None
        try:
            with anyio.fail_after(60):
                yield (await one.stdout.receive()).decode().split()[0] + "/mcp", one
        finally:
            if one.returncode is None:
                one.kill()


async def begin_hold(stream: anyio.abc.SocketStream, url: str) -> bytes:
    body = call_body("hold", meta={"progressToken": 1})
    await stream.send(head(url, headers={**modern_headers("hold"), "Content-Length": str(len(body))}) + body)
    said = b""
    while b"notifications/progress" not in said:
        said += await stream.receive()
    return said


async def rest(stream: anyio.abc.SocketStream) -> bytes:
    return b"".join([chunk async for chunk in stream])


def refuses(url: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0])), timeout=1).close()
    except OSError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_lets_running_calls_finish_and_takes_no_new_ones(number: signal.Signals, tmp_path: Path) -> None:
    async with process(tmp_path) as (url, server), connected(url) as stream:
        await begin_hold(stream, url)
        server.send_signal(number)
        await eventually(lambda: refuses(url), 30)
        (tmp_path / "release").touch()
        said = await rest(stream)
        code = await server.wait()

    assert b"held" in said
    assert code == 0


@pytest.mark.slow
async def test_a_signal_ends_listening_streams_with_their_result(tmp_path: Path) -> None:
    body = call_body("", method="subscriptions/listen", notifications={"toolsListChanged": True})
    headers = {**modern_headers("", "subscriptions/listen"), "Content-Length": str(len(body))}
    async with process(tmp_path, limits={"shutdown_seconds": 300}) as (url, server), connected(url) as stream:
        await stream.send(head(url, headers=headers) + body)
        said = b""
        while b"acknowledged" not in said:
            said += await stream.receive()
        server.send_signal(signal.SIGTERM)
        said = await rest(stream)
        code = await server.wait()

    assert b'"result"' in said
    assert said.endswith(b"0\r\n\r\n")
    assert code == 0


@pytest.mark.slow
async def test_a_signal_ends_the_streams_of_handshake_era_sessions_properly(tmp_path: Path) -> None:
    async with process(tmp_path, limits={"shutdown_seconds": 300}) as (url, server), connected(url) as stream:
        _, session = await handshake(url)
        await stream.send(head(url, "GET", session))
        said = b""
        while b"text/event-stream" not in said:
            said += await stream.receive()
        server.send_signal(signal.SIGTERM)
        said = await rest(stream)
        code = await server.wait()

    assert said.endswith(b"0\r\n\r\n")
    assert code == 0


@pytest.mark.slow
async def test_calls_that_do_not_finish_in_time_are_broken_off(tmp_path: Path) -> None:
    async with process(tmp_path, limits={"shutdown_seconds": 0.2}) as (url, server), connected(url) as stream:
        await begin_hold(stream, url)
        server.send_signal(signal.SIGTERM)
        said = await rest(stream)
        code = await server.wait()

    assert b"held" not in said
    assert said.endswith(b"0\r\n\r\n"), "a stream ends as streams do"
    assert code == 0


@pytest.mark.slow
async def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    async with process(tmp_path, limits={"shutdown_seconds": 300}) as (url, server), connected(url) as stream:
        await begin_hold(stream, url)
        server.send_signal(signal.SIGINT)
        await eventually(lambda: refuses(url), 30)
        server.send_signal(signal.SIGINT)
        said = await rest(stream)
        code = await server.wait()

    assert said.endswith(b"0\r\n\r\n")
    assert code == 0


@pytest.mark.slow
@pytest.mark.requirement("C21")
async def test_replicas_with_the_same_keys_answer_each_others_rounds(tmp_path: Path) -> None:
    keys = ["11" * 32]
    abilities: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    async with process(tmp_path, keys=keys) as (one, _), process(tmp_path, keys=keys) as (other, _):
        asked = (await call(one, "confirm", meta=abilities)).json()["result"]
        name = next(iter(asked["inputRequests"]))
        answered = {name: {"action": "accept", "content": {"name": "Ada"}}}
        again: Any = {"inputResponses": answered, "requestState": asked["requestState"]}
        done = (await call(other, "confirm", meta=abilities, **again)).json()

    assert asked["resultType"] == "input_required"
    assert done["result"]["content"] == [{"type": "text", "text": "hello Ada"}]


@pytest.mark.slow
async def test_a_replica_with_other_keys_does_not(tmp_path: Path) -> None:
    abilities: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    async with process(tmp_path, keys=["11" * 32]) as (one, _), process(tmp_path, keys=["22" * 32]) as (other, _):
        asked = (await call(one, "confirm", meta=abilities)).json()["result"]
        name = next(iter(asked["inputRequests"]))
        again: Any = {
            "inputResponses": {name: {"action": "accept", "content": {"name": "Ada"}}},
            "requestState": asked["requestState"],
        }
        refused = (await call(other, "confirm", meta=abilities, **again)).json()

    assert refused["error"]["code"] == -32602


async def test_the_limits_of_the_app_hold_below_any_server() -> None:
    limits = HttpLimits(body_seconds=0.2)
    async with running(doing_server().asgi_app(limits=limits)) as url, connected(url) as stream:
        await stream.send(head(url + "/mcp", headers={**modern_headers("add"), "Content-Length": "100"}) + b"{")
        said = await rest(stream)

    assert b" 408 " in said
    assert not events(said)


async def test_a_client_whose_body_was_late_gets_the_error_though_sending_takes_time() -> None:
    app = doing_server().asgi_app(limits=HttpLimits(body_seconds=0.2))

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        async def send_later(event: Any) -> None:
            await anyio.sleep(0.3)
            await send(event)

        await app(scope, receive, send_later)

    async with running(slow) as url, connected(url) as stream:
        await stream.send(head(url + "/mcp", headers={**modern_headers("add"), "Content-Length": "100"}))
        said = await rest(stream)

    assert b" 408 " in said


class Unsent:
    """A request whose body never comes, as an ASGI server hands it over.

    Attributes:
        awaited: Set when the app waits for the body.
        status: The status of the response.
        cancelling: How many cancellations the task of the ASGI server is left with.
    """

    def __init__(self, method: str) -> None:
        self.awaited = anyio.Event()
        self._method = method
        self.status = 0
        self.cancelling: int | None = None

    async def run(self, app: Any) -> None:
        headers = {**modern_headers("add", self._method), "Host": "localhost", "Content-Length": "100"}
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await app({"type": "http", "method": "POST", "path": "/mcp", "headers": raw}, self._receive, self._send)
        task = asyncio.current_task()
        assert task is not None
        self.cancelling = task.cancelling()

    async def _receive(self) -> Any:
        self.awaited.set()
        await anyio.sleep_forever()

    async def _send(self, event: Any) -> None:
        self.status = event.get("status", self.status)


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
async def test_a_late_body_leaves_the_task_of_the_asgi_server_as_it_was(method: str) -> None:
    """Else `asyncio.TaskGroup` around the app would take an error in it for a cancellation from outside."""
    app = doing_server().asgi_app(limits=HttpLimits(body_seconds=0.1))
    late = Unsent(method)
    async with app.lifespan():
        await late.run(app)

    assert late.status == 408
    assert late.cancelling == 0


@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
async def test_a_request_whose_body_has_not_come_when_the_server_ends_is_not_called_late(method: str) -> None:
    app = doing_server().asgi_app()
    unsent = Unsent(method)
    async with app.lifespan(), anyio.create_task_group() as tasks:
        tasks.start_soon(unsent.run, app)
        await unsent.awaited.wait()
        app.abort()

    assert unsent.status == 503


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
async def test_an_open_endpoint_that_others_can_reach_is_warned_of(
    host: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(*, task_status: anyio.abc.TaskStatus[str]) -> None:
        await doing_server().serve_http(host, 0, on_started=task_status.started)

    async with anyio.create_task_group() as tasks:
        await tasks.start(serve)
        tasks.cancel_scope.cancel()

    assert ("open to everyone" in caplog.text) is warned


async def test_a_client_that_goes_away_ends_its_call_whoever_runs_the_event_loop() -> None:
    async def serve() -> bool:
        doings = Doings()
        bound = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
        server = uvicorn.Server(uvicorn.Config(doing_server(doings).asgi_app(), log_config=None))
        body = call_body("wait")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [bound])
            async with connected(url) as stream:
                await stream.send(
                    head(url, headers={**modern_headers("wait"), "Content-Length": str(len(body))}) + body
                )
                await doings.started.wait()
            with anyio.move_on_after(30):
                await doings.cancelled.wait()
            server.should_exit = server.force_exit = True
        return doings.cancelled.is_set()

    # as `uvicorn module:app` does; anyio.run would show every timer which event loop it is on
    assert await anyio.to_thread.run_sync(lambda: asyncio.run(serve()))


async def test_a_session_hears_of_changes_whoever_makes_them_and_runs_the_event_loop() -> None:
    async def serve() -> bytes:
        bound = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
        registry = ToolRegistry()
        made = create_mcp_server(name="changing", version="1", tools=registry)
        server = uvicorn.Server(uvicorn.Config(made.asgi_app(), log_config=None))
        data = b""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [bound])
            _, session = await handshake(url)
            async with connected(url) as stream:
                await stream.send(head(url, "GET", session))
                await stream.receive()
                await anyio.to_thread.run_sync(registry.add, tool(lambda: 1, name="one"))
                with anyio.move_on_after(30):
                    while b"list_changed" not in data:
                        data += await stream.receive()
            server.should_exit = server.force_exit = True
        return data

    assert b"notifications/tools/list_changed" in await anyio.to_thread.run_sync(lambda: asyncio.run(serve()))


async def test_answers_of_every_size_and_without_a_body_are_whole_on_one_connection() -> None:
    @tool
    async def fill(size: int) -> str:
        return "z" * size

    def visit(url: str) -> list[tuple[int, int, bool]]:
        parts = urlsplit(url)
        assert parts.hostname is not None
        client = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
        found: list[tuple[int, int, bool]] = []
        client.connect()
        first = client.sock
        asked: list[tuple[str, str, bytes | None, dict[str, str]]] = [
            ("HEAD", "/healthz", None, {}),
            ("GET", "/healthz", None, {}),
            ("POST", "/mcp", call_body("fill", {"size": 10}), modern_headers("fill")),
            ("POST", "/mcp", call_body("fill", {"size": 300_000}), modern_headers("fill")),
            ("POST", "/mcp", b"no JSON", modern_headers("fill")),
            ("GET", "/healthz", None, {}),
        ]
        for method, path, body, headers in asked:
            client.request(method, path, body=body, headers=headers)
            answer = client.getresponse()
            found.append((answer.status, answer.read().count(b"z"), client.sock is first))
        client.close()
        return found

    async with served_http(create_mcp_server(name="s", version="1", tools=[fill])) as url:
        found = await anyio.to_thread.run_sync(visit, url)

    assert found == [
        (200, 0, True),
        (200, 0, True),
        (200, 2 * 10, True),  # in the content and in the structured content
        (200, 2 * 300_000, True),
        (400, 0, True),
        (200, 0, True),
    ]
