"""The interface between a connection and its transport (`Wire`), and the session on top of it.

A `Wire` moves requests and notifications as plain JSON objects; a `Session` is a `Wire` after the
handshake, which adds the `_meta` that its era requires. Knows nothing of tools or of restarting.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, ClassVar, Protocol

import anyio
import msgspec

from toolweave._json_types import Json, JsonObject, as_text, finite_number, new_object, object_or_empty
from toolweave._value import Value
from toolweave.connect._client_features.callbacks import NO_CALLBACKS, Callbacks, ClientStandIn
from toolweave.connect._client_features.logs import LogFeed
from toolweave.connect._client_features.question_budget import QuestionBudget
from toolweave.connect._client_features.server_requests import (
    ForwardingHandler,
    ServerRequestHandler,
    client_capabilities,
)
from toolweave.connect._deadline import Deadline
from toolweave.connect._wire.posted import PostsCalls
from toolweave.errors import ProtocolError, ServerError, printable
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_REQUEST
from toolweave.protocol.lenient_notifications import readable_log, readable_progress
from toolweave.protocol.logs import log_message
from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from toolweave.tools import CallQuestions, Progress

UNCANCELLABLE = frozenset({methods.INITIALIZE, methods.SERVER_DISCOVER})
"""The requests of the handshake: a client must not cancel them (basic/utilities/cancellation)."""

Loss = Callable[[bool], ServerError]
"""Makes the error of a lost connection; the argument says whether the request was sent."""

OnNotification = Callable[[str, JsonObject], None]
"""Takes one notification, its method and params; must not wait."""

_REPEATS = 3
_log = logging.getLogger("toolweave.connect")


class Wire(Protocol):
    """The interface of a transport, which sends requests and notifications to one server."""

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        schema: JsonObject | None = None,
        request_id: str | None = None,
        on_notification: OnNotification | None = None,
    ) -> Json:
        """Send a request and return its result as it came.

        `schema` is the called tool's input schema, for arguments that HTTP mirrors into headers
        (SEP-2243). `on_notification` gets the notifications on the request's own stream, before all other
        listeners and where the transport has such a stream. Cancelling the await notifies the server.

        Raises:
            ProtocolError: The server answered with an error.
            ConnectionLostError: The server is gone, or the answer can no longer come.
            AuthRequiredError: The server requires (other) credentials.
        """
        ...

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification; nothing is raised when the server is gone."""
        ...

    @property
    def over(self) -> bool:
        """Whether the conversation is over."""
        ...

    async def ended(self) -> None:
        """Wait until the conversation ends otherwise than by our own closing."""
        ...

    def refusal(self, schema: JsonObject) -> str | None:
        """Return the reason not to offer a tool with this input schema over this wire, or None."""
        ...


