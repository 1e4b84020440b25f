"""A session is in use while one of its requests runs for a client, and not longer, however the request ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.gateway.plain_callers import Plain, again, long_way, plain
from tests.serve.serving import served_http
from tests.serve.test_http_life import running
from toolweave import tool
from toolweave.serve import HttpLimits, McpServer, create_mcp_server

TEST_SECONDS = 60

pytestmark = pytest.mark.slow

REVISION = "2025-11-25"


class Held:
    """A server with one tool that waits.

    Attributes:
        running: Set once the tool runs.
        released: Lets the tool continue.
    """

    def __init__(self) -> None:
        self.running = anyio.Event()
        self.released = anyio.Event()

    def server(self) -> McpServer:
        @tool
        async def hold(fails: bool = False) -> str:
            """Wait, then return a text or fail."""
            self.running.set()
            await self.released.wait()
            if fails:
                raise ValueError("failed")
            return "held"

        return create_mcp_server(name="held", version="1", tools=[hold])


def status_of_another_session(url: str) -> int:
    """Return the status of a handshake: 503 while the only session is in use, 200 once it could be replaced."""
    params = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "c", "version": "0"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    client = Plain(url, REVISION)
    try:
        return client.talk(json.dumps(message).encode(), {})[0]
    finally:
        client.close()


async def answered(held: Held, client: Plain, url: str) -> None:
    held.released.set()
    assert (await anyio.to_thread.run_sync(client.answer))[0] == 200


async def cancelled(held: Held, client: Plain, url: str) -> None:
    async with again(client, url) as second:
        await second.notify("notifications/cancelled", requestId=7)
    status, _, answer = await anyio.to_thread.run_sync(client.answer)
    assert (status, answer["error"]["message"]) == (200, "Request cancelled")


async def left(held: Held, client: Plain, url: str) -> None:
    client.close()  # the call continues: in this era only a notification cancels it


@pytest.mark.parametrize("wraps", [[], [long_way]], ids=["short", "long"])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("end", [answered, cancelled, left])
async def test_a_session_can_be_replaced_once_its_request_has_ended(
    end: Callable[[Held, Plain, str], Any], fails: bool, wraps: list[Any]
) -> None:
    held = Held()
    limits = HttpLimits(sessions=1, shutdown_seconds=2)
    async with (
        served_http(held.server(), middleware=wraps, limits=limits) as url,
        plain(url, REVISION) as client,
    ):
        await anyio.to_thread.run_sync(lambda: client.send(*client.call("hold", {"fails": fails}, key=7)))
        await held.running.wait()
        assert await anyio.to_thread.run_sync(status_of_another_session, url) == 503

        await end(held, client, url)
        while (status := await anyio.to_thread.run_sync(status_of_another_session, url)) != 200:
            assert status == 503
            await anyio.sleep(0.05)
        held.released.set()


async def test_a_cancellation_that_crosses_the_answer_on_its_way_does_not_cut_it() -> None:
    begun, cancelled_by_then = anyio.Event(), anyio.Event()

    def slow(app: Any) -> Any:
        async def serve(scope: Any, receive: Any, send: Any) -> None:
            async def send_later(event: Any) -> None:
                if event["type"] == "http.response.body" and b"the answer" in event.get("body", b""):
                    begun.set()
                    await cancelled_by_then.wait()
                await send(event)

            await app(scope, receive, send_later)

        return serve

    @tool
    async def text() -> str:
        """Return a text."""
        return "the answer"

    server = create_mcp_server(name="slow", version="1", tools=[text])
    async with (
        running(slow(server.asgi_app(limits=HttpLimits(shutdown_seconds=2)))) as base,
        plain(f"{base}/mcp", REVISION) as client,
    ):
        await anyio.to_thread.run_sync(lambda: client.send(*client.call("text", {}, key=7)))
        await begun.wait()
        async with again(client, f"{base}/mcp") as second:
            await second.notify("notifications/cancelled", requestId=7)
        cancelled_by_then.set()
        status, _, answer = await anyio.to_thread.run_sync(client.answer)

    assert (status, answer["result"]["content"][0]["text"]) == (200, "the answer")


@pytest.mark.parametrize("wraps", [[], [long_way]], ids=["short", "long"])
async def test_a_request_with_the_id_of_one_that_runs_in_its_session_is_refused(wraps: list[Any]) -> None:
    held = Held()
    async with served_http(held.server(), middleware=wraps) as url, plain(url, REVISION) as client:
        client.send(*client.call("hold", {}, key=7))
        await held.running.wait()
        async with again(client, url) as second:
            status, _, refused = await second.ask(*second.call("hold", {}, key=7))
            held.released.set()
            first = await anyio.to_thread.run_sync(client.answer)
            reused = await second.ask(*second.call("hold", {}, key=7))

    assert (status, refused["error"]["code"]) == (400, -32600)
    assert "still running" in refused["error"]["message"]
    assert [one[2]["result"]["content"][0]["text"] for one in (first, reused)] == ["held", "held"]
