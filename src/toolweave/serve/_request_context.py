"""Runs the handler of a request with a context for its client: questions, progress, log messages.

A question to a legacy client is a request on the reply channel. To a modern client it ends the handler with
`input_required`; when the client repeats the request with answers, the handler runs again from its start and finds
them (SEP-2322). Independent of methods and transports.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from hashlib import sha256
from typing import Any, Protocol, runtime_checkable

import anyio

from toolweave.errors import ErrorKind, RequestError, ToolError
from toolweave.protocol import methods
from toolweave.protocol.client_requests import CAPABILITY_OF, can_answer
from toolweave.protocol.codes import INVALID_PARAMS, MISSING_CAPABILITY
from toolweave.protocol.input_required import INPUT_RESPONSES, REQUEST_STATE, input_request, input_required
from toolweave.protocol.logs import LogLevel
from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from toolweave.serve._envelope import MAX_TOKEN
from toolweave.serve._logs import Logs
from toolweave.serve._progress import ProgressStream
from toolweave.serve._request_state import TTL_SECONDS, StateSigner
from toolweave.serve._sampling import AnswersSampling, SamplingFallback
from toolweave.serve._sessions import ClientSessions, Sessions
from toolweave.serve._task_spawner import ServingGroups
from toolweave.serve.request import Json, Request
from toolweave.tools import IDEMPOTENCY_KEY, CallContext, Caller, ProgressCallback, Question
from toolweave.tools._client_requests import Keys

_log = logging.getLogger("toolweave.serve")

Work = Callable[[CallContext], Awaitable[Json]]
"""The handler of a request; runs once for each round of input."""

_ENVELOPE = frozenset({PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, "progressToken"})
_NOTHING: Mapping[str, Any] = {}
_NO_SCOPE = nullcontext()
_ABILITIES = frozenset(CAPABILITY_OF.values())
_ANSWERS = frozenset({INPUT_RESPONSES, REQUEST_STATE})
_UNENDED_SECONDS = 10.0
"""Seconds that a question waits for its cancelled handler to end, where a shield keeps it alive."""


class HandlerRunner:
    """Runs the handlers of requests; one for all requests of a server.

    Args:
        state: Dependencies for handlers, by name.
        signer: Signs the state that passes through the client between rounds.
        logs: Sends log messages to clients.
        sessions: Keeps the sessions of callers; None without sessions.
        sampling: Answers questions for the model of a client that has none; None leaves them refused.
        timeout: Timeout in seconds of a question to a legacy client.

    Attributes:
        groups: The task groups in which the server is served, for what waits beside a handler.
    """

    def __init__(
        self,
        *,
        state: Any = None,  # a mapping, or an object of the author's
        signer: StateSigner | None = None,
        logs: Logs | None = None,
        sessions: Sessions | None = None,
        sampling: AnswersSampling | None = None,
        timeout: float = TTL_SECONDS,
    ) -> None:
        self.state: Any = {} if state is None else state
        self.signer: StateSigner = StateSigner() if signer is None else signer
        self.logs: Logs = Logs() if logs is None else logs
        self.sessions = sessions
        self.groups: ServingGroups = ServingGroups("delayed progress is sent")
        self.sampling: SamplingFallback = SamplingFallback(sampling, timeout)
        self.timeout = timeout

    async def run(self, request: Request, work: Work) -> Json:
        """Run the handler of a request and return the result's members, or those of an `input_required` result.

        Raises:
            RequestError: The client's answers or its state are not of this request, or it lacks a capability.
        """
        meta = request.meta
        if request.modern:
            caller = _ModernCaller(request, self)
        else:
            caller = _LegacyCaller(request, self)
        token = meta.get("progressToken")
        # A long token would come back with each report; from a legacy client, which is not refused, it is ignored.
        if type(token) is int or (type(token) is str and len(token) <= MAX_TOKEN):
            return await self._watched(request, token, caller, work)
        ctx = CallContext(meta=_kept(request, meta), state=self.state, caller=caller)
        return await caller.run(work, ctx)

    def context(
        self,
        request: Request,
        caller: Caller | None,
        on_progress: ProgressCallback | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
    ) -> CallContext:
        """Return the context of a request's handler, for callers that run it without `run`.

        Its `meta` is that of `forwarded_meta` for the request, unless another is given.
        """
        kept = forwarded_meta(request) if meta is None else meta
        return CallContext(on_progress=on_progress, meta=kept, state=self.state, caller=caller)

    def given(self, request: Request) -> Mapping[str, Any]:
        """Return the answers that came with a request, by key, those of earlier rounds included.

        Raises:
            RequestError: They are malformed, or the state is not of this request (-32602).
        """
        # The sealed ones last: a client cannot replace an answer that it has given before.
        return {**request.object(INPUT_RESPONSES), **self.sealed(request)}

    def sealed(self, request: Request) -> Mapping[str, Any]:
        """Return the answers of earlier rounds of a request, by key; the client cannot have changed them.

        Raises:
            RequestError: The state is not of this request (-32602).
        """
        if REQUEST_STATE in request.params:
            return self.signer.open(request, request.params[REQUEST_STATE])
        return {}

    async def _watched(self, request: Request, token: int | str, caller: _RequestCaller, work: Work) -> Json:
        """Run a handler whose client wants progress; all of it is sent before the result is returned."""
        stream = ProgressStream(request.reply_channel, token, self.groups)
        try:
            result = await caller.run(work, self.context(request, caller, stream.report))
        except BaseException as exc:
            await stream.end(exc)
            raise
        # After the result is known, and before it is sent: MCP allows no progress for a request that has been
        # answered.
        await stream.end()
        return result


def forwarded_meta(request: Request) -> Mapping[str, Any]:
    """Return a request's `_meta` without hop-by-hop members; its idempotency key is bound to its principal."""
    return _kept(request, request.meta)