class Agreement(Value, frozen=True, kw_only=True):
    """The result of a handshake.

    Attributes:
        version: The protocol revision, such as `"2025-11-25"`.
        modern: True from revision 2026-07-28 on: stateless, every request carries its envelope.
        raw: The handshake's result as it came.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"raw"})
    version: str
    modern: bool
    server_info: JsonObject = msgspec.field(default_factory=new_object)
    capabilities: JsonObject = msgspec.field(default_factory=new_object)
    instructions: str | None = None
    raw: JsonObject = msgspec.field(default_factory=new_object)


class ClientHandlers:
    """This client's side of a conversation: the handlers of the server's messages, and our capabilities.

    Notifications are handled synchronously and in wire order, so that none overtakes an answer.

    Attributes:
        asked: Answers the server's requests.
        may_answer: Whether there is any request that is not refused.
        on_gap: Called when notifications of the server may have been lost.
        on_repair: Called with each part of the server's messages that is outside of the specification and is read.
        on_trouble: Called with a fault of the server that fails no request of ours.
        at_work: The tasks of the connection that are running callbacks of the user.
        start_task: Starts a task that ends with the session, while one is open.
        logs: Takes log messages, or None.
        log_level: The minimum severity that was requested, or None.
    """

    def __init__(
        self,
        on_notification: Callable[[str, JsonObject], None],
        callbacks: Callbacks = NO_CALLBACKS,
        server: str = "",
        stand_in: ClientStandIn | None = None,
        budget: QuestionBudget | None = None,
    ) -> None:
        if budget is None:
            budget = QuestionBudget(server)
        if stand_in is None:
            self.asked: ForwardingHandler | ServerRequestHandler = ServerRequestHandler(
                callbacks, server, budget, self._note
            )
        else:
            self.asked = ForwardingHandler(stand_in.answer, server, budget)
        self.on_gap: Callable[[], None] = lambda: None
        self.on_repair: Callable[[str], None] = lambda problem: None
        self.on_server_fault: Callable[[Exception], None] = lambda error: None
        self.at_work: set[asyncio.Task[Any] | None] = set()
        self.start_task: Callable[..., object] = _no_session
        self.may_answer: bool = callbacks.may_answer or stand_in is not None
        if callbacks.logging is not None:
            self.logs: LogFeed | None = LogFeed(callbacks.logging)
        else:
            self.logs = None
        self.log_level: str | None = callbacks.log_level
        self._callbacks = callbacks
        self._stand_in = stand_in
        self._server = server
        self._on_notification = on_notification
        self._progress: dict[str, Callable[[JsonObject], None]] = {}
        self._sole: OnNotification | None = None
        self._tokens = itertools.count(1)
        self._waiting: set[Deadline] = set()
        self._answering = 0
        self._ignored = False
        self._one_asks = anyio.Lock()
        self._of_call: ServerRequestHandler | None = None

    def capabilities(self, *, modern: bool) -> Json:
        """Return the capabilities to declare, as the era writes them; those of another client as it wrote them."""
        if self._stand_in is not None:
            return dict(self._stand_in.capabilities)
        return client_capabilities(self._callbacks, modern=modern)

    @property
    def modern_log_level(self) -> str | None:
        """The level that modern requests carry; without one a server sends no log messages."""
        if self.log_level is None and self.logs is not None:
            return "info"
        return self.log_level

    def begin_wait(self, deadline: Deadline) -> None:
        """Hold a request's deadline while we answer the server, which may wait for that, until `end_wait`."""
        # A request that begins while questions are answered is held once for each of them, since each of them will
        # release it at its end.
        deadline.hold(self._answering)
        self.asked.budget.begin()
        self._waiting.add(deadline)

    def end_wait(self, deadline: Deadline) -> None:
        """Hold a request's deadline no longer, since it is over."""
        self._waiting.discard(deadline)

    @contextmanager
    def waiting(self, deadline: Deadline) -> Generator[None, None, None]:
        """Hold a request's deadline while we answer the server, during the block."""
        self.begin_wait(deadline)
        try:
            yield
        finally:
            self.end_wait(deadline)

    @asynccontextmanager
    async def asking(
        self, questions: CallQuestions | None, *, modern: bool
    ) -> AsyncGenerator[ServerRequestHandler, None]:
        """Yield the handler of server requests during a call; `questions` answers them if the connection leaves that.

        A legacy server's questions do not say which call they are of: one such call is made at a time.
        """
        if questions is None or (not self.asked.leaves_questions and questions.begin() is None):
            yield self.asked
        elif modern:
            yield self.asked.of_call(questions)
        else:
            # `_of_call` answers every question that arrives, so only one call may have set it. The lock is held for
            # the whole call; a cancelled call leaves it in `finally`.
            async with self._one_asks:
                self._of_call = self.asked.of_call(questions)
                try:
                    yield self._of_call
                finally:
                    self._of_call = None

    @contextmanager
    def working(self) -> Generator[None, None, None]:
        """Mark this task of the connection as running callbacks of the user during the block."""
        task = asyncio.current_task()
        self.at_work.add(task)
        try:
            yield
        finally:
            self.at_work.discard(task)

    def watch_progress(self, callback: Callable[[Progress], None]) -> str:
        """Return a progress token whose notifications go to `callback` until `forget_progress`."""
        return self.watch_progress_params(lambda params: callback(_progress_of(params)))

    def watch_progress_params(self, callback: Callable[[JsonObject], None]) -> str:
        """Return a progress token; the parameters of its notifications go to `callback` as they came."""
        token = f"progress-{next(self._tokens)}"
        self._progress[token] = callback
        return token

    def forget_progress(self, token: str) -> None:
        """Drop later notifications for this token: nothing is reported after completion."""
        self._progress.pop(token, None)

    @contextmanager
    def sole_listener(self, listener: OnNotification) -> Generator[None, None, None]:
        """Give the log messages and other news of the server to the one request that runs during the block."""
        self._sole = listener
        try:
            yield
        finally:
            self._sole = None

    def trouble(self, text: str) -> None:
        """Report a fault of the server that fails no request of ours."""
        self.on_server_fault(ProtocolError(text, server=self._server, code=INVALID_REQUEST))

    def ignore(self, method: str) -> None:
        """Report a request that gets no answer: "The client MUST NOT send JSON-RPC responses" (2026-07-28, HTTP)."""
        text = f"its request {method[:100]!r} was ignored: in this revision a client answers no request over HTTP"
        if not self._ignored:  # once: a server may send any number
            self._ignored = True
            _log.warning("server %r: %s", self._server, text)
        self.trouble(text)

    def notification(
        self, method: str, params: JsonObject, listener: OnNotification | None = None, *, repaired: str = ""
    ) -> None:
        """Handle one notification; an exception is logged and goes no further.

        Args:
            method: Its method.
            params: Its parameters.
            listener: That of the request on whose stream it came; progress is matched by its token.
            repaired: The repair of its text.
        """
        try:
            if repaired:
                self.on_repair(repaired)
            if method == methods.NOTIFICATIONS_PROGRESS:
                self._take_progress(readable_progress(params, partial(self._note_notification, method)))
                return
            if method == methods.NOTIFICATIONS_MESSAGE:
                params = readable_log(params, partial(self._note_notification, method))
            # The stream of a request says whose a notification is. On pipes nothing does, so while a call is the only
            # one on its connection, everything is for it.
            on_notification = listener or self._sole
            if on_notification is not None:
                on_notification(method, params)
            if method == methods.NOTIFICATIONS_MESSAGE and self.logs is not None:
                self.logs.put(log_message(params, self._server))
            self._on_notification(method, params)
        except ProtocolError as exc:  # its owner wants no repairs
            self.on_server_fault(exc)
        except Exception:  # boundary: no message of a server may end the conversation
            _log.exception("a notification %r could not be handled", method)

    async def request(self, method: str, params: JsonObject) -> Json:
        """Answer a request of the server: ping, and those that have a callback; others are refused.

        Raises:
            ProtocolError: The refusal, with the code to answer.
        """
        if method == methods.PING:
            return {}
        asked = self._of_call or self.asked
        # A refusal takes no time, so it does not show that a server works: one that asks again after each would never
        # time out.
        if asked.refuses(method):
            with self.working():
                return await asked.answer(method, params)
        # A question does not name the request that it belongs to, so all of them are held, and released below, request
        # by request: one that ends meanwhile has left the set, one that begins holds itself.
        self._answering += 1
        for deadline in self._waiting:
            deadline.hold()
        try:
            with self.working():
                return await asked.answer(method, params)
        finally:
            self._answering -= 1
            for deadline in self._waiting:
                deadline.release()

    def _note(self, problem: str) -> None:
        self.on_repair(problem)  # which is set later

    def _note_notification(self, method: str, change: str) -> None:
        self._note(f"its notification {method} {change}")

    def _take_progress(self, params: JsonObject) -> None:
        callback = self._progress.get(str(params.get("progressToken")))
        if callback is not None and finite_number(params.get("progress")) is not None:
            callback(params)


