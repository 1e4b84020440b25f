"""Our own `Wire` over a `Channel`: futures by id, no task and no queue on the way of a call.

Calls of one iteration of the event loop share a write. Knows nothing of processes: a channel that can
write without waiting has `congested` and `write`, one that pushes messages has `deliver_to`.

Why no call is lost or answered twice: a request is in `_pending` from before it is written until its caller has the
outcome, and its future is completed once. `_outbox` holds the requests that were not written yet: if the server ends,
these alone were provably not sent. `_given_up` holds the ids of cancelled requests, whose late responses belong to
nobody. All of it is changed by callbacks and callers on one event loop, between two of their awaits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Protocol, runtime_checkable

import anyio
import anyio.abc
import msgspec

from toolweave._json import decode_json
from toolweave._json_types import Json, JsonObject, object_or_empty
from toolweave.connect._channel import Channel, NotSent
from toolweave.connect._session import UNCANCELLABLE, ClientHandlers, Loss, OnNotification
from toolweave.connect._wire.dispatcher import IncomingDispatcher
from toolweave.connect._wire.era_check import EraCheck
from toolweave.connect._wire.posted import HttpCall, PostedRequest, posted_result, posted_text
from toolweave.connect._wire.request_encoder import request_text
from toolweave.connect._wire.responses import invalid, result_of
from toolweave.errors import ConnectionLostError, ProtocolError, ServerError
from toolweave.protocol import methods
from toolweave.protocol.jsonrpc import ForeignId, RequestId, encode_notification
from toolweave.protocol.lenient_messages import (
    MAX_DIGITS,
    LenientMessage,
    RawResult,
    answer_behind,
    answer_id,
    decode_lenient,
    decode_raw_result,
    objects_in,
    own_id,
    without_deep_entries,
)

_log = logging.getLogger("toolweave.connect")
_COURTESY_SECONDS = 1.0
_AT_ONCE = 4
_DOUBT_SECONDS = 0.5
_MAX_GIVEN_UP = 1000
_CHECK_SECONDS = 2.0
_OK = 200
"""The status of HTTP that a response in a channel is judged as."""
_SMALL_BYTES = 4096  # a larger one gains nothing by sharing a write, and is seen to be unsent when it waits alone


@runtime_checkable
class _Pipe(Protocol):
    """A channel that can write messages, one or several with line ends between, without waiting."""

    @property
    def congested(self) -> bool: ...

    def write(self, messages: bytes) -> None: ...

    def queue(self, message: bytes) -> asyncio.Future[None]: ...

    def withdraw(self, queued: asyncio.Future[None]) -> bool: ...


class ChannelWire:
    """One conversation over a channel.

    Attributes:
        over: Whether the conversation is over.
        late_answers: The number of answers to no pending request: late, repeated, or with a wrong id.
        has_streams: Whether each answer has headers and a stream.
    """

    has_streams: ClassVar[bool] = False

    def __init__(
        self, channel: Channel, handlers: ClientHandlers, tasks: anyio.abc.TaskGroup, *, server: str, loss: Loss
    ) -> None:
        self.late_answers: int = 0
        self._channel = channel
        self._note = handlers.on_repair
        self._pipe = channel if isinstance(channel, _Pipe) else None
        self._server = server
        self._loss = loss
        self._last_id = 0
        self._given_up: set[int | str] = set()
        self._doubted: asyncio.Future[Json] | None = None
        self._lists: set[int | str] = set()
        self._posted: dict[int | str, bytes] = {}
        self._pending: dict[int | str, asyncio.Future[Any]] = {}
        self._outbox: dict[int | str, bytes] = {}
        self._flush_is_due = False
        self._incoming = IncomingDispatcher(handlers, tasks, channel.send, server=server)
        self._tasks = tasks
        self._era = EraCheck(self._check_request, seconds=_CHECK_SECONDS)
        self._over = anyio.Event()
        # asking for it costs a system call, on Python 3.11
        self._loop = asyncio.get_running_loop()
        self.over: bool = False

    # Wire

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        schema: JsonObject | None = None,
        request_id: str | None = None,
        on_notification: OnNotification | None = None,
    ) -> Json:
        """Send a request and return its result as it came; see `Wire.request`; it has no separate stream."""
        if self.over:
            raise self._loss(False)
        self._last_id += 1
        key = self._last_id if request_id is None else request_id
        text = request_text(key, method, params)
        # Registered before it is written: over a queue in process the answer can be there before `send` returns.
        answer = self.renew(key)
        if method.endswith("/list"):
            self._lists.add(key)
        sent = False
        try:
            if not self._write(key, text):
                await self._send(key, method, text)
            sent = True
            result = await answer
        except ProtocolError as exc:
            await self._check_era(exc, method, params)
            raise
        except OSError as exc:
            raise self._loss(not isinstance(exc, NotSent)) from None
        except asyncio.CancelledError:
            # Only a request that was sent can be cancelled. Its response may cross the notification; `_given_up` keeps
            # it from being read as that to another request.
            if sent:
                await self.give_up(key, method)
            raise
        finally:
            self.forget(key)
            if not sent and answer.done():
                answer.exception()  # retrieved, so that asyncio does not report it as lost
        if method not in UNCANCELLABLE:
            # Refusals may be checked from now on: a server that refuses all but its handshake has not changed.
            self._era.due_at = 0.0
        return result

    def post(self, members: bytes, call: HttpCall | None = None) -> PostedRequest | None:
        """Send a request at once; see `PostsCalls`.

        Its result is left undecoded where its type is plain (`RawResult`), and is a dict otherwise. The
        sender waits for the answer, then calls `forget`, or `give_up`.
        """
        if self.over:
            return None
        self._last_id += 1
        key = self._last_id
        answer = self.renew(key)
        try:
            sent = self._write(key, posted_text(key, members))
        except NotSent:
            sent = False
        if not sent:
            self.forget(key)
            return None
        self._posted[key] = members
        return key, answer

    def forget(self, key: int | str) -> None:
        """Forget a request that was answered, or was not sent."""
        self._pending.pop(key, None)
        self._posted.pop(key, None)
        self._lists.discard(key)

    def renew(self, key: int | str) -> asyncio.Future[Any]:
        """Return a future for the response to a request, which replaces an earlier one."""
        answer: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        self._pending[key] = answer
        return answer

    def result_in(self, answer: RawResult | Json) -> Json:
        """Return the result in the answer to a posted request; see `posted_result`."""
        return posted_result(answer, self._server)

    async def give_up(self, key: int | str, method: str) -> None:
        """Cancel a request at the server, and forget it."""
        self.forget(key)
        if not self.over:
            await self._give_up(key, method)

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification; nothing is raised when the server is gone."""
        try:
            await self._channel.send(encode_notification(method, params))
        except OSError:
            _log.debug("server %r: a notification %r was not sent", self._server, method)

    async def ended(self) -> None:
        """Wait until the conversation ends otherwise than by our own closing."""
        await self._over.wait()

    def refusal(self, schema: JsonObject) -> str | None:
        """Return None: over a channel no argument is mirrored into a header."""
        return None

    # inside

    async def read(self) -> None:
        """Read messages until the server ends the conversation; every pending request ends with it."""
        deliver_to = getattr(self._channel, "deliver_to", None)
        try:
            # no turn of the event loop between the pipe and the waiting call
            if deliver_to is not None:
                deliver_to(self.handle_text)
            while True:
                self.handle_text(await self._channel.receive())
        except EOFError:
            pass
        finally:
            self.end()

    def end(self) -> None:
        """Fail the pending requests and mark the conversation as over."""
        self.over = True
        self._over.set()
        for key in self._pending:
            self.fail(key, self._loss(key not in self._outbox))

    def fail(self, key: int | str, error: Exception) -> None:
        """End the wait for a response with an error, unless it is over."""
        answer = self._pending.get(key)
        if answer is None or answer.done():
            return
        answer.set_exception(error)

    def handle_text(self, text: bytes) -> None:
        """Handle one line, a JSON text or several; an unreadable one fails only the call it belongs to."""
        # Results of posted requests go to a client as bytes; decoding them here only to encode them again would cost
        # more than the rest.
        if self._posted:
            raw = decode_raw_result(text)
            if raw is not None and raw.id in self._posted:
                posted = self._pending[raw.id]
                if not posted.done():
                    posted.set_result(raw)
                    return
        try:
            messages = decode_lenient(text)
        # A JSON text nested thousands of levels deep is legal JSON and exhausts the decoder's stack; it must cost its
        # own call and no other.
        except (ValueError, RecursionError) as exc:
            self._handle_unreadable(text, exc)
            return
        for message in messages:
            if message.method is msgspec.UNSET:
                self._handle_answer(message, text)
            else:
                self._incoming.dispatch(message)

    def _handle_answer(self, message: LenientMessage, text: bytes) -> None:
        answer: asyncio.Future[Any] | None = self._pending.get(message.id)  # type: ignore[arg-type]
        if answer is None or answer.done():
            answer = self._find(message.id)
        if answer is None:
            self._count(text)
            # JSON-RPC 2.0, 5: the id is null if the request's could not be read. Servers also echo ids as other types;
            # with a single request pending, it can only be meant for that.
            answer = self._only_pending(None if message.id is msgspec.UNSET else message.id)
            if answer is not None:
                self._doubt(answer, message)
            return
        try:
            answer.set_result(result_of(message, self._server, self._note))
        except ProtocolError as exc:
            key = own_id(message.id)
            if key in self._posted:
                self._tasks.start_soon(self._refuse_posted, key, exc)
            else:
                answer.set_exception(exc)
        except ServerError as exc:
            answer.set_exception(exc)

    # the era: a process may be a relay to a server that is replaced while the relay runs

    async def _check_era(self, refusal: ProtocolError, method: str, params: JsonObject) -> None:
        """End the conversation if a request was refused because the server behind it has another era by now.

        Raises:
            ConnectionLostError: It has. The refused request was not begun.
        """
        if self.over:
            return
        if method in UNCANCELLABLE:
            return
        if await self._era.is_other_era(refusal, _OK, method, params):
            self.end()
            why = f"the server does not speak the protocol revision of this connection any more: {refusal.message}"
            raise ConnectionLostError(why, server=self._server, sent=False) from None

    async def _check_request(self, method: str, params: JsonObject) -> tuple[int, JsonObject | ProtocolError]:
        """Send a request of a check of the era; return the status that HTTP would have, and its outcome."""
        self._last_id += 1
        key = self._last_id
        answer = self.renew(key)
        try:
            await self._channel.send(request_text(key, method, params))
            return _OK, await answer
        except ProtocolError as exc:
            return _OK, exc
        except OSError as exc:
            raise self._loss(not isinstance(exc, NotSent)) from None
        finally:
            self.forget(key)

    async def _refuse_posted(self, key: int | str, refusal: ProtocolError) -> None:
        """Fail a posted call by its refusal, after the check of the era."""
        members = self._posted.get(key)
        if members is None:  # given up meanwhile
            return
        outcome: ServerError = refusal
        try:
            request = object_or_empty(decode_json(posted_text(0, members)))
            params = object_or_empty(request.get("params"))
            await self._check_era(refusal, methods.TOOLS_CALL, params)
        except ConnectionLostError as exc:
            outcome = exc
        except (ValueError, RecursionError):
            pass  # arguments that are unusual enough to be the cause of the refusal
        self.fail(key, outcome)

    def _handle_unreadable(self, text: bytes, exc: Exception) -> None:
        if not text.startswith(b"{"):  # a log record may begin with "[" as well as a batch
            self._handle_after_junk(text)
            return
        request_id = answer_id(text)
        if isinstance(exc, RecursionError):
            # One tool with a schema that is nested too deeply would hide all others.
            if request_id in self._lists:
                self._lists.discard(request_id)
                self.handle_text(without_deep_entries(text))
                return
            why = "it is nested too deeply"
        else:
            # Two messages in one line, without a newline between: written by two threads of a server.
            parts = objects_in(text)
            if len(parts) > 1:
                for part in parts:
                    self.handle_text(part)
                return
            why = str(exc)
        self._count(text)
        answer = self._find(request_id)
        if answer is not None:
            answer.set_exception(invalid(self._server, why))
        elif _is_long_number(request_id):
            answer = self._only_pending(request_id)
            if answer is not None:
                self._doubt(answer, LenientMessage(id=request_id))

    def _handle_after_junk(self, text: bytes) -> None:
        """Handle an answer that a server has printed after other text, if it is that of a pending request."""
        self._count_junk(text)
        message = answer_behind(text)
        if message is not None and self._find(message.id) is not None:
            self._handle_answer(message, text)

    def _write(self, key: int | str, text: bytes) -> bool:
        """Write a request, or return False where it has to wait; small ones of one event loop iteration share a write.

        A few of them share one system call. Not all: the server would start only when we are done, and we would wait
        for it.
        """
        is_small = len(text) <= _SMALL_BYTES
        # else the pipe was asked before, and nothing has been written since
        if not self._outbox or not is_small:
            # Asked once for a batch: between here and the flush nothing else writes, as both are in one turn of the
            # loop.
            if self._pipe is None or self._pipe.congested:
                return False
            # A request alone is not delayed to the end of the turn, and a large one needs a separate system call
            # anyway. The collected ones go first: requests keep their order.
            if not is_small or len(self._pending) == 1:
                if self._outbox:
                    self._flush()
                self._pipe.write(text)
                return True
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush_rest)
        self._outbox[key] = text
        if len(self._outbox) >= _AT_ONCE:
            self._flush()
        return True

    async def _send(self, key: int | str, method: str, text: bytes) -> None:
        """Send a request that has to wait, with others of a full pipe in one write."""
        if self._pipe is None:
            await self._channel.send(text)
            return
        queued = self._pipe.queue(text)
        try:
            await queued
        except asyncio.CancelledError:
            # It may have been written in the very turn in which its caller was cancelled, and the server has it then.
            if not self._pipe.withdraw(queued):
                await self.give_up(key, method)
            raise

    def _flush_rest(self) -> None:
        self._flush_is_due = False
        self._flush()

    def _flush(self) -> None:
        if self.over or self._pipe is None or not self._outbox:
            return
        # Taken out before writing: `end` finds in it the requests that were never sent and may be repeated.
        outbox = self._outbox
        self._outbox = {}
        try:
            self._pipe.write(b"\n".join(outbox.values()))
        except NotSent:
            for key in outbox:
                self.fail(key, self._loss(False))

    async def _give_up(self, key: int | str, method: str) -> None:
        """Cancel the request at the server; bounded, so that a full pipe blocks no caller."""
        if len(self._given_up) < _MAX_GIVEN_UP:
            self._given_up.add(key)
        if method in UNCANCELLABLE:
            return
        # Shielded, as the caller is being cancelled; the notification is a courtesy (cancellation: receivers may ignore
        # it), so never long.
        with anyio.move_on_after(_COURTESY_SECONDS, shield=True):
            await self.notify(methods.NOTIFICATIONS_CANCELLED, {"requestId": key, "reason": "the caller gave up"})

    def _find(self, request_id: Any) -> asyncio.Future[Json] | None:
        """Return the pending request with this id, or with the one of ours that it means."""
        answer: asyncio.Future[Json] | None = None
        if isinstance(request_id, (int, str)):
            answer = self._pending.get(request_id)
        if answer is None:
            named = own_id(request_id)
            if named is not None:
                answer = self._pending.get(named)
        if answer is None or answer.done():
            return None
        return answer

    def _only_pending(self, came: ForeignId | None) -> asyncio.Future[Json] | None:
        """Return the only pending request, if an answer with an unknown id can be meant for nothing else.

        Not while an abandoned request may still be answered. A subscription, whose id is a name, is answered at its
        end and is not counted.
        """
        request_id = own_id(came)
        if request_id in self._given_up:
            self._given_up.discard(request_id)
            return None
        if isinstance(request_id, int) and 0 < request_id <= self._last_id:
            return None
        # The late answer of an abandoned request would be taken for that of the waiting one, with wrong content and no
        # error.
        if any(isinstance(key, int) for key in self._given_up):
            return None
        numbered = [answer for key, answer in self._pending.items() if isinstance(key, int)]
        waiting = [answer for answer in numbered if not answer.done()]
        if len(waiting) == 1:
            return waiting[0]
        return None

    def _doubt(self, answer: asyncio.Future[Json], message: LenientMessage) -> None:
        """Fail a request by an answer that must be meant for it, unless its own answer follows at once."""
        if self._doubted is answer:
            return
        self._doubted = answer
        # the value of a result is not used: its request is unknown
        if message.id:
            why = f"its id is {str(message.id)[:40]!r}, which no request had"
        else:
            why = "it has no id"
        error: Exception = invalid(self._server, why)
        if message.error is not msgspec.UNSET:
            try:
                result_of(message, self._server)
            except ServerError as exc:
                error = exc

        def fail() -> None:
            if not answer.done():
                answer.set_exception(error)

        # A server that answers twice, once wrongly, gets a moment for the right one.
        self._loop.call_later(_DOUBT_SECONDS, fail)

    def _count(self, text: bytes) -> None:
        self.late_answers += 1
        self._count_junk(text)

    def _count_junk(self, text: bytes) -> None:
        count = getattr(self._channel, "count_junk", None)
        if count is not None:
            count(text)


def _is_long_number(request_id: RequestId | None) -> bool:
    """Return whether an id has more digits than JSON readers accept in a number, which none of ours has."""
    return isinstance(request_id, str) and len(request_id) >= MAX_DIGITS and request_id.isdigit()


@asynccontextmanager
async def channel_wire(
    channel: Channel, handlers: ClientHandlers, *, server: str, loss: Loss
) -> AsyncGenerator[ChannelWire, None]:
    """Open a wire over a channel for as long as the block lasts."""
    async with anyio.create_task_group() as tasks:
        wire = ChannelWire(channel, handlers, tasks, server=server, loss=loss)
        # The reader lives in the wire's group: leaving the block cancels it and, through `end`, fails whatever still
        # waits.
        tasks.start_soon(wire.read)
        try:
            yield wire
        finally:
            tasks.cancel_scope.cancel()