def _kept(request: Request, meta: Mapping[str, Any]) -> Mapping[str, Any]:
    if _ENVELOPE.issuperset(meta):
        return _NOTHING
    kept = {name: value for name, value in meta.items() if name not in _ENVELOPE}
    key: Any = kept.pop(IDEMPOTENCY_KEY, None)
    if isinstance(key, str):
        principal = request.client.principal
        # Two callers may choose the same key. A key is therefore of its caller, so that none gets the result of
        # another's call.
        kept[IDEMPOTENCY_KEY] = key if principal is None else sha256(f"{principal}\n{key}".encode()).hexdigest()
    return kept


@runtime_checkable
class HasRequest(Protocol):
    """A `Caller` on whose request a handler runs."""

    @property
    def request(self) -> Request:
        """The request."""
        ...


class _RequestCaller(Caller, Protocol):
    async def run(self, work: Work, ctx: CallContext) -> Json: ...


class _ClientOfRequest:
    """The attributes of a `Caller` that are those of the request's client, in every revision."""

    __slots__ = ("_request", "_runner")

    def __init__(self, request: Request, runner: HandlerRunner) -> None:
        self._request = request
        self._runner = runner

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._runner.sampling.able(self._request.client.capabilities)

    @property
    def client_key(self) -> str | None:
        return self._request.client.key

    @property
    def principal(self) -> str | None:
        return self._request.client.principal

    @property
    def request(self) -> Request:
        return self._request

    @property
    def sessions(self) -> ClientSessions:
        return ClientSessions(self._runner.sessions, self._request.client)

    @property
    def claims(self) -> Mapping[str, Any]:
        return self._request.client.claims

    @property
    def headers(self) -> Mapping[str, str]:
        return self._request.headers


class _LegacyCaller(_ClientOfRequest):
    """The `Caller` of a legacy request: a question is a request on its reply channel."""

    __slots__ = ()

    async def run(self, work: Work, ctx: CallContext) -> Json:
        return await work(ctx)

    async def ask(self, questions: Sequence[Question]) -> Sequence[Any]:
        declared = self._request.client.capabilities
        sampling = self._runner.sampling
        try:
            check_capabilities([one for one in questions if not sampling.takes(one, declared)], declared)
        except RequestError as exc:  # its code is of the stateless era; in earlier ones the tool has failed
            raise ToolError(exc.message, data=exc.data) from None
        return [
            one.read(await sampling.answer(one)) if sampling.takes(one, declared) else await self._put(one)
            for one in questions
        ]

    async def _put(self, question: Question) -> Any:
        timeout = self._runner.timeout
        try:
            with anyio.fail_after(timeout):
                answer = await self._request.reply_channel.ask(question.method, question.params(modern=False))
        except RequestError as exc:
            raise ToolError(f"the client refused {question.method}: {exc.message}", code=exc.code) from exc
        except TimeoutError:
            raise ToolError(
                f"the client did not answer {question.method} within {timeout:g} s", kind=ErrorKind.TIMEOUT
            ) from None
        return question.read(answer)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        await self._runner.logs.send(self._request, level, data, logger)

    async def release(self) -> None:
        await self._request.reply_channel.release()