def _no_session(*_args: object) -> None:
    raise RuntimeError("no session is open")


def _progress_of(params: JsonObject) -> Progress:
    total = finite_number(params.get("total"))
    return Progress(
        progress=float(params["progress"]),
        total=None if total is None else float(total),
        message=as_text(params.get("message")),
    )


class ClientDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """A client as it declares itself in the envelope of one modern request, instead of this one.

    Attributes:
        capabilities: Its `ClientCapabilities`, sent as they are.
        info: Its `Implementation` object, or None for that of this client.
        log_level: The minimum severity of log messages that it wants, or None for none.
    """

    capabilities: JsonObject
    info: JsonObject | None = None
    log_level: str | None = None

    def envelope(self, own: JsonObject) -> JsonObject:
        """Return the envelope of this client with the members of the other one."""
        made = {**own, CLIENT_CAPABILITIES: self.capabilities}
        made.pop(LOG_LEVEL, None)
        if self.info is not None:
            made[CLIENT_INFO] = self.info
        if self.log_level is None:
            return made
        return made | {LOG_LEVEL: self.log_level}


class Session:
    """A conversation after its handshake, which adds the `_meta` of its era to every request.

    Attributes:
        wire: The wire.
        poster: The wire, if it can send calls at once; else None.
        agreement: The result of the handshake.
    """

    def __init__(self, wire: Wire, agreement: Agreement, envelope: JsonObject) -> None:
        self.wire = wire
        # found out once and not for each call: a check against a protocol compares all of its members
        self.poster: PostsCalls | None = wire if isinstance(wire, PostsCalls) else None
        self.agreement = agreement
        self._meta: JsonObject = envelope if agreement.modern else {}

    @property
    def meta(self) -> JsonObject:
        """The `_meta` of requests that have none of their own, as it is now; empty in revisions with a handshake."""
        return self._meta

    async def set_log_level(self, level: str) -> None:
        """Request log messages of this severity and above: for later requests, or (legacy) for the whole session."""
        if self.agreement.modern:
            self._meta = {**self._meta, LOG_LEVEL: level}
        else:
            await self.request(methods.LOGGING_SET_LEVEL, {"level": level})

    def request(
        self,
        method: str,
        params: JsonObject | None = None,
        *,
        meta: JsonObject | None = None,
        schema: JsonObject | None = None,
        request_id: str | None = None,
        deadline: float = math.inf,
        declared: ClientDeclaration | None = None,
        on_notification: OnNotification | None = None,
    ) -> Coroutine[Any, Any, Json]:
        """Send a request and return its result as it came; raises the errors of `Wire.request`.

        `deadline` on the event loop's clock bounds the caller's wait, beside the cancel scopes it is in;
        `declared` is the client that the envelope names.
        """
        return ask(
            self.wire,
            method,
            self.stamped(params, meta, declared),
            schema=schema,
            request_id=request_id,
            deadline=deadline,
            on_notification=on_notification,
        )

    def stamped(
        self, params: JsonObject | None, meta: JsonObject | None, declared: ClientDeclaration | None
    ) -> JsonObject:
        """Return parameters with the `_meta` of the era, beside the caller's own `meta`."""
        if declared is None or not self._meta:
            own = self._meta
        else:
            own = declared.envelope(self._meta)
        if meta:  # the caller's own keys go first: the envelope is not theirs to replace
            own = {**meta, **own}
        stamped = {} if params is None else dict(params)
        if own:
            stamped["_meta"] = own
        return stamped


