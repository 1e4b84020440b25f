"""A batch over HTTP (revision 2025-03-26): each of its messages as a POST of its own, and one answer for all.

The answer is a stream of events, which may also carry what the server asks on the way; where no stream is wanted it is
the array of the answers. Knows JSON-RPC's envelope and HTTP, and nobody who answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio

from toolweave.protocol.jsonrpc import encode_batch
from toolweave.serve.http.asgi import Message, Receive, Send

__all__ = ["MOST", "answer_batch"]

MOST = 100
"""How many messages a batch may have; each costs as much as a POST of its own."""
_AT_ONCE = 8

Serve = Callable[[bytes, Receive, Send], Awaitable[None]]
"""Answers one message of a batch, given its text, as if it had been posted alone."""


async def answer_batch(members: Sequence[bytes], serve: Serve, receive: Receive, send: Send, *, streams: bool) -> None:
    """Answer the messages of a batch.

    Args:
        members: Their texts.
        serve: Answers one of them.
        receive: ASGI's, after the body.
        send: ASGI's.
        streams: Whether the answer may be a stream of events.
    """
    joint = _Joint(send, streams=streams)
    gone = anyio.Event()
    turns = anyio.Semaphore(_AT_ONCE)

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async def nothing_more() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def one(text: bytes) -> None:
        async with turns:
            await serve(text, nothing_more, partial(_Part(joint).take))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        async with anyio.create_task_group() as parts:
            for text in members:
                parts.start_soon(one, text)
        tasks.cancel_scope.cancel()
    await joint.end()


class _Part:
    """The answer to one message, on its way into the joint one."""

    def __init__(self, joint: _Joint) -> None:
        self._joint = joint
        self._status = 0
        self._events = False
        self._body: list[bytes] = []

    async def take(self, message: Message) -> None:
        """Take what an ASGI app sends: events as they come, anything else when it is whole."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._events = dict(message.get("headers", ())).get(b"content-type", b"").startswith(b"text/event-stream")
            return
        chunk: bytes = message.get("body", b"")
        if self._events:
            await self._joint.event(chunk)
            return
        self._body.append(chunk)
        if not message.get("more_body", False):
            await self._joint.whole(self._status, b"".join(self._body))


class _Joint:
    """The answer to the batch."""

    def __init__(self, send: Send, *, streams: bool) -> None:
        self._send = send
        self._streams = streams
        self._started = False
        self._answers: list[bytes] = []
        self._refusal: tuple[int, bytes] | None = None
        self._lock = anyio.Lock()

    async def event(self, chunk: bytes) -> None:
        """Pass events on."""
        if not chunk:
            return
        async with self._lock:
            if not self._started:
                self._started = True
                headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def whole(self, status: int, body: bytes) -> None:
        """Take an answer that is no stream: a message, a refusal, or the empty receipt of a notification."""
        if body and status == 200 and self._streams:
            await self.event(b"event: message\r\ndata: " + body + b"\r\n\r\n")
        elif body and status == 200:
            self._answers.append(body)
        elif status >= 400 and self._refusal is None:
            self._refusal = (status, body)

    async def end(self) -> None:
        """Finish: end the stream, or send the array, the first refusal, or the receipt."""
        if self._started:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if self._answers:
            status, body = 200, encode_batch(self._answers)
        else:
            status, body = (202, b"") if self._refusal is None else self._refusal
        headers = [(b"content-length", b"%d" % len(body))]
        if body:
            headers.append((b"content-type", b"application/json"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
