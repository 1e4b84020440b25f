"""Answers that take a while: streams of events, clients that go away, clients that do not read."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from tests.serve.exchanges import (
    call,
    call_body,
    connected,
    events,
    exchange,
    handshake,
    head,
    modern_headers,
    read_until,
)
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_http
from toolweave.errors import RequestError
from toolweave.serve._http.app import HttpLimits
from toolweave.serve._http.response import PostResponse, ResponseLimits


async def begin(stream: SocketStream, url: str, tool: str, **options: Any) -> None:
    body = call_body(tool, **options)
    await stream.send(head(url, headers={**modern_headers(tool), "Content-Length": str(len(body))}) + body)


@pytest.mark.requirement("C13", "R99")
async def test_progress_makes_the_answer_a_stream_that_ends_with_the_result() -> None:
    async with served_http(doing_server()) as url:
        answer = await call(url, "steps", meta={"progressToken": "p-1"})

    received = events(answer.body)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-accel-buffering"] == "no"
    assert [one["params"]["progressToken"] for one in received[:-1]] == ["p-1"] * (len(received) - 1)
    assert received[-1]["id"] == 7
    assert received[-1]["result"]["content"] == [{"type": "text", "text": "done"}]


async def test_an_event_reaches_the_client_while_the_call_still_runs() -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url, connected(url) as stream:
        await begin(stream, url, "report", meta={"progressToken": 1})
        first = await read_until(stream, b"begun")
        assert not doings.finished.is_set()
        doings.release.set()
        last = await read_until(stream, b"released")

    assert b"notifications/progress" in first
    assert b'"result"' in last


@pytest.mark.parametrize("tool", ["wait", "report"], ids=["silent", "streaming"])
async def test_a_client_that_goes_away_cancels_its_modern_call(tool: str) -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        async with connected(url) as stream:
            await begin(stream, url, tool, meta={"progressToken": 1})
            await doings.started.wait()
        await doings.cancelled.wait()
        assert (await call(url, "add", {"a": 1, "b": 1})).status == 200

    assert not doings.finished.is_set()


async def test_with_json_response_too_a_client_that_goes_away_cancels_its_call() -> None:
    doings = Doings()
    async with served_http(doing_server(doings), json_response=True) as url:
        async with connected(url) as stream:
            await begin(stream, url, "wait")
            await doings.started.wait()
        await doings.cancelled.wait()


async def test_a_client_that_goes_away_does_not_cancel_its_handshake_era_call() -> None:
    doings = Doings()
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "wait", "arguments": {}},
    }
    body = json.dumps(message).encode()
    async with served_http(doing_server(doings)) as url:
        _, session = await handshake(url)
        async with connected(url) as stream:
            await stream.send(head(url, headers={**session, "Content-Length": str(len(body))}) + body)
            await doings.started.wait()
        assert (await call(url, "add", {"a": 1, "b": 1})).status == 200
        doings.release.set()
        await doings.finished.wait()

    assert not doings.cancelled.is_set()


async def test_a_silent_call_keeps_its_connection_alive_with_comments() -> None:
    doings = Doings()
    limits = HttpLimits(ping_seconds=0.05, shutdown_seconds=2)
    async with served_http(doing_server(doings), limits=limits) as url, connected(url) as stream:
        await begin(stream, url, "wait")
        said = await read_until(stream, b"\r\n: ")
        doings.release.set()
        last = await read_until(stream, b"released")

    assert b"text/event-stream" in said
    assert b'"result"' in last


async def test_a_call_that_is_quick_is_not_watched() -> None:
    asked: list[str] = []

    async def receive() -> dict[str, Any]:
        asked.append("receive")
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    sent: list[Any] = []
    async with anyio.create_task_group() as tasks:
        exchange_ = PostResponse(receive, send, anyio.CancelScope(), tasks, ResponseLimits(body_bytes=1), streams=True)
        await exchange_.result({"content": []})
        exchange_.close()
        await anyio.wait_all_tasks_blocked()

    assert asked == []
    assert json.loads(sent[1]["body"]) == {"jsonrpc": "2.0", "id": 0, "result": {"content": []}}


async def test_a_client_that_does_not_read_is_given_up() -> None:
    async def receive() -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    async def full(message: Any) -> None:
        await anyio.sleep_forever()

    work = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        with work:
            bounds = ResponseLimits(body_bytes=1, stalled=0.01)
            exchange_ = PostResponse(receive, full, work, tasks, bounds, streams=True)
            try:
                await exchange_.notify("notifications/progress", {})
                await anyio.sleep_forever()
            finally:
                exchange_.close()

    assert work.cancelled_caught


async def test_nothing_is_said_after_the_result() -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    async with anyio.create_task_group() as tasks:
        exchange_ = PostResponse(receive, send, anyio.CancelScope(), tasks, ResponseLimits(body_bytes=1), streams=True)
        await exchange_.notify("notifications/message", {"data": 1})
        await exchange_.result({})
        await exchange_.notify("notifications/message", {"data": 2})
        exchange_.close()

    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body", "http.response.body"]
    assert sent[-1]["more_body"] is False


async def test_a_result_that_is_no_json_becomes_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    async with anyio.create_task_group() as tasks:
        exchange_ = PostResponse(receive, send, anyio.CancelScope(), tasks, ResponseLimits(body_bytes=1), streams=True)
        await exchange_.result({"content": object()})
        exchange_.close()

    assert json.loads(sent[1]["body"])["error"] == {"code": -32603, "message": "Internal error"}
    assert "cannot be written as JSON" in caplog.text


async def test_a_modern_client_cannot_be_asked_on_the_way() -> None:
    async def nothing(*_: Any) -> Any:
        raise AssertionError

    async with anyio.create_task_group() as tasks:
        exchange_ = PostResponse(
            nothing, nothing, anyio.CancelScope(), tasks, ResponseLimits(body_bytes=1), streams=True
        )
        exchange_.close()
        with pytest.raises(RequestError, match="cannot be sent"):
            await exchange_.ask("roots/list", {})


async def test_a_stream_of_another_method_is_the_sdks_and_works_beside() -> None:
    body = call_body("", method="subscriptions/listen", notifications={"toolsListChanged": True})
    async with served_http(doing_server()) as url, connected(url) as stream:
        headers = {**modern_headers("", "subscriptions/listen"), "Content-Length": str(len(body))}
        await stream.send(head(url, headers=headers) + body)
        received = await read_until(stream, b"acknowledged")
        assert (await exchange(url, headers=modern_headers("add"), body=call_body("add", {"a": 1, "b": 2}))).status

    assert b"text/event-stream" in received