async def ask(
    wire: Wire,
    method: str,
    params: JsonObject,
    *,
    schema: JsonObject | None = None,
    request_id: str | None = None,
    deadline: float = math.inf,
    on_notification: OnNotification | None = None,
) -> Json:
    """Send a request, and send it again when the server says when: 429 or 503 with Retry-After (RFC 9110, 10.2.3)."""
    # 429 and 503 with a time are the server's word that it did nothing, so any request may be repeated. Other errors
    # are not: the server may have acted before it failed.
    repeats = 0
    while True:
        try:
            return await wire.request(
                method, params, schema=schema, request_id=request_id, on_notification=on_notification
            )
        except ProtocolError as exc:
            if repeats >= _REPEATS:
                raise
            await wait_as_asked(exc, deadline)
        repeats += 1


async def wait_as_asked(exc: ProtocolError, deadline: float) -> None:
    """Wait until a request may be sent again, as the server's refusal says; raise that if it says nothing of it.

    A wait that would pass the caller's deadline is not started: the server's answer is raised at once.
    """
    seconds = _retry_after(exc)
    if seconds is None or anyio.current_time() + seconds >= min(deadline, anyio.current_effective_deadline()):
        raise exc
    _log.info("server %r: %s; sent again in %g s", exc.server, printable(exc.message), seconds)
    await anyio.sleep(seconds)


def _retry_after(exc: ProtocolError) -> float | None:
    facts = object_or_empty(exc.data)
    value = as_text(facts.get("retry_after"))
    if facts.get("http_status") not in (429, 503) or value is None:
        return None
    if value.isdecimal():
        return float(value)
    from email.utils import parsedate_to_datetime  # 20 ms, for a form of the header that is rare

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def envelope(version: str, client_info: JsonObject, capabilities: JsonObject) -> Json:
    """Return the `_meta` members that every modern request carries (SEP-2575)."""
    return {
        PROTOCOL_VERSION: version,
        CLIENT_INFO: dict(client_info),
        CLIENT_CAPABILITIES: dict(capabilities),
    }
