"""The handshake-era side of Streamable HTTP: sessions, their requests, and their stream of notifications.

Revisions 2024-11-05 to 2025-11-25. A response is JSON when nothing is sent before the result, and an event stream
otherwise, or whenever events are kept so that it can be resumed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import anyio
import msgspec

from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_REQUEST
from toolweave.protocol.jsonrpc import RequestId, StrictMessage, encode_result
from toolweave.protocol.versions import BATCHING_VERSION
from toolweave.serve._auth.middleware import identity_of, may_of, principal
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._envelope import client_of_handshake
from toolweave.serve._http.accept import accepts_events
from toolweave.serve._http.asgi import SENT, Cancels, Receive, Scope, Send, VisibleHeaders, respond
from toolweave.serve._http.events import replay
from toolweave.serve._http.response import EventResponse, ResponseLimits, respond_error, respond_json
from toolweave.serve._http.resuming import resume_shared
from toolweave.serve._http.session_peers import REMEMBERED, SessionPeers, SharedEvents
from toolweave.serve._http.session_response import SessionResponse
from toolweave.serve._http.sessions import NOTIFICATIONS, HttpSession, HttpSessions, InFlight
from toolweave.serve._http.shares import RETRY_SECONDS, note_stream
from toolweave.serve._messages import answerable_id, cancelled_id, fault_of, is_notification
from toolweave.serve._task_spawner import SpawnsTasks
from toolweave.serve.request import ChangeSubscriptions, Client, Json, Request

_log = logging.getLogger("toolweave.serve")

_SESSION = b"mcp-session-id"
_RESUME = b"last-event-id"
_POST_ONLY = [(b"allow", b"POST")]
_LAST_SECONDS = 1.0


class _Refused(Exception):
    """An HTTP status instead of an answer."""

    def __init__(self, status: int, text: str, *, code: int = INVALID_REQUEST) -> None:
        super().__init__(text)
        self.status = status
        self.error = RequestError(text, code=code)

    async def send(self, send: Send) -> None:
        """Answer with it."""
        if self.status == 503:
            headers = [(b"retry-after", b"%d" % RETRY_SECONDS)]
        else:
            headers = []
        await respond_error(send, self.status, None, self.error, headers)


@dataclass(frozen=True, slots=True)
class _Post:
    """A request as it was posted."""

    id: RequestId
    method: str
    params: Mapping[str, Any]
    scope: Scope
    receive: Receive
    send: Send
    work: anyio.CancelScope


class LegacyHttp:
    """Answers the requests of the legacy era.

    Args:
        endpoint: Answers the requests.
        tasks: Where notifications are written and disconnected clients are watched for.
        sessions: The open sessions; None for a stateless endpoint, where each request is independent.
        bounds: The limits of a response.
        conversations: Notified of every session.
        streams: Whether responses may be event streams.
        peers: The other processes that serve the same sessions, or None.
        path: The path of the endpoint, for them.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        tasks: SpawnsTasks,
        *,
        sessions: HttpSessions | None,
        bounds: ResponseLimits,
        conversations: ChangeSubscriptions | None = None,
        streams: bool = True,
        peers: SessionPeers | None = None,
        path: str = "",
    ) -> None:
        self._endpoint = endpoint
        self._tasks = tasks
        self._sessions = sessions
        self._bounds = bounds
        self._conversations = conversations
        self._streams = streams
        self._peers = peers
        self._path = path
        self._store = None if sessions is None else sessions.store
        self._retry = None if sessions is None else sessions.retry
        self._listening: set[anyio.CancelScope] = set()

    def end_streams(self) -> None:
        """End the streams of notifications: their clients reconnect elsewhere."""
        for work in list(self._listening):
            work.cancel()

    # messages

    async def post(
        self, message: StrictMessage, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope
    ) -> None:
        """Serve one message; its headers were checked."""
        try:
            if message.is_answer or is_notification(message):
                await self._take(message, await self._session(scope), send)
            elif message.method is msgspec.UNSET or message.id is None or message.id is msgspec.UNSET:
                error = RequestError(f"Invalid request: {fault_of(message)}", code=INVALID_REQUEST)
                await respond_error(send, 400, answerable_id(message), error)
            elif message.method == methods.INITIALIZE:
                await self._initialize(message.id, message.params or {}, scope, send)
            else:
                request = _Post(message.id, message.method, message.params or {}, scope, receive, send, work)
                await self._request(request, await self._session(scope))
        except _Refused as exc:
            await exc.send(send)

    async def _take(self, message: StrictMessage, session: HttpSession | None, send: Send) -> None:
        """Acknowledge a notification or an answer, and act on it."""
        if session is not None and self._peers is not None and not _is_for(session, message):
            # Forwarded before it is acknowledged: after a 202 the client does not send it again.
            await self._to_peers(self._peers.forward(session.id, message))
        # Before it is acted on, so that the acknowledgement does not wait for the effect.
        await respond(send, 202, headers=[] if session is None else [session.header])
        if session is not None:
            self._act(session, message)

    def _act(self, session: HttpSession, message: StrictMessage) -> None:
        """Act on a notification or an answer; one for a request of another process does nothing."""
        if message.is_answer:
            session.pending.take(message)
        elif message.method == methods.NOTIFICATIONS_INITIALIZED:
            session.join(self._conversations)
        elif message.method == methods.NOTIFICATIONS_CANCELLED:
            call = _cancelled(session, message)
            if call is not None:
                call.cancel()
        elif self._conversations is not None and isinstance(message.method, str):
            self._conversations.note_from_client(message.method, session.client)

    async def _initialize(self, key: RequestId, params: Mapping[str, Any], scope: Scope, send: Send) -> None:
        """Answer a handshake; a successful one begins a session, or restarts the session that it names."""
        # Room is made before the endpoint is asked: a handshake that cannot get a session has no effect there.
        session = await self._new_session(scope)
        client = Client(version="", principal=principal(scope), identity=identity_of(scope))
        request = Request(methods.INITIALIZE, params, client, _Mute(), key, VisibleHeaders(scope["headers"]))
        try:
            result = await self._endpoint.answer(request)
            body = encode_result(key, result)
        except RequestError as exc:
            await respond_error(send, 200, key, exc)
            return
        except (TypeError, ValueError):  # boundary: a result that is not JSON
            _log.exception("the result of a handshake cannot be written as JSON")
            await respond_error(send, 200, key, RequestError("Internal error", code=INTERNAL_ERROR))
            return
        headers: Sequence[tuple[bytes, bytes]] = ()
        if session is not None and self._sessions is not None:
            session.client = session.latest = client_of_handshake(
                params, result, conversation=session.name, principal=session.principal
            )
            # A session that is restarted keeps its id, which other processes know already.
            if self._peers is not None and _SESSION not in dict(scope["headers"]):
                try:
                    session.id = self._peers.issue(session.client, self._path)
                    self._share(session, self._peers)
                except RequestError as exc:
                    await respond_error(send, 200, key, exc)
                    return
            # Last: a session whose handshake failed is never open.
            self._sessions.add(session)
            headers = [session.header]
        await respond_json(send, 200, body, headers)

    async def _request(self, post: _Post, session: HttpSession | None) -> None:
        if session is None:
            version = dict(post.scope["headers"]).get(b"mcp-protocol-version", BATCHING_VERSION.encode())
            client = Client(
                version=version.decode("latin-1"),
                principal=principal(post.scope),
                may=may_of(post.scope),
                identity=identity_of(post.scope),
            )
        # The id names the request in cancellations and in its stream. Of two running requests with one id,
        # neither could be cancelled.
        elif post.id in session.running:
            raise _Refused(400, "Invalid request: a request with this id is still running")
        else:
            client = client_in(session, post.scope)
        with nullcontext() if session is None else session.count() as counted:
            await self._run(post, client, session, counted)

    async def _run(self, post: _Post, client: Client, session: HttpSession | None, counted: InFlight | None) -> None:
        """Answer a request, in a scope that its client or the end of its session cancels."""
        call = anyio.CancelScope()
        response = SessionResponse(
            post.receive,
            post.send,
            call,
            self._tasks,
            self._bounds,
            streams=self._streams,
            headers=() if session is None else [session.header],
        )
        response.request_id = post.id
        response.begin()
        request = Request(post.method, post.params, client, response, post.id, VisibleHeaders(post.scope["headers"]))
        request.sent = post.scope.get(SENT)
        try:
            # Two scopes: `call` is cancelled by the client or by the end of its session, and then there is somebody to
            # answer; `post.work` by the end of the server or of the connection.
            with call:
                if session is not None:
                    session.running[post.id] = call
                    response.join(session, counted, self._retry)
                    if self._store is not None:  # else it begins with the first notification, or with a wait
                        await response.make_resumable()
                await response.fill(self._answer(request, session))
            if call.cancelled_caught:
                await response.cut_off(session is not None and session.ended)
        finally:
            response.close()
            if session is not None:
                session.running.pop(post.id, None)
                session.streams.pop(response.stream_name, None)
            if post.work.cancel_called:
                with anyio.move_on_after(_LAST_SECONDS, shield=True):
                    await response.broken_off()

    def _answer(self, request: Request, session: HttpSession | None) -> Awaitable[Json]:
        """Answer a request; the session's changed state goes to other processes."""
        if session is not None and self._peers is not None and request.method in REMEMBERED:
            return self._remembered(request, session, self._peers)
        return self._endpoint.answer(request)

    async def _remembered(self, request: Request, session: HttpSession, peers: SessionPeers) -> Json:
        result = await self._endpoint.answer(request)
        # After the endpoint has accepted it: a level or a subscription that was refused is not repeated elsewhere.
        await peers.remember(session.id, StrictMessage("2.0", method=request.method, params=dict(request.params)))
        return result

    # the streams of a session

    async def get(self, scope: Scope, receive: Receive, send: Send, work: anyio.CancelScope) -> None:
        """Carry the notifications of a session, or resume one of its streams."""
        headers = dict(scope["headers"])
        try:
            if not accepts_events(headers.get(b"accept", b"")):
                raise _Refused(406, "Not Acceptable: Client must accept text/event-stream")
            session = await self._session(scope)
            after = ""
            if session is not None:
                if session.can_resume:
                    after = headers.get(_RESUME, b"").decode("latin-1")
                # One stream for notifications in a session: with two of them, each notification would have to be sent
                # on only one.
                if not after and session.notifications.carried:
                    raise _Refused(409, "Conflict: Only one SSE stream is allowed per session")
        except _Refused as exc:
            await exc.send(send)
            return
        if session is None:
            await respond(send, 405, "Method Not Allowed", _POST_ONLY)
            return
        client_in(session, scope)
        response = EventResponse(receive, send, work, self._bounds, [session.header])
        # Before anything is awaited: from now on a second request is refused, and no notification is lost in between.
        if not after:
            session.notifications.carry(response)
        self._listening.add(work)
        session.listening.add(work)
        note_stream(scope, work)
        with session.count():
            try:
                await response.write(b": open\r\n\r\n")
                if after:
                    await self._resume(session, after, response)
                else:
                    if session.shared is not None and session.polls:
                        await session.notifications.prime(self._retry)
                    session.notifications.deliver()
                    await response.until_gone()
            finally:
                self._listening.discard(work)
                session.listening.discard(work)
                session.notifications.drop(response)
                await response.end()

    async def _resume(self, session: HttpSession, after: str, response: EventResponse) -> None:
        """Write the events of a stream that a client has missed, and continue the stream in this response."""
        event = after.removeprefix(session.prefix)
        if event == after:
            return  # of another session, which this client must not learn of
        if session.shared is not None:
            await self._resume_shared(session, session.shared, event, response)
            return
        name = await replay(self._store, event, None, session.prefix)
        if name is None or not name.startswith(session.prefix):
            # The id was put together: the prefix of this session, and the event of another one in the same store.
            return
        stream = session.streams.get(name)
        if stream is None:
            await replay(self._store, event, response, session.prefix)
            return
        try:
            await stream.resume(response, event, self._retry)
            session.notifications.deliver()
            if not stream.ended:
                await response.until_gone()
        finally:
            stream.drop(response)

    async def _resume_shared(
        self, session: HttpSession, events: SharedEvents, event: str, response: EventResponse
    ) -> None:
        found = None
        if self._peers is not None and event == NOTIFICATIONS:
            found = await self._peers.restore(session.id, session.principal, self._path)
        memory = () if found is None else found.memory
        await resume_shared(session, events, event, response, endpoint=self._endpoint, memory=memory, retry=self._retry)

    async def delete(self, scope: Scope, send: Send) -> None:
        """End a session."""
        try:
            session = await self._session(scope)
        except _Refused as exc:
            await exc.send(send)
            return
        if session is None or self._sessions is None:
            await respond(send, 405, "Method Not Allowed", _POST_ONLY)
            return
        # It ends here before the other processes learn of it, so that a store that is away cannot keep it alive here.
        self._sessions.remove(session)
        if self._peers is not None:
            try:
                await self._to_peers(self._peers.end(session.id))
            except _Refused as exc:
                await exc.send(send)
                return
        await respond(send, 200)

    # sessions

    async def _session(self, scope: Scope) -> HttpSession | None:
        """Return the session that a request names; None on a stateless endpoint.

        Raises:
            _Refused: It names none (400), or none that is open and its own (404).
        """
        if self._sessions is None:
            return None
        named = dict(scope["headers"]).get(_SESSION)
        if named is None:
            raise _Refused(400, "Bad Request: Missing session ID")
        session = self._sessions.find(named.decode("latin-1"), principal(scope))
        if session is None:
            session = await self._restored(self._sessions, named.decode("latin-1"), scope)
        if session is None:
            raise _Refused(404, "Session not found")
        return session

    async def _new_session(self, scope: Scope) -> HttpSession | None:
        """Return the session for a handshake; None on a stateless endpoint.

        Raises:
            _Refused: There are too many (503), or it names one that is not open (404).
        """
        if self._sessions is None:
            return None
        if _SESSION in dict(scope["headers"]):
            return await self._session(scope)
        return self._begin(self._sessions, scope)

    def _begin(self, sessions: HttpSessions, scope: Scope) -> HttpSession:
        """Return a new session, for which there is room.

        Raises:
            _Refused: There is no room (503).
        """
        caller = sessions.caller_of(scope)
        if not sessions.make_room(caller):
            raise _Refused(503, "Too many open sessions, and all of them are in use", code=INTERNAL_ERROR)
        return HttpSession(principal(scope), caller, self._tasks, sessions.store)

    # sessions of other processes

    async def _restored(self, sessions: HttpSessions, session_id: str, scope: Scope) -> HttpSession | None:
        """Return a session that began in another process, with its state, or None."""
        owner = principal(scope)
        if self._peers is None:
            found = None
        else:
            found = await self._peers.restore(session_id, owner, self._path)
        # While the store was asked, another request of the same session may have restored it: then that one counts, as
        # two objects for one session would each know half of its requests.
        there = sessions.find(session_id, owner)
        if found is None or there is not None:
            return there
        # One that was unused for too long may still wait for the sweep.
        stale = sessions.by_id(session_id)
        if stale is not None:
            sessions.remove(stale)
        session = self._begin(sessions, scope)
        session.become(session_id, found.client)
        self._share(session, self._peers)
        sessions.add(session)
        session.join(self._conversations)
        client = client_in(session, scope)
        for message in found.memory:
            await self._recall(message, client)
        return session

    def _share(self, session: HttpSession, peers: SessionPeers | None) -> None:
        """Keep the streams of a session for other processes, where they and the session have a store for them."""
        if peers is None or peers.events is None:
            return
        # A store that the owner of the app gave keeps the events already.
        if self._streams and session.store is None:
            session.share(peers.events)

    async def _recall(self, message: StrictMessage, client: Client) -> None:
        """Apply a request that changed the state of the session in another process."""
        if isinstance(message.method, str):
            with suppress(RequestError):  # an upstream that is away costs this, not the session
                await self._endpoint.answer(Request(message.method, message.params or {}, client, _Mute(), 0))

    async def deliver(self, session_id: str, message: StrictMessage | None) -> None:
        """Act on a message of another process about a session; see `session_peers.Deliver`."""
        if self._sessions is None:
            session = None
        else:
            session = self._sessions.by_id(session_id)
        if session is None or self._sessions is None:
            return
        if message is None:
            self._sessions.remove(session)
        elif message.method in REMEMBERED:
            await self._recall(message, session.latest)
        else:
            self._act(session, message)

    async def _to_peers(self, notified: Awaitable[None]) -> None:
        """Wait until other processes have been notified.

        Raises:
            _Refused: They cannot be notified now (503).
        """
        try:
            await notified
        except RequestError as exc:
            raise _Refused(503, exc.message, code=exc.code) from None


def client_in(session: HttpSession, scope: Scope) -> Client:
    """Return the client of a session as this request shows it: each has another token, which may allow more."""
    identity = identity_of(scope)
    if identity is not None:
        session.latest = replace(session.client, may=may_of(scope), identity=identity)
    return session.latest


def _cancelled(session: HttpSession, message: StrictMessage) -> Cancels | None:
    """Return the running request that a notification cancels, or None."""
    key = cancelled_id(message.params or {})
    if key is None:
        return None
    return session.running.get(key)


def _is_for(session: HttpSession, message: StrictMessage) -> bool:
    """Whether an answer or a cancellation is for a request of this process, or a notification for all of them."""
    if message.is_answer:
        return session.pending.waits_for(message)
    if message.method != methods.NOTIFICATIONS_CANCELLED:
        return True
    return _cancelled(session, message) is not None


class _Mute:
    """The reply channel of a handshake, which drops everything."""

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Drop it."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Refuse."""
        raise RequestError(f"{method} cannot be sent before the handshake is complete", code=INTERNAL_ERROR)

    async def release(self) -> None:
        """Do nothing."""
