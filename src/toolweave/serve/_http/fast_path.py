"""The fast path of plain tool calls over HTTP: an ASGI app before another, which gets everything else.

A plain call has a name, arguments and any `_meta`. It passes every check of the full path: those of headers once for
each distinct set of them. Either the endpoint answers it as any request, and its reply channel is made when it is used
(`layered.py`): so it is where its tool is the server's own, and where there is middleware. Or the endpoint can send it
at once (`SendsCalls`), which also saves a task and a scope; then a call that is not answered in time falls back to the
full path, with the call that was sent, and so does one whose answer has to be processed. One sweep watches over all
calls. Disconnected clients, silence and bounds are handled by the full path only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anyio
import msgspec

from toolweave.protocol import methods
from toolweave.protocol.component_meta import asked_version
from toolweave.protocol.jsonrpc import RequestId
from toolweave.protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSION
from toolweave.serve._auth.gate import OperationGate
from toolweave.serve._auth.middleware import identity_of, may_of, principal
from toolweave.serve._envelope import client_of
from toolweave.serve._http.asgi import (
    SENT,
    App,
    Message,
    Receive,
    Scope,
    Send,
    VisibleHeaders,
    path_of,
)
from toolweave.serve._http.deciding_headers import JudgedHeaders, KeptVerdicts, judged_values
from toolweave.serve._http.guard import Guard
from toolweave.serve._http.layered import LazyReply, ResponseMaker
from toolweave.serve._http.legacy import client_in
from toolweave.serve._http.quick_parse import plain_call, plain_call_of_session
from toolweave.serve._http.response import PostResponse, respond_cancelled, respond_json, respond_late_body
from toolweave.serve._http.session_response import SessionResponse
from toolweave.serve._http.sessions import HttpSession, HttpSessions, InFlight
from toolweave.serve._http.shares import EndpointRequests
from toolweave.serve._plain_calls import PlainCalls, PlainToolCall, SendsCalls, answer_of
from toolweave.serve._sent_call import SentCall
from toolweave.serve.request import Client, Json, Request

_MOMENT_SECONDS = 0.25
"""Seconds before a call falls back to the full path: more than a loaded machine needs for a quick one."""
_SWEEP_SECONDS = 0.05
_LAST_SECONDS = 1.0
_CALL = methods.TOOLS_CALL.encode()
_MODERN = MODERN_VERSION.encode()
_HANDSHAKE = frozenset(version.encode() for version in HANDSHAKE_VERSIONS)


class _FastExchange(msgspec.Struct, eq=False):
    """A request on the fast path.

    Attributes:
        task: The task that serves it.
        begun: When it came, on the event loop's clock.
        sent: Its call, once that was sent.
        session: Its session, if it has one.
        key: Its id.
        settled: Whether its task waits no more, for the body or for the answer.
        late: Whether its body did not come in time.
        aborted: Whether the server ends.
        cancelled: Whether its client cancelled it, or its session ended.
        work: The scope of what answers it, where that is the endpoint.
        reply: Its reply channel then.
        counted: Holds its session open, until its client disconnects.
    """

    task: asyncio.Task[Any] | None
    begun: float
    sent: SentCall | None = None
    session: HttpSession | None = None
    key: RequestId = 0
    settled: bool = False
    late: bool = False
    aborted: bool = False
    cancelled: bool = False
    work: anyio.CancelScope | None = None
    reply: LazyReply | None = None
    counted: InFlight | None = None

    def cancel(self) -> None:
        """End it: the server ends."""
        self.aborted = True
        self.stop()

    def stop(self) -> None:
        """End it with an answer that says so."""
        if self.work is not None:
            self.work.cancel()
        else:
            self.wake()

    def join(self, session: HttpSession) -> None:
        """Run in a session, which it holds open."""
        self.session = session
        self.counted = session.count()
        session.running[self.key] = _ByClient(self)

    def leave(self) -> None:
        """End its part in its session."""
        if self.counted is not None:
            self.counted.release()
        if self.session is not None:
            self.session.running.pop(self.key, None)

    def wake(self) -> None:
        """Let its task continue without the answer, or without the body; from now on its client is watched."""
        if self.settled:
            return
        if self.reply is not None:
            self.settled = True
            self.reply.begin()
        elif self.sent is not None:
            self.sent.renew()
        elif self.task is not None:
            self.late = True
            self.task.cancel()


class _ByClient(msgspec.Struct, frozen=True, eq=False):
    """The end of an exchange by its client: `notifications/cancelled`, or the end of its session."""

    exchange: _FastExchange

    def cancel(self) -> None:
        """End it."""
        reply = self.exchange.reply
        # A cancellation that crosses the answer on the way does nothing.
        if reply is None or not reply.answered:
            self.exchange.cancelled = True
            self.exchange.stop()


class _Plain(msgspec.Struct, frozen=True, eq=False):
    """A plain call, and who calls.

    Attributes:
        call: The call.
        client: The client, the same object for all of its calls.
        session: Its session, if it has one.
    """

    call: PlainToolCall
    client: Client
    session: HttpSession | None


class FastPath:
    """Answers plain calls; `before(app)` is the ASGI app.

    Args:
        plain: Which calls are plain, and what sends them.
        answer: Answers a request.
        guard: Checks headers.
        acceptable: Whether a client with this `Accept` accepts the content types of responses.
        gate: Refuses operations that a token lacks scopes for.
        requests: The running requests of the endpoint, which it cancels when it ends.
        sessions: The sessions of legacy clients; None without sessions.
        responses: Makes the responses of the full path.
    """

    def __init__(
        self,
        plain: PlainCalls,
        answer: Callable[[Request], Awaitable[Json]],
        *,
        guard: Guard,
        acceptable: Callable[[bytes], bool],
        gate: OperationGate,
        requests: EndpointRequests,
        sessions: HttpSessions | None,
        responses: ResponseMaker,
    ) -> None:
        self._takes = plain.takes
        self._calls = plain.sender
        self._request = answer
        self._responses = responses
        self._guard = guard
        self._acceptable = acceptable
        self._gate = gate
        self._running = requests.running
        self._places = requests.places
        # with an event store every answer is an event; without streams nothing differs
        if sessions is None or sessions.store is None:
            self._sessions = sessions
        else:
            self._sessions = None
        self._bounds = responses.bounds
        self._judged = KeptVerdicts(self._judge)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeping = False

    def before(self, app: App, path: str | None = None) -> App:
        """Return the app that answers plain calls to a path, or to any, and hands all else to `app`."""
        return partial(self._serve, app, path)

    def _serve(self, app: App, path: str | None, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["method"] == "POST" and (path is None or path_of(scope) == path):
            asked = self._asked(scope["headers"])
            if asked is not None:
                return self._answered(app, asked, scope, receive, send)
        return app(scope, receive, send)

    async def _answered(self, app: App, asked: tuple[bool, bytes], scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose headers are those of a plain call."""
        place = self._places.enter(scope)
        if place is None:  # the full path refuses it
            await app(scope, receive, send)
            return
        try:
            await self._tried(app, asked, scope, receive, send)
        finally:
            place.leave()

    async def _tried(self, app: App, asked: tuple[bool, bytes], scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a plain call, or leave the request to the full path."""
        # The sweep may cancel this task once, while it waits for the body: the only wait here that has no scope, as
        # nearly every body is there already. `_was_late` takes that cancellation back, and no other one.
        exchange = self._begin()
        try:
            try:
                message = await receive()  # the first part of the body, nearly always all
            except asyncio.CancelledError:
                if await self._was_late(exchange, send):
                    return
                raise
            sent: SentCall | None = None
            plain = self._plain(asked, scope, message)
            calls = self._calls
            if plain is not None:
                if calls is not None and not calls.layered:
                    sent = self._send(calls, exchange, plain, scope)
                    if sent is not None and await self._answer(exchange, sent, receive, send):
                        return
                    is_layered = sent is None and plain.call.has_more
                else:
                    is_layered = True
                if is_layered and self._takes(plain.call.name):
                    await self._layered(exchange, plain, scope, receive, send)
                    return
        finally:
            self._running.discard(exchange)
            exchange.leave()
        if sent is None:
            await app(scope, partial(_replayed, [message], receive), send)
            return
        try:
            await app({**scope, SENT: sent}, partial(_replayed, [message], receive), send)
        finally:
            sent.end()

    def _begin(self) -> _FastExchange:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        exchange = _FastExchange(asyncio.current_task(loop), loop.time())
        self._running.add(exchange)
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)
        return exchange

    # eligibility

    def _asked(self, raw: Sequence[tuple[bytes, bytes]]) -> tuple[bool, bytes] | None:
        """Read the headers: return whether a call is modern, and the name of its tool, or that of its session.

        None where they are not those of a plain call, or any check refuses them.
        """
        # A repeated header is rare, and which of its values counts is for the full path to decide.
        headers = dict(raw)
        if len(headers) != len(raw):
            return None
        # A missing length does not pass here: a chunked body is read by the full path, which bounds it.
        if not self._guard.takes_size(headers, headers.get(b"content-length", b"")):
            return None
        modern = self._judged[judged_values(headers)]
        if modern is None:
            return None
        named = headers.get(b"mcp-name" if modern else b"mcp-session-id")
        if named is None:
            return None
        return (modern, named)

    def _judge(self, headers: JudgedHeaders) -> bool | None:
        """Return whether headers are of a modern call (True) or one in a session (False), None where of neither."""
        if not self._passes(headers):
            return None
        return self._era(headers)

    def _passes(self, headers: JudgedHeaders) -> bool:
        """Whether every check passes that depends on these headers alone."""
        # Pages of browsers need CORS headers in the response, and chunks a bound while they are read: both are for the
        # full path.
        if b"origin" in headers or b"transfer-encoding" in headers:
            return False
        return self._guard.verdict("POST", headers) is None and self._acceptable(headers.get(b"accept", b""))

    def _era(self, headers: JudgedHeaders) -> bool | None:
        version = headers.get(b"mcp-protocol-version")
        if version is None or version in _HANDSHAKE:
            return False
        if version == _MODERN and headers.get(b"mcp-method") == _CALL:
            return True
        return None

    def _plain(self, asked: tuple[bool, bytes], scope: Scope, message: Message) -> _Plain | None:
        """Return the call in a message, if it is a plain one that nothing refuses."""
        if message["type"] != "http.request" or message.get("more_body"):
            return None
        body = message.get("body", b"")
        session: HttpSession | None = None
        modern, named = asked
        if modern:
            call = plain_call(named, body)
            if call is None or call.client is None:
                return None
            client = call.client
        else:
            call = plain_call_of_session(body)
            if call is None:
                return None
            session = self._session(named, scope, call.id)
            if session is None:
                return None
            client = session.client
        if self._refuses(scope, call):
            return None
        return _Plain(call, client, session)

    def _send(self, calls: SendsCalls, exchange: _FastExchange, plain: _Plain, scope: Scope) -> SentCall | None:
        """Send a call, if that can be done at once."""
        # The token decides what the client may do, and the client that is kept for equal envelopes has none.
        if self._gate.authorizes:
            client = self._client(plain, scope)
        else:
            client = plain.client
        loop = self._loop or asyncio.get_running_loop()
        sent = exchange.sent = calls.send(plain.call, client, loop)
        exchange.key = plain.call.id
        if sent is not None and plain.session is not None:
            exchange.join(plain.session)
        return sent

    def _refuses(self, scope: Scope, call: PlainToolCall) -> bool:
        """Return whether the token of a request lacks scopes for a call; without a token, no scopes are held."""
        params: Json = {"name": call.name} if call.meta is None else {"name": call.name, "_meta": call.meta}
        # A plain tool names no scopes in its newest version, so only rules can add some; `_meta` may name an older
        # version.
        if not self._gate.rules_of_tools and (not call.has_more or asked_version(params) is None):
            return False
        return self._gate.refusal(scope, ((methods.TOOLS_CALL, params),)) is not None

    def _session(self, named: bytes, scope: Scope, key: RequestId) -> HttpSession | None:
        """Return the session of a request; None if this process has none, or its id is that of a running request."""
        if self._sessions is None:
            return None
        session = self._sessions.find(named.decode("latin-1"), principal(scope))
        # An id that is in use is an error, with a message that the full path has.
        if session is None or key in session.running:
            return None
        return session

    # its way through the endpoint

    async def _layered(
        self, exchange: _FastExchange, plain: _Plain, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a call as any request: through middleware if there is some, behind which it may be sent at once."""
        call = plain.call
        session = plain.session
        exchange.key = call.id
        if session is not None:
            exchange.join(session)
        work = exchange.work = anyio.CancelScope()
        make = partial(self._response, exchange, work, receive, send)
        reply = exchange.reply = LazyReply(make, send, call.id, () if session is None else (session.header,))
        with work:
            try:
                await reply.fill(self._request(self._requested(plain, scope, reply)))
            finally:
                if reply.response is not None:
                    reply.response.close()
        if work.cancelled_caught and not reply.answered:
            await self._broken_off(exchange, reply.begin())
        if isinstance(reply.response, SessionResponse) and session is not None:
            session.streams.pop(reply.response.stream_name, None)

    def _requested(self, plain: _Plain, scope: Scope, reply: LazyReply) -> Request:
        """Return the request that a call is to the endpoint."""
        call = plain.call
        client = self._client(plain, scope)
        params: Json = {"name": call.name}
        if call.meta is not None:
            params["_meta"] = call.meta
        if call.arguments is not None:
            params["arguments"] = call.arguments
        headers = VisibleHeaders(scope["headers"])
        return Request(methods.TOOLS_CALL, params, client, reply, call.id, headers, takes_texts=True)

    async def _broken_off(self, exchange: _FastExchange, response: PostResponse) -> None:
        """Answer for a call that was cancelled."""
        with anyio.move_on_after(_LAST_SECONDS, shield=True):
            if exchange.aborted or exchange.session is None or not isinstance(response, SessionResponse):
                await response.broken_off()
            else:
                await response.cut_off(exchange.session.ended)
        response.close()

    def _client(self, plain: _Plain, scope: Scope) -> Client:
        """Return the client of a call with its identity, as the full path does."""
        if plain.session is not None:
            return client_in(plain.session, scope)
        if plain.call.meta is None or not self._gate.authorizes:
            return plain.client
        return client_of(plain.call.meta, identity_of(scope), may_of(scope))

    def _response(self, exchange: _FastExchange, work: anyio.CancelScope, receive: Receive, send: Send) -> PostResponse:
        """Make the response of the full path for a call that needs it."""
        session = exchange.session
        counted = exchange.counted
        if session is None or counted is None or self._sessions is None:
            response = self._responses.modern(receive, send, work)
        else:
            response = self._responses.of_session(session, receive, send, work)
            response.join(session, counted, self._sessions.retry)
        response.request_id = exchange.key
        response.begin()
        return response

    # its way

    async def _was_late(self, exchange: _FastExchange, send: Send) -> bool:
        """Return whether a request was cancelled because its body was late; that error is then sent."""
        if not exchange.late or exchange.task is None:
            return False
        exchange.settled = True
        # Taken back before anything is awaited, or the response would also be cancelled.
        exchange.task.uncancel()
        with anyio.move_on_after(_LAST_SECONDS, shield=True):
            if exchange.aborted:
                await respond_cancelled(send)
            else:
                await respond_late_body(send)
        return True

    async def _answer(self, exchange: _FastExchange, sent: SentCall, receive: Receive, send: Send) -> bool:
        """Write the result; return False to fall back to the full path."""
        answer = await answer_of(sent)
        exchange.settled = True
        if answer is None:
            if not (exchange.aborted or exchange.cancelled):
                return False
            # The upstream is notified that nobody waits any more; then the client gets an error that says why.
            await sent.give_up()
            await self._broken_off(exchange, self._response(exchange, anyio.CancelScope(), receive, send))
            return True
        text = sent.text(exchange.key, answer)
        if text is None:
            return False
        sent.end()
        await respond_json(send, 200, text, () if exchange.session is None else (exchange.session.header,))
        return True

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Move calls that take too long to the full path, and end requests whose body is late."""
        # One timer for all calls: most are answered long before it fires, and a timer for each would cost more than the
        # calls that it finds. It runs only while there are calls.
        exchanges = [one for one in self._running if isinstance(one, _FastExchange)]
        now = loop.time()
        for one in exchanges:
            # what has neither a call nor a reply channel still waits for its body
            has_body = one.sent is not None or one.reply is not None
            if now - one.begun > (_MOMENT_SECONDS if has_body else self._bounds.body):
                one.wake()
        self._sweeping = bool(exchanges)
        if exchanges:
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)


async def _replayed(waiting: list[Message], receive: Receive) -> Message:
    """Return the messages that were received already, then those to come: an ASGI `receive`."""
    if waiting:
        return waiting.pop()
    return await receive()
