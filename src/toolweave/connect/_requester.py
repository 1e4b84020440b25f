"""Requests over a connection that may be lost: timeouts, validation of arguments and results, retries.

Why a retry does no harm: a request is sent again, once, only if it provably was not sent, or was declared repeatable (a
tool that is read-only or idempotent). Every other loss is raised, with `sent` for the caller to judge. All attempts
of a call share one deadline, so a retry never extends the caller's wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeGuard, TypeVar

import anyio
import anyio.lowlevel

from toolweave._json_types import Json, JsonObject, as_object
from toolweave.config import ServerConfig
from toolweave.connect._catalog import CallTarget, Catalog
from toolweave.connect._client_features.input_required import exchange
from toolweave.connect._client_features.server_requests import (
    CallRequestHandler,
    ForwardingHandler,
    ServerRequestHandler,
)
from toolweave.connect._client_features.tasks import ClientTask, LegacyClientTask, wants_task
from toolweave.connect._deadline import Deadline, SharedTimer
from toolweave.connect._diagnosis import explained_loss, unreached_for_retry
from toolweave.connect._direct import DirectCall, DirectCalls
from toolweave.connect._feed.list_reader import SendRequest
from toolweave.connect._forwarding import ForwardedRequest
from toolweave.connect._health import PendingRequest
from toolweave.connect._output_check import checked_result, result_in, without_secrets
from toolweave.connect._progress_feed import ProgressWatch
from toolweave.connect._session import ClientDeclaration, wait_as_asked
from toolweave.connect._supervisor import Supervisor
from toolweave.connect._transports import OpenSession, raise_for_other_era
from toolweave.connect._wire.responses import object_result
from toolweave.errors import AuthRequiredError, ConnectionLostError, ProtocolError, RequestTimeoutError, ServerError
from toolweave.protocol import methods
from toolweave.protocol.codes import HEADER_MISMATCH, INVALID_PARAMS, URL_ELICITATION_REQUIRED
from toolweave.protocol.component_meta import VERSION
from toolweave.tools import CallContext, CallQuestions, Progress, ToolResult, ToolsChanged
from toolweave.tools._call_questions import is_resumed
from toolweave.tools.mcp import tool_result
from toolweave.tools.result import typed
from toolweave.tools.spec import is_repeatable

_log = logging.getLogger("toolweave.connect")

ResultT = TypeVar("ResultT")
CheckPins = Callable[[str, JsonObject], Awaitable[None]]
"""Called with the method and parameters of a request before it is sent; raises `ToolError` if pins withhold it."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A request in one session, and the deadline of all its attempts."""

    session: OpenSession
    target: CallTarget
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class _CallAttempt(_Attempt):
    """A call of a tool; its `meta` holds the progress token, its `params` have none."""

    params: Json
    ctx: CallContext
    meta: JsonObject
    watch: ProgressWatch | None


@dataclass(frozen=True, slots=True)
class _ForwardAttempt(_Attempt):
    """A request of another client; `meta` is its `_meta`, with a progress token of ours."""

    request: ForwardedRequest
    meta: JsonObject


AttemptT = TypeVar("AttemptT", bound=_Attempt)