class _ModernCaller(_ClientOfRequest):
    """The `Caller` of a modern request: a question finds its answer in the request, or ends the handler."""

    __slots__ = ("_asked", "_given", "_keys", "_scope", "_sealed", "_used")

    _asked: dict[str, Question]
    _given: Mapping[str, Any]
    _sealed: Mapping[str, Any]
    _keys: Keys
    _scope: anyio.CancelScope | None
    _used: Json

    async def run(self, work: Work, ctx: CallContext) -> Json:
        self._asked = {}
        self._used = {}
        self._sealed = self._given = _NOTHING
        if not _ANSWERS.isdisjoint(self._request.params):
            self._sealed = self._runner.sealed(self._request)
            self._given = {**self._request.object(INPUT_RESPONSES), **self._sealed}
        self._keys = Keys()
        # most clients declare nothing that they could be asked for, and a scope is a tenth of a call
        if _ABILITIES.isdisjoint(self._request.client.capabilities):
            self._scope = None
        else:
            self._scope = anyio.CancelScope()
        # Stays empty when the scope ends the work: the result is then made of the questions.
        result: Json = {}
        with self._scope or _NO_SCOPE:
            try:
                result = await work(ctx)
            except Exception:  # boundary: an error caused by the cancellation, as in a thread, is not a failure
                if not self._asked:
                    raise
                _log.debug("%s ended for a question", self._request.method, exc_info=True)
        # however the work took its end
        if self._asked:
            return self._input_required()
        return result

    async def ask(self, questions: Sequence[Question]) -> Sequence[Any]:
        request = self._request
        if request.method not in methods.INPUT_REQUIRED:
            raise ToolError(f"{request.method} cannot ask the client for input")
        declared = request.client.capabilities
        sampling = self._runner.sampling
        check_capabilities([one for one in questions if not sampling.takes(one, declared)], declared)
        keys = self._keys.of(questions)
        found: list[Any] = []
        for key, question in zip(keys, questions, strict=True):
            if sampling.takes(question, declared):
                found.append(await self._sampled(key, question))
            elif key in self._given:
                found.append(self._read(key, question))
            else:
                # Collected, not sent: the client should get all questions of this round together.
                self._asked[key] = question
        if len(found) < len(questions):
            await self._end()
        return found

    async def _sampled(self, key: str, question: Question) -> Any:
        """Return the answer of the server's model: that of an earlier round, which the client cannot write itself."""
        if key not in self._sealed:
            self._sealed = {**self._sealed, key: await self._runner.sampling.answer(question)}
        self._used[key] = self._sealed[key]
        return question.read(self._sealed[key])

    def _read(self, key: str, question: Question) -> Any:
        answer = self._given[key]
        try:
            read = question.read(answer)
        except ToolError as exc:
            raise RequestError(f"{INPUT_RESPONSES}[{key!r}]: {exc.message}", code=INVALID_PARAMS) from exc
        # Only answers that were read go into the state, which would otherwise grow by whatever a client sends.
        self._used[key] = answer
        return read

    async def _end(self) -> None:
        """Cancel the handler, also from one of its tasks or threads; never returns."""
        if self._scope is not None:
            self._scope.cancel()
            await anyio.sleep(_UNENDED_SECONDS)
        raise ToolError("a question was asked where the work cannot be ended; ask it outside of the shield")

    def _input_required(self) -> Json:
        requests = {
            key: input_request(question.method, question.params(modern=True)) for key, question in self._asked.items()
        }
        return input_required(requests, self._runner.signer.seal(self._request, self._used))

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        await self._runner.logs.send(self._request, level, data, logger)

    async def release(self) -> None:
        await self._request.reply_channel.release()


def check_capabilities(questions: Sequence[Question], declared: Mapping[str, Any]) -> None:
    """Check that a client declared the capabilities that these questions need.

    Raises:
        RequestError: Naming the capabilities that are missing (-32021).
    """
    # All at once, so that a client that can declare more has to repeat its request only once.
    missing = [question for question in questions if not can_answer(question.needs(), declared)]
    if not missing:
        return
    required: Json = {}
    for question in missing:
        for name, parts in question.needs().items():
            required[name] = {**required.get(name, {}), **parts}
    raise RequestError(
        f"the client did not declare the capabilities for {', '.join(sorted({one.method for one in missing}))}",
        code=MISSING_CAPABILITY,
        data={"requiredCapabilities": required},
    )
