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
from functools import partial
from typing import Any, TypeVar, cast

import anyio
import anyio.lowlevel

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
from toolweave.connect._direct import DirectCall, DirectCalls
from toolweave.connect._forwarding import ForwardedRequest
from toolweave.connect._health import PendingRequest
from toolweave.connect._idle_timeout import IdleTimeout
from toolweave.connect._off_loop import make_off_loop
from toolweave.connect._progress_feed import watched
from toolweave.connect._supervisor import Supervisor
from toolweave.connect._transports import OpenSession
from toolweave.errors import (
    AuthRequiredError,
    ConnectionLostError,
    ErrorKind,
    ProtocolError,
    RequestTimeoutError,
    ToolError,
    printable,
)
from toolweave.protocol import methods
from toolweave.protocol.codes import HEADER_MISMATCH, INVALID_PARAMS
from toolweave.protocol.component_meta import VERSION
from toolweave.protocol.content import TextContent
from toolweave.protocol.json_types import as_object
from toolweave.schema._problems import describe
from toolweave.tools._call import CallContext
from toolweave.tools._call_questions import is_resumed
from toolweave.tools._mcp import tool_result
from toolweave.tools._result import ToolResult, typed
from toolweave.tools._spec import ToolSpec
from toolweave.tools._toolset import ToolsChanged

_log = logging.getLogger("toolweave.connect")