class Requester:
    """The requests of one connection, with their timeouts and retries.

    Attributes:
        direct: Sends calls of tools at once, for other clients.
        last_session: The current or last open session, for the results of its handshake.
        on_timeout: Called when a call was not answered within its bound.
    """

    def __init__(self, config: ServerConfig, supervisor: Supervisor, catalog: Catalog, check_pins: CheckPins) -> None:
        self._config = config
        self._check_pins = check_pins
        self._supervisor = supervisor
        self._catalog = catalog
        self._deadlines = SharedTimer()
        if config.max_concurrency:
            self._limiter = anyio.CapacityLimiter(config.max_concurrency)
        else:
            self._limiter = None
        self._total = config.timeout.call_total
        self._may_answer = supervisor.handlers.may_answer
        self._session_seconds = config.connect_silence + config.timeout.list + config.timeout.close
        self.direct: DirectCalls = DirectCalls(
            config, supervisor, catalog, self._deadlines, too_slow=self._call_too_slow
        )
        self.last_session: OpenSession | None = None
        self.on_timeout: Callable[[], None] = lambda: None

    @property
    def waits(self) -> Collection[PendingRequest]:
        """The requests that wait for their answer now."""
        return self._deadlines.running

    async def session(self) -> OpenSession:
        """Return the open session; connect or wait for a restart, within the bounds of connect, list and close."""
        supervisor = self._supervisor
        if supervisor.loop is asyncio.get_running_loop():
            session = supervisor.open_session
            if session is not None:
                return session
        return await supervisor.run_on_own_loop(supervisor.usable(self._session_seconds))

    async def with_reconnect(
        self,
        use: Callable[[OpenSession], Awaitable[ResultT]],
        *,
        session: OpenSession | None = None,
        repeatable: bool = False,
    ) -> ResultT:
        """Run `use` on the open session; if that was lost, run it on the next one where a retry is safe.

        A retry is safe for a request that was provably not sent, and for one declared as repeatable.
        """
        return await self._supervisor.run_on_own_loop(self._with_reconnect(use, session, repeatable))

    async def _with_reconnect(
        self, use: Callable[[OpenSession], Awaitable[ResultT]], session: OpenSession | None, repeatable: bool
    ) -> ResultT:
        # One retry at most, by hand and not in a loop: a server that dies of a request would otherwise be killed by it
        # again and again.
        if session is None:
            session = await self.session()
        try:
            result = await use(session)
        except (AuthRequiredError, ConnectionLostError) as exc:
            first = exc
            session = await self._session_for_retry(session, exc, repeatable=repeatable)
        except ProtocolError as exc:
            exc.mask(self._config.redact)
            raise
        else:
            self._supervisor.auth_suspect = False
            return result
        try:
            return await use(session)
        except (AuthRequiredError, ConnectionLostError) as exc:
            raise await self._final_error(session, exc, after=first) from None
        except ProtocolError as exc:
            exc.mask(self._config.redact)
            raise

    async def request(
        self,
        method: str,
        params: JsonObject,
        timeout: float | None = None,
        meta: JsonObject | None = None,
    ) -> Json:
        """Make one request other than a tool call, within `timeout` or the server's `timeout.read`."""
        return await self._supervisor.run_on_own_loop(self._request(method, params, timeout, meta))

    async def _request(self, method: str, params: JsonObject, timeout: float | None, meta: JsonObject | None) -> Json:
        await self.session()  # has another bound
        await self._check_pins(method, params)
        handlers = self._supervisor.handlers

        async def ask(deadline: Deadline) -> Json:
            async def send(session: OpenSession, more: JsonObject) -> Json:
                result = await session.conversation.request(method, {**params, **more}, meta=meta, deadline=deadline.at)
                return object_result(result, method, self._config.name, self._catalog.repairs.of_answer(method))

            if method not in methods.INPUT_REQUIRED:
                return await self.with_reconnect(lambda session: send(session, {}))
            asked = handlers.asked
            return await self.with_reconnect(lambda session: exchange(partial(send, session), method, asked, deadline))

        return await self.bounded(ask, method, self._config.timeout.read if timeout is None else timeout)

    async def bounded(self, ask: Callable[[Deadline], Awaitable[ResultT]], what: str, seconds: float) -> ResultT:
        """Return the outcome of requests that the server answers within `seconds`, on the connection's own loop.

        The time for which this client answers a question of the server does not count.

        Raises:
            RequestTimeoutError: The time is over; its message names `what`.
        """
        with self._deadlines.within(seconds) as deadline, self._supervisor.handlers.waiting(deadline):
            return await ask(deadline)
        await anyio.lowlevel.checkpoint_if_cancelled()  # a cancellation that is due takes precedence
        raise self.too_slow(what, seconds)

    async def list_tools(self, session: OpenSession, timeout: float | None = None) -> ToolsChanged:
        """List the tools again, within `timeout` or the server's `timeout.list`."""
        if timeout is None:
            seconds = self._config.timeout.list
        else:
            seconds = timeout
        refusal = session.conversation.wire.refusal
        return await self.bounded(
            lambda _: self._catalog.refresh(session.conversation.request, refusal), methods.TOOLS_LIST, seconds
        )

    async def call(self, name: str, arguments: JsonObject, ctx: CallContext) -> ToolResult:
        """Call a tool; see `McpConnection.call_tool`.

        Every call begins here; what few calls need is handled in other methods.
        """
        if not isinstance(arguments, (dict, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]  # a dict: faster
            raise TypeError(f"tool {name!r}: arguments must be one mapping, not {type(arguments).__name__}")
        session = self._supervisor.open_session
        if session is None:
            session = await self.session()
        call_target = self._catalog.call_target(name, ctx.meta.get(VERSION) if ctx.meta else None)
        sent = call_target.sent(arguments, ctx)
        if isinstance(sent, ToolResult):
            return sent
        params: Json = {"name": call_target.name, "arguments": dict(sent)}
        limiter = self._limiter
        if limiter is not None:
            await self._take_turn(limiter, call_target.name, ctx.timeout)
        try:
            raw = await self._answered(session, params, call_target, ctx)
        finally:
            if limiter is not None:
                limiter.release()
        self._supervisor.auth_suspect = False
        note = self._catalog.repairs.of_tool(call_target.name)
        result = await result_in(raw, self._config.name, note, self.redact)
        if self._supervisor.session is not session:  # after a retry: in its session the tool may have another form
            call_target = self._catalog.call_target(name, ctx.meta.get(VERSION) if ctx.meta else None)
        spec = call_target.spec
        self._catalog.note_result(spec, name, result)
        if spec is None or spec.output_schema is None:
            return result
        return checked_result(self._config, self._catalog, spec, typed(result, self._catalog.load(spec)))

    def redact(self, text: str) -> str:
        """Mask the secrets of the config, and the credentials of the last session, in a text of the server."""
        session = self._supervisor.session or self.last_session
        if session is None:
            return self._config.redact(text)
        return session.redact(text)

    def too_slow(self, what: str, seconds: float) -> RequestTimeoutError:
        """Make the error of a request that was not answered in time."""
        process = self._supervisor.report.process
        hint = ""
        if process is not None and process.junk_lines:
            hint = f"; {process.junk_lines} lines of its output were not answers, the last {process.last_junk!r}"
        return RequestTimeoutError(
            f"no answer to {what} within {seconds:g} s{self._config.redact(hint)}",
            server=self._config.name,
            seconds=seconds,
        )

    async def _take_turn(self, limiter: anyio.CapacityLimiter, name: str, timeout: float | None = None) -> None:
        seconds = self._config.timeout.call if timeout is None else timeout
        with anyio.move_on_after(seconds):
            await limiter.acquire()
            return
        raise RequestTimeoutError(
            f"the call of tool {name!r} was not sent: {limiter.total_tokens:g} others, as many as 'max_concurrency' "
            f"allows, were running for {seconds:g} s",
            server=self._config.name,
            seconds=seconds,
        )

    async def _answered(self, session: OpenSession, params: Json, target: CallTarget, ctx: CallContext) -> Json:
        """Return the result of a call as the server sent it, within the deadline of the call."""
        if ctx.timeout is None:
            seconds = self._config.timeout.call
        else:
            seconds = ctx.timeout
        deadline = self._deadlines.within(seconds, self._supervisor.loop, self._total)
        handlers = self._supervisor.handlers
        watch: ProgressWatch | None = None
        meta = ctx.meta
        try:
            if self._may_answer:
                handlers.begin_wait(deadline)
            # Progress can only be asked for with the request (progress: the token is in its `_meta`). It also moves the
            # deadline, which is why a total bound wants it.
            if ctx.on_progress is not None or self._total is not None:
                watch = ProgressWatch(handlers, ctx.on_progress or _ignore, deadline)
                meta = {**meta, "progressToken": watch.token}
            first: Json | None = None
            failed: BaseException | None = None
            # What the first attempt cannot do is found in its answer and finished below, with that answer as the first.
            if not target.has_execution and (ctx.questions is None or self._needs_no_turn(ctx.questions, session)):
                try:
                    first = await session.conversation.request(
                        methods.TOOLS_CALL, params, meta=meta, schema=target.schema, deadline=deadline.at
                    )
                    if watch is not None:
                        await watch.feed.finished()
                    if first.get("resultType", "complete") == "complete":
                        return first
                # Kept, and handled in `_finish_call`: a good call enters no context manager.
                except BaseException as exc:  # boundary: raised again below; a cancellation may be the deadline's
                    failed = exc
            attempt = _CallAttempt(session, target, deadline, params, ctx, meta, watch)
            return await self._finish_call(attempt, first, failed)
        finally:
            deadline.end()
            if self._may_answer:
                handlers.end_wait(deadline)
            if watch is not None:
                watch.end()

    def _needs_no_turn(self, questions: CallQuestions, session: OpenSession) -> bool:
        """Return whether a call that may be asked something can be sent like any other.

        One that is resumed has its first answer already: sending it again would start it anew. Questions of a legacy
        server name no call, so that such calls are made one at a time.
        """
        if is_resumed(questions):
            return False
        return session.conversation.agreement.modern or not self._may_answer

    async def _finish_call(self, attempt: _CallAttempt, first: Json | None, failed: BaseException | None) -> Json:
        """Return the result of a call without a complete first answer: `first` is that answer, `failed` its error."""
        with attempt.deadline:
            try:
                if failed is not None and not _wants_visit(failed):
                    raise failed
                result = await self._send(attempt, first, failed)
            except (AuthRequiredError, ConnectionLostError, ProtocolError) as exc:
                result = await self._retry_call(attempt, exc, self._send)
            if attempt.watch is not None:
                await attempt.watch.feed.finished()
            return result
        # The deadline cancels this task as a caller's scope does. Only if no scope is cancelled was it the deadline.
        await anyio.lowlevel.checkpoint_if_cancelled()  # a cancellation that is due takes precedence
        raise self._call_too_slow(attempt.target.name, attempt.deadline.seconds)

    async def _retry_call(
        self,
        attempt: AttemptT,
        failed: AuthRequiredError | ConnectionLostError | ProtocolError,
        send: Callable[[AttemptT], Awaitable[ResultT]],
    ) -> ResultT:
        """Retry a call once where its failure makes that safe; raise the failure otherwise."""
        session = attempt.session
        target = attempt.target
        spec = target.spec
        # Listing and connecting have bounds of their own; the retry waits for its answer as long as any attempt.
        with attempt.deadline.held():
            if isinstance(failed, ProtocolError):
                failed.mask(session.redact)
                # An error from the server is an answer: the call was received and judged, so sending it again is not
                # ours to decide. This one code is the exception.
                if failed.code != HEADER_MISMATCH or spec is None:
                    raise failed
                # The schema whose arguments are mirrored into headers is out of date, and nothing has been done
                # (SEP-2243).
                await self.list_tools(await self.session())
                target = self._catalog.listed_again(target)
            else:
                repeatable = spec is not None and is_repeatable(spec)
                session = await self._session_for_retry(session, failed, repeatable=repeatable)
                # A request of another client is written for one era: its client has to write it for the other.
                if isinstance(attempt, _ForwardAttempt):
                    raise_for_other_era(failed, attempt.session, session)
                target = self._catalog.listed_again(target)
        try:
            return await send(replace(attempt, session=session, target=target))
        except (AuthRequiredError, ConnectionLostError) as exc:
            raise await self._final_error(session, exc, after=failed) from None

    async def _send(
        self, attempt: _CallAttempt, first: Json | None = None, refused: ProtocolError | None = None
    ) -> Json:
        """Make a call that may want input or become a task, and return its result.

        `first` is the answer to its first request, or `refused` the refusal, where that was sent already.
        """
        session = attempt.session
        target = attempt.target
        deadline = attempt.deadline
        params: JsonObject = attempt.params
        if wants_task(target.spec, session.conversation.agreement):
            params = {**params, "task": {}}
        modern = session.conversation.agreement.modern

        def send(more: JsonObject) -> Awaitable[Json]:
            return session.conversation.request(
                methods.TOOLS_CALL,
                {**params, **more},
                meta=attempt.meta,
                schema=target.schema,
                deadline=deadline.at,
            )

        # For a legacy server the questions come as requests on the connection and name no call; `asking` lets one call
        # at a time take them, and the others wait as long as a person takes.
        deadline.hold()
        async with self._supervisor.handlers.asking(attempt.ctx.questions, modern=modern) as asked:
            deadline.release()
            call = partial(exchange, send, methods.TOOLS_CALL, asked, deadline)
            if first is None and refused is None and isinstance(asked, CallRequestHandler):
                result = await self._resumed(call, asked, modern=modern)
            else:
                result = await call(first=first, refused=refused)
            return await self._followed(result, asked, deadline, partial(self._task_request, None), "task" in params)

    async def _resumed(self, call: Callable[..., Awaitable[Json]], asked: CallRequestHandler, *, modern: bool) -> Json:
        """Make a call whose questions its caller answers: resume it where it asked, or restart it.

        A server that no longer knows its question has done nothing more: the call is restarted
        if its caller allows it.
        """
        asked_by = asked.questions.begin()
        if asked_by is None:
            return await call()
        try:
            if not modern:
                raise asked.refusal(INVALID_PARAMS, "it has an older revision now and cannot continue where it asked")
            return await call(first=dict(asked_by))
        except ProtocolError as exc:
            # -32602 for a state that the server signed itself: it has expired, or its keys were changed. Nothing was
            # done in this round.
            if exc.code != INVALID_PARAMS or not asked.questions.restart():
                raise
        return await call()

    async def _followed(
        self, result: Json, asked: ServerRequestHandler, deadline: Deadline, ask: SendRequest, legacy: bool
    ) -> Json:
        """Return the result of the task that a result names, or the result itself; `legacy` calls asked for a task."""
        if result.get("resultType") == "task":
            return await ClientTask(result, ask, asked, deadline, self._config).result()
        created = as_object(result.get("task")) if legacy else None
        if created is not None:
            return await LegacyClientTask(created, ask, asked, deadline, self._config).result()
        return result

    # requests of other clients

    def _call_too_slow(self, name: str, seconds: float) -> RequestTimeoutError:
        self.on_timeout()
        return self.too_slow(f"the call of tool {name!r}", seconds)

    async def forward(self, request: ForwardedRequest) -> Json:
        """Send a request of another client, and return its result; see `McpConnection.forward`."""
        return await self._supervisor.run_on_own_loop(self._forward(request))

    async def _forward(self, request: ForwardedRequest) -> Json:
        if request.sent is None:
            session = await self.session()
        else:
            session = request.sent.session
        is_call = request.method == methods.TOOLS_CALL
        if is_call:
            target = self._catalog.original_target(request.params["name"])
            note = self._catalog.repairs.of_tool(target.name)
        else:
            target = CallTarget(request.method)
            note = self._catalog.repairs.of_answer(request.method)
            await self._check_pins(request.method, request.params)
        limiter = self._limiter if is_call else None
        if limiter is not None:
            await self._take_turn(limiter, target.name)
        try:
            result = await self._forwarded(request, session, target)
            result = object_result(result, request.method, self._config.name, note)
        finally:
            if limiter is not None:
                limiter.release()
        self._supervisor.auth_suspect = False
        result = without_secrets(result, self.redact)
        if is_call and self._config.scan:
            self._note_forwarded(target, result)
        return result

    async def _forwarded(self, request: ForwardedRequest, session: OpenSession, target: CallTarget) -> Json:
        """Send a request of another client within its deadline, and once more where that is safe."""
        is_call = request.method == methods.TOOLS_CALL
        timeout = self._config.timeout
        handlers = self._supervisor.handlers
        if is_call:
            seconds = timeout.call
            total = timeout.call_total
        else:
            seconds = timeout.read
            total = None
        with self._deadlines.within(seconds, self._supervisor.loop, total) as deadline, ExitStack() as stack:
            stack.enter_context(handlers.waiting(deadline))
            meta = request.meta
            news = partial(_pass_on, request, deadline)
            if request.on_progress is not None:
                token = handlers.watch_progress_params(partial(news, methods.NOTIFICATIONS_PROGRESS))
                stack.callback(handlers.forget_progress, token)
                meta = {**meta, "progressToken": token}
            if request.sent is not None and request.sent.news is not None:
                # under its own token; a retry has the one above
                stack.callback(request.sent.news.end)
                request.sent.news.pass_on(news)
            if (listener := request.exclusive_listener) is not None:
                stack.enter_context(handlers.sole_listener(listener))
            attempt = _ForwardAttempt(session, target, deadline, request, meta)
            try:
                return await self._forward_rounds(attempt, request.sent)
            except (AuthRequiredError, ConnectionLostError, ProtocolError) as exc:
                return await self._retry_call(attempt, exc, self._forward_rounds)
        await anyio.lowlevel.checkpoint_if_cancelled()  # a cancellation that is due takes precedence
        self.on_timeout()
        raise self.too_slow(f"the call of tool {target.name!r}" if is_call else request.method, seconds)

    async def _forward_rounds(self, attempt: _ForwardAttempt, sent: DirectCall | None = None) -> Json:
        """Send a request, in rounds and to the end of its task where its client leaves these to us.

        `sent` is the first attempt, where that was made already.
        """
        request = attempt.request
        session = attempt.session
        target = attempt.target
        deadline = attempt.deadline
        params = dict(request.params)
        asked = self._supervisor.handlers.asked
        wants = request.follow_tasks and wants_task(target.spec, session.conversation.agreement)
        if wants:
            params["task"] = {}

        attempts = iter(() if sent is None else (sent,))

        async def send(more: JsonObject) -> Json:
            if (call := next(attempts, None)) is not None:
                try:
                    return await call.result()
                except ProtocolError as exc:
                    await wait_as_asked(exc, deadline.at)
            return await session.conversation.request(
                request.method,
                {**params, **more},
                meta=attempt.meta,
                schema=target.schema,
                declared=request.declared,
                deadline=deadline.at,
                on_notification=request.stream_listener,
            )

        if request.answer is None:
            result = await send({})
        else:
            budget = self._supervisor.handlers.asked.budget.copy()
            asked = ForwardingHandler(request.answer, self._config.name, budget)
            result = await exchange(send, request.method, asked, deadline)
        if not request.follow_tasks:
            return result
        return await self._followed(result, asked, deadline, partial(self._task_request, request.declared), wants)

    def note_forwarded(self, name: str, result: JsonObject) -> None:
        """Look for hidden characters in a result that is passed on; see `GatewaySide.note_forwarded`."""
        if self._config.scan and self._catalog.lists(name):
            self._note_forwarded(self._catalog.original_target(name), result)

    def _note_forwarded(self, target: CallTarget, result: JsonObject) -> None:
        try:
            self._catalog.note_result(target.spec, target.name, tool_result(result, server=self._config.name))
        except ProtocolError as exc:
            _log.debug("a result that is passed on was not scanned: %s", exc)

    async def _task_request(self, declared: ClientDeclaration | None, method: str, params: JsonObject) -> Json:
        """Make a request about a task, which outlives the connection on which it was created, for its client."""
        try:
            return await self.with_reconnect(
                lambda session: session.conversation.request(method, params, declared=declared), repeatable=True
            )
        except ConnectionLostError as exc:
            # the call itself was taken: it must not be sent again
            raise ConnectionLostError("the connection ended while a task ran", server=exc.server, sent=True) from exc

    async def _session_for_retry(
        self, session: OpenSession, exc: AuthRequiredError | ConnectionLostError, *, repeatable: bool
    ) -> OpenSession:
        """Return the session for a retry after `session` was lost; raise the error where a retry is not safe."""
        final = await self._final_error(session, exc)
        if isinstance(final, AuthRequiredError) or self._config.restart == "never":
            raise final from None
        # `sent` is pessimistic: true as soon as a byte may have left. Only then does it matter whether the tool may run
        # twice.
        if final.sent and not repeatable:
            raise final from None
        try:
            return await self.session()
        except AuthRequiredError:
            raise
        except ServerError as unreachable:
            if final.sent:
                raise unreached_for_retry(unreachable, final) from None
            raise

    async def _final_error(
        self, session: OpenSession, exc: AuthRequiredError | ConnectionLostError, *, after: Exception | None = None
    ) -> AuthRequiredError | ConnectionLostError:
        """Return the error for the caller; a second refusal of our credentials in a row concerns the connection.

        `after` is the error of the attempt before, whose outcome stays unknown if this one was not even sent.
        """
        if isinstance(exc, AuthRequiredError):
            self._supervisor.suspect_auth(exc)
            return exc
        if isinstance(after, ConnectionLostError) and after.sent and not exc.sent:
            exc = ConnectionLostError(exc.message, server=exc.server, sent=True)
        return await explained_loss(exc, session.process, self._config, stopping=self._supervisor.is_stopping)


def _wants_visit(failed: BaseException) -> TypeGuard[ProtocolError]:
    """Return whether a call was refused until its user has visited a page."""
    return isinstance(failed, ProtocolError) and failed.code == URL_ELICITATION_REQUIRED


def _pass_on(request: ForwardedRequest, deadline: Deadline, method: str, params: JsonObject) -> None:
    """Pass a notification on to the client of a request."""
    if method == methods.NOTIFICATIONS_PROGRESS:
        deadline.touch()
        if request.on_progress is not None:
            request.on_progress(params)
    elif request.stream_listener is not None:
        request.stream_listener(method, params)


def _ignore(_progress: Progress) -> None:
    """Ignore a notification that only has to show a sign of life."""
