"""JSON-RPC batches over HTTP (revision 2025-03-26): each message is handled like a POST, with one response for all.

The response is an event stream, which may also carry requests of the server; where the client takes no stream it is
the array of the answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio

from toolweave.protocol.jsonrpc import StrictMessage, encode_batch
from toolweave.serve._http.asgi import Message, Receive, Send

MOST = 100
"""Maximum messages of a batch; each costs as much as a POST."""
_AT_ONCE = 8

Serve = Callable[[StrictMessage, Receive, Send], Awaitable[None]]
"""Answers one message of a batch as if it had been posted alone."""


async def answer_batch(
    members: Sequence[StrictMessage], serve: Serve, receive: Receive, send: Send, *, streams: bool
) -> None:
    """Answer the messages of a batch.

    Args:
        members: The messages.
        serve: Answers one of them.
        receive: ASGI's, after the body.
        send: ASGI's.
        streams: Whether the answer may be a stream of events.
    """
    joint = _JointResponse(send, streams=streams)
    gone = anyio.Event()
    turns = anyio.Semaphore(_AT_ONCE)

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async def nothing_more() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def one(message: StrictMessage) -> None:
        # Bounded: 100 messages in one POST must not hold more of the server than a few clients do.
        async with turns:
            await serve(message, nothing_more, _MessageResponse(joint).take)

    # One watch for all members: each of them would otherwise receive from the same connection. It is cancelled when the
    # last member is answered, and the inner group waits for these only.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        async with anyio.create_task_group() as parts:
            for message in members:
                parts.start_soon(one, message)
        tasks.cancel_scope.cancel()
    await joint.end()


class _MessageResponse:
    """The response to one message, which becomes part of the joint one."""

    def __init__(self, joint: _JointResponse) -> None:
        self._joint = joint
        self._status = 0
        self._events = False
        self._body: list[bytes] = []

    async def take(self, message: Message) -> None:
        """Receive an ASGI message of the response: events are passed on at once, any other body when it is complete."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            # By the content type, which is known before the body: events are for the client now, a text only when it is
            # whole.
            self._events = dict(message.get("headers", ())).get(b"content-type", b"").startswith(b"text/event-stream")
            return
        chunk: bytes = message.get("body", b"")
        if self._events:
            await self._joint.event(chunk)
            return
        self._body.append(chunk)
        if not message.get("more_body", False):
            await self._joint.whole(self._status, b"".join(self._body))


class _JointResponse:
    """The joint response to the batch."""

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
        """Add a response that is not a stream: a message, an error, or the empty 202 of a notification."""
        is_message = bool(body) and status == 200
        if is_message and self._streams:
            await self.event(b"event: message\r\ndata: " + body + b"\r\n\r\n")
        elif is_message:
            self._answers.append(body)
        # The first one stands for the batch if no member has an answer: one response has one status.
        elif status >= 400 and self._refusal is None:
            self._refusal = (status, body)

    async def end(self) -> None:
        """Finish: end the stream, or send the array, the first error, or the 202."""
        if self._started:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        status = 202
        body = b""
        if self._answers:
            status = 200
            body = encode_batch(self._answers)
        elif self._refusal is not None:
            status, body = self._refusal
        headers = [(b"content-length", b"%d" % len(body))]
        if body:
            headers.append((b"content-type", b"application/json"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