ResultT = TypeVar("ResultT")
CheckPins = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Called with the method and parameters of a request before it is sent; raises `ToolError` if pins withhold it."""
_Failed = tuple[BaseException, Deadline]
"""The exception of a failed attempt, and its deadline."""


class Requester:
    """The requests of one connection, with their timeouts and retries.

    Attributes:
        direct: Sends calls of tools at once, for other clients.
        last_line: The current or last open session, for the results of its handshake.
        on_timeout: Called when a call was not answered within its bound.
    """

    def __init__(self, config: ServerConfig, supervisor: Supervisor, catalog: Catalog, check_pins: CheckPins) -> None:
        self._config = config
        self._check_pins = check_pins
        self._supervisor = supervisor
        self._catalog = catalog
        self._deadlines = SharedTimer()
        self._limiter = anyio.CapacityLimiter(config.max_concurrency) if config.max_concurrency else None
        self._plain = config.timeout.call_total is None and not supervisor.peer.may_answer
        self._line_seconds = config.connect_silence + config.timeout.list + config.timeout.close
        self.direct = DirectCalls(config, supervisor, catalog, self._deadlines, too_slow=self._call_too_slow)
        self.last_line: OpenSession | None = None
        self.on_timeout: Callable[[], None] = lambda: None

    @property
    def waits(self) -> Collection[PendingRequest]:
        """The requests that wait for their answer now."""
        return (*self._deadlines.running, *self._supervisor.peer.waits)

    async def line(self) -> OpenSession:
        """Return the open session; connect or wait for a restart, within the bounds of connect, list and close."""
        supervisor = self._supervisor
        last = supervisor.line
        if last is not None and not last.session.wire.over and supervisor.loop is asyncio.get_running_loop():
            return last
        return await supervisor.run_on_own_loop(supervisor.usable(self._line_seconds))

    async def with_reconnect(
        self,
        use: Callable[[OpenSession], Awaitable[ResultT]],
        *,
        line: OpenSession | None = None,
        repeatable: bool = False,
    ) -> ResultT:
        """Run `use` on the open session; if that was lost, run it on the next one where a retry is safe.

        A retry is safe for a request that was provably not sent, and for one declared as repeatable.
        """
        return await self._supervisor.run_on_own_loop(self._with_reconnect(use, line, repeatable))

    async def _with_reconnect(
        self, use: Callable[[OpenSession], Awaitable[ResultT]], line: OpenSession | None, repeatable: bool
    ) -> ResultT:
        # One retry at most, by hand and not in a loop: a server that dies of a request would otherwise be killed by it
        # again and again.
        line = line or await self.line()
        try:
            result = await use(line)
        except (AuthRequiredError, ConnectionLostError) as exc:
            line = await self._session_for_retry(line, exc, repeatable=repeatable)
        except ProtocolError as exc:
            exc.mask(self._config.redact)
            raise
        else:
            self._supervisor.doubted = False
            return result
        try:
            return await use(line)
        except (AuthRequiredError, ConnectionLostError) as exc:
            raise await self._final_error(line, exc) from None
        except ProtocolError as exc:
            exc.mask(self._config.redact)
            raise

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout: float | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make one request other than a tool call, within `timeout` or the server's `timeout.read`."""
        return await self._supervisor.run_on_own_loop(self._request(method, params, timeout, meta))

    async def _request(
        self, method: str, params: Mapping[str, Any], timeout: float | None, meta: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        await self.line()  # has a bound of its own
        await self._check_pins(method, params)
        seconds = self._config.timeout.read if timeout is None else timeout
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
            if method not in methods.INPUT_REQUIRED:
                return await self.with_reconnect(lambda line: line.session.request(method, params, meta=meta))
            silence, peer = IdleTimeout(scope, seconds), self._supervisor.peer
            with peer.waiting(silence):
                return await self.with_reconnect(
                    lambda line: exchange(
                        lambda more: line.session.request(method, {**params, **more}, meta=meta),
                        method,
                        peer.asked,
                        silence,
                    )
                )
        raise self.too_slow(method, seconds)

    async def list_tools(self, line: OpenSession, timeout: float | None = None) -> ToolsChanged:
        """List the tools again, within `timeout` or the server's `timeout.list`."""
        seconds = self._config.timeout.list if timeout is None else timeout
        try:
            with anyio.fail_after(seconds):
                return await self._catalog.refresh(line.session.request, line.session.wire.refusal)
        except TimeoutError as exc:
            if isinstance(exc, RequestTimeoutError):
                raise
            raise self.too_slow(methods.TOOLS_LIST, seconds) from exc

    async def call(self, name: str, arguments: Mapping[str, Any], ctx: CallContext) -> ToolResult:
        """Call a tool; see `McpConnection.call_tool`.

        The hot path of every call: it sends over the wire directly; rare cases are handled in other methods.
        """
        if not isinstance(arguments, (dict, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]  # a dict: faster
            raise TypeError(f"tool {name!r}: arguments must be one mapping, not {type(arguments).__name__}")
        last = self._supervisor.line
        line = await self.line() if last is None or last.session.wire.over else last
        call_target = self._catalog.call_target(name, ctx.meta.get(VERSION) if ctx.meta else None)
        sent = call_target.sent(arguments, ctx)
        if isinstance(sent, ToolResult):
            return sent
        params: dict[str, Any] = {"name": call_target.name, "arguments": dict(sent)}
        line.session.stamp(params, ctx.meta)
        limiter = self._limiter
        if limiter is not None:
            await self._take_turn(limiter, call_target.name, ctx.timeout)
        try:
            raw: Mapping[str, Any]
            first: dict[str, Any] | None = None
            failed: _Failed | None = None
            # The short way: no scope, no progress token, no questions. What it cannot do is found in its answer and
            # finished below, with that answer as the first. A call that is resumed has that answer already: sending it
            # again would start it anew.
            ordinary = ctx.on_progress is None and not call_target.has_execution
            if self._plain and ordinary and not is_resumed(ctx.questions):
                seconds = self._config.timeout.call if ctx.timeout is None else ctx.timeout
                deadline = self._deadlines.within(seconds, self._supervisor.loop)
                try:
                    first = await line.session.wire.request(methods.TOOLS_CALL, params, schema=call_target.schema)
                    deadline.end()
                # Kept, and handled in `_finish_call`: a good call enters no context manager.
                except BaseException as exc:  # boundary: raised again below; a cancellation may be the deadline's
                    failed = exc, deadline
            if first is not None and first.get("resultType", "complete") == "complete":
                raw = first
            else:
                raw = await self._finish_call(line, params, call_target, ctx, first, failed)
        finally:
            if limiter is not None:
                limiter.release()
        self._supervisor.doubted = False
        content: Any = raw.get("content")
        if type(content) is list and len(content) > 1:  # pyright: ignore[reportUnknownArgumentType]
            result = await make_off_loop(cast("object", content), partial(tool_result, raw, server=self._config.name))
        else:
            result = tool_result(raw, server=self._config.name)
        spec = call_target.spec
        self._catalog.note_result(spec, name, result)
        if spec is None or spec.output_schema is None:
            return result
        return self._check_result(spec, typed(result, self._catalog.load(spec)))

    def too_slow(self, what: str, seconds: float) -> RequestTimeoutError:
        """Make the error of a request that was not answered in time."""
        process = self._supervisor.report.process
        hint = ""
        if process is not None and process.junk_lines:
            hint = f"; {process.junk_lines} lines of its output were no answer, the last {process.last_junk!r}"
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

    async def _finish_call(
        self,
        line: OpenSession,
        params: dict[str, Any],
        call_target: CallTarget,
        ctx: CallContext,
        first: dict[str, Any] | None,
        failed: _Failed | None,
    ) -> Mapping[str, Any]:
        """Return the result of a call without a complete first answer: `first` is that answer, `failed` its error."""
        try:
            if failed is not None:
                first = await self._after(failed, line, params, call_target, ctx)
                if first.get("resultType", "complete") == "complete":
                    return first
            return await self._send(line, call_target, params=params, ctx=ctx, first=first)
        except (AuthRequiredError, ConnectionLostError, ProtocolError) as exc:
            send = partial(self._send, params=params, ctx=ctx)
            return await self._retry_call(line, call_target, exc, send)

    async def _after(
        self, failed: _Failed, line: OpenSession, params: Mapping[str, Any], call_target: CallTarget, ctx: CallContext
    ) -> dict[str, Any]:
        """Retry a call that was refused temporarily, within the rest of its deadline; raise any other error."""
        exc, deadline = failed
        with deadline:
            if not isinstance(exc, ProtocolError):
                raise exc
            again = line.session.again
            return await again(
                exc, methods.TOOLS_CALL, params, meta=ctx.meta, schema=call_target.schema, deadline=deadline.at
            )
        # The deadline cancels this task as a caller's scope does. Only if no scope is cancelled was it the deadline.
        await anyio.lowlevel.checkpoint_if_cancelled()  # a cancellation that is due takes precedence
        self.on_timeout()
        raise self.too_slow(f"the call of tool {call_target.name!r}", deadline.seconds)

    async def _retry_call(
        self,
        line: OpenSession,
        call_target: CallTarget,
        failed: AuthRequiredError | ConnectionLostError | ProtocolError,
        send: Callable[[OpenSession, CallTarget], Awaitable[ResultT]],
    ) -> ResultT:
        """Retry a call once where its failure makes that safe; raise the failure otherwise."""
        spec = call_target.spec
        if isinstance(failed, ProtocolError):
            failed.mask(self._config.redact)
            # An error from the server is an answer: the call was received and judged, so sending it again is not ours
            # to decide. This one code is the exception.
            if failed.code != HEADER_MISMATCH or spec is None:
                raise failed
            # the schema whose arguments are mirrored into headers is out of date, and nothing has been done (SEP-2243)
            await self.list_tools(await self.line())
            listed = self._catalog.call_target(spec.name)
            call_target = call_target if listed.spec is None else listed
        else:
            line = await self._session_for_retry(line, failed, repeatable=_repeatable(spec))
        try:
            return await send(line, call_target)
        except (AuthRequiredError, ConnectionLostError) as exc:
            raise await self._final_error(line, exc) from None

    async def _send(
        self,
        line: OpenSession,
        call_target: CallTarget,
        *,
        params: dict[str, Any],
        ctx: CallContext,
        first: dict[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """Make a call with an idle timeout; `first` is the first answer, if it has arrived."""
        if wants_task(call_target.spec, line.session.agreement):
            params = {**params, "task": {}}
        modern = line.session.agreement.modern
        # For a legacy server the questions come as requests on the connection and name no call; `asking` lets one call
        # at a time take them.
        async with self._supervisor.peer.asking(ctx.questions, modern=modern) as asked:
            return await self._send_bounded(line, call_target, params, ctx, asked, first)

    async def _send_bounded(
        self,
        line: OpenSession,
        call_target: CallTarget,
        params: Mapping[str, Any],
        ctx: CallContext,
        asked: ServerRequestHandler,
        first: dict[str, Any] | None,
    ) -> Mapping[str, Any]:
        seconds = self._config.timeout.call if ctx.timeout is None else ctx.timeout
        total = self._config.timeout.call_total
        peer = self._supervisor.peer
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
            silence = IdleTimeout(scope, seconds, total)
            work = partial(self._call_interactive, line, params, call_target.schema, silence, asked, first)
            with peer.waiting(silence):
                # Progress can only be asked for with the request (progress: the token is in its `_meta`), so a call
                # whose first answer is here needs none. It also resets the bound, which is why a total bound wants it.
                if first is not None or (ctx.on_progress is None and total is None):
                    return await work(ctx.meta)
                return await watched(
                    peer, ctx.on_progress, silence.touch, lambda token: work({**ctx.meta, "progressToken": token})
                )
        self.on_timeout()
        raise self.too_slow(f"the call of tool {call_target.name!r}", seconds)

    async def _call_interactive(
        self,
        line: OpenSession,
        params: Mapping[str, Any],
        schema: Mapping[str, Any] | None,
        silence: IdleTimeout,
        asked: ServerRequestHandler,
        first: dict[str, Any] | None,
        meta: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Make a call that may want input or become a task, and return its result."""

        def send(more: Mapping[str, Any]) -> Awaitable[dict[str, Any]]:
            return line.session.request(methods.TOOLS_CALL, {**params, **more}, meta=meta, schema=schema)

        call = partial(exchange, send, methods.TOOLS_CALL, asked, silence)
        if first is None and isinstance(asked, CallRequestHandler):
            result = await self._resumed(call, asked, modern=line.session.agreement.modern)
        else:
            result = await call(first=first)
        return await self._followed(result, asked, silence, legacy="task" in params)

    async def _resumed(
        self, call: Callable[..., Awaitable[dict[str, Any]]], asked: CallRequestHandler, *, modern: bool
    ) -> dict[str, Any]:
        """Make a call whose questions its caller answers: resume it where it asked, or restart it.

        A server that no longer knows its question has done nothing more: the call is restarted
        if its caller allows it.
        """
        asked_by = asked.questions.begin()
        if asked_by is None:
            return await call()
        try:
            if not modern:
                raise asked.refusal(INVALID_PARAMS, "it speaks an older revision now, and cannot go on where it asked")
            return await call(first=dict(asked_by))
        except ProtocolError as exc:
            # -32602 for a state that the server signed itself: it has expired, or its keys were changed. Nothing was
            # done in this round.
            if exc.code != INVALID_PARAMS or not asked.questions.restart():
                raise
        return await call()

    async def _followed(
        self, result: dict[str, Any], asked: ServerRequestHandler, silence: IdleTimeout, *, legacy: bool
    ) -> dict[str, Any]:
        """Return the result of the task that a result names, or the result itself; `legacy` calls asked for a task."""
        if result.get("resultType") == "task":
            return await ClientTask(result, self._task_request, asked, silence, self._config).result()
        created = as_object(result.get("task")) if legacy else None
        if created is not None:
            return await LegacyClientTask(created, self._task_request, asked, silence, self._config).result()
        return result

    # requests of other clients

    def _call_too_slow(self, name: str) -> RequestTimeoutError:
        self.on_timeout()
        return self.too_slow(f"the call of tool {name!r}", self._config.timeout.call)

    async def forward(self, request: ForwardedRequest) -> dict[str, Any]:
        """Send a request of another client, and return its result as it came; see `McpConnection.forward`."""
        return await self._supervisor.run_on_own_loop(self._forward(request))

    async def _forward(self, request: ForwardedRequest) -> dict[str, Any]:
        line = await self.line() if request.sent is None else request.sent.line
        is_call = request.method == methods.TOOLS_CALL
        target = self._catalog.original_target(request.params["name"]) if is_call else CallTarget(request.method)
        if not is_call:
            await self._check_pins(request.method, request.params)
        limiter = self._limiter if is_call else None
        if limiter is not None:
            await self._take_turn(limiter, target.name)
        send = partial(self._forward_once, request)
        try:
            result = await send(line, target, request.sent)
        except (AuthRequiredError, ConnectionLostError, ProtocolError) as exc:
            result = await self._retry_call(line, target, exc, send)
        finally:
            if limiter is not None:
                limiter.release()
        self._supervisor.doubted = False
        if is_call and self._config.scan:
            self._note_forwarded(target, result)
        return result

    async def _forward_once(
        self, request: ForwardedRequest, line: OpenSession, target: CallTarget, sent: DirectCall | None = None
    ) -> dict[str, Any]:
        """Make one attempt; `sent` is that which was made already."""
        is_call = request.method == methods.TOOLS_CALL
        timeout, peer = self._config.timeout, self._supervisor.peer
        seconds = timeout.call if is_call else timeout.read
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope, ExitStack() as stack:
            silence = IdleTimeout(scope, seconds, timeout.call_total if is_call else None)
            stack.enter_context(peer.waiting(silence))
            meta = request.meta
            if (told := request.on_progress) is not None:

                def progressed(params: Mapping[str, Any]) -> None:
                    silence.touch()
                    told(params)

                token = peer.watch_progress_params(progressed)
                stack.callback(peer.forget_progress, token)
                meta = {**meta, "progressToken": token}
            if request.sole and request.on_news is not None:
                stack.enter_context(peer.sole_listener(request.on_news))
            return await self._forward_rounds(request, line, target, meta, silence, sent)
        self.on_timeout()
        raise self.too_slow(f"the call of tool {target.name!r}" if is_call else request.method, seconds)

    async def _forward_rounds(
        self,
        request: ForwardedRequest,
        line: OpenSession,
        target: CallTarget,
        meta: Mapping[str, Any],
        silence: IdleTimeout,
        sent: DirectCall | None,
    ) -> dict[str, Any]:
        """Send a request, in rounds and to the end of its task where its client leaves these to us."""
        params, asked = dict(request.params), self._supervisor.peer.asked
        wants = request.follow_tasks and wants_task(target.spec, line.session.agreement)
        if wants:
            params["task"] = {}

        attempts = iter(() if sent is None else (sent,))

        async def send(more: Mapping[str, Any]) -> dict[str, Any]:
            if (attempt := next(attempts, None)) is not None:
                return await attempt.result()
            return await line.session.request(
                request.method,
                {**params, **more},
                meta=meta,
                schema=target.schema,
                declared=request.declared,
                on_notification=None if request.sole else request.on_news,
            )

        if request.answer is None:
            result = await send({})
        else:
            budget = self._supervisor.peer.asked.budget.copy()
            asked = ForwardingHandler(request.answer, self._config.name, budget)
            result = await exchange(send, request.method, asked, silence)
        return await self._followed(result, asked, silence, legacy=wants) if request.follow_tasks else result

    def note_forwarded(self, name: str, result: Mapping[str, Any]) -> None:
        """Look for hidden characters in a result that is passed on; see `GatewaySide.note_forwarded`."""
        if self._config.scan and self._catalog.lists(name):
            self._note_forwarded(self._catalog.original_target(name), result)

    def _note_forwarded(self, target: CallTarget, result: Mapping[str, Any]) -> None:
        try:
            self._catalog.note_result(target.spec, target.name, tool_result(result, server=self._config.name))
        except ProtocolError as exc:
            _log.debug("a result that is passed on was not scanned: %s", exc)

    async def _task_request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Make a request about a task, which outlives the connection on which it was created."""
        try:
            return await self.with_reconnect(lambda line: line.session.request(method, params), repeatable=True)
        except ConnectionLostError as exc:
            # the call itself was taken: it must not be sent again
            raise ConnectionLostError("the connection ended while a task ran", server=exc.server, sent=True) from exc

    async def _session_for_retry(
        self, line: OpenSession, exc: AuthRequiredError | ConnectionLostError, *, repeatable: bool
    ) -> OpenSession:
        """Return the session for a retry after `line` was lost; raise the error where a retry is not safe."""
        final = await self._final_error(line, exc)
        # `sent` is pessimistic: true as soon as a byte may have left. Only then does it matter whether the tool may run
        # twice.
        if isinstance(final, AuthRequiredError) or self._config.restart == "never" or (final.sent and not repeatable):
            raise final from None
        return await self.line()

    async def _final_error(
        self, line: OpenSession, exc: AuthRequiredError | ConnectionLostError
    ) -> AuthRequiredError | ConnectionLostError:
        """Return the error for the caller; a second refusal of our credentials in a row concerns the connection."""
        if isinstance(exc, AuthRequiredError):
            self._supervisor.doubt(exc)
            return exc
        return await self._explained(line, exc)

    async def _explained(self, line: OpenSession, exc: ConnectionLostError) -> ConnectionLostError:
        if line.process is None:
            return exc
        if self._supervisor.is_stopping:  # the process did not fail: the words that it left explain nothing
            message = "the connection was closed" + (" while the call ran" if exc.sent else "")
            return ConnectionLostError(message, server=exc.server, sent=exc.sent)
        code, stderr = await line.process.last_words()
        message = exc.message if code is None else "its process ended" + (" while the call ran" if exc.sent else "")
        return ConnectionLostError(
            message, server=exc.server, sent=exc.sent, exit_code=code, stderr=self._config.redact(stderr)
        )

    def _check_result(self, spec: ToolSpec, result: ToolResult) -> ToolResult:
        policy = self._config.validate_output
        if result.is_error or policy == "off":
            return result
        validator = self._catalog.validator(spec, "output")
        if validator is None or ("structuredContent" in result.raw and validator.is_valid(result.structured_content)):
            return result
        is_there = "structuredContent" in result.raw
        problems = validator.problems(result.structured_content) if is_there else ()
        said = describe(problems) if is_there else "it is missing"
        text = f"tool {spec.name!r} broke its output schema: structured content: {said}"
        if policy == "warn":
            _log.warning("server %r: %s", self._config.name, printable(text))
            return result
        text += (
            " (with validate_output: 'warn' or 'off' in the config of the server such results are taken as they are)"
        )
        data = {"problems": [{"path": problem.path, "message": problem.message} for problem in problems]}
        return ToolResult(
            content=(TextContent(text=text), *result.content),  # a model reads nothing else
            structured_content=result.structured_content,
            is_error=True,
            error=ToolError(text, kind=ErrorKind.INVALID_OUTPUT, data=data if is_there else None),
            meta=result.meta,
            raw=result.raw,
        )


def _repeatable(spec: ToolSpec | None) -> bool:
    return spec is not None and (spec.hint("readOnlyHint") is True or spec.hint("idempotentHint") is True)
