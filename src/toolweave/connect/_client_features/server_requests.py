"""Handling of a server's requests to its client: parse the request, run the callback, build the answer.

Knows no transport and no era: a legacy server sends these requests itself, a modern one puts them into
`input_required` results. The requests are untrusted, and exceptions of callbacks are not sent to the server.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from toolweave._json_types import Json, JsonObject, array_or_empty, as_object, object_or_empty
from toolweave.connect._client_features.callbacks import (
    NO_CALLBACKS,
    AnswerRequest,
    Callbacks,
    RootsAnswer,
    SamplingRequest,
    ask_caller,
    checked_roots,
)
from toolweave.connect._client_features.question_budget import QuestionBudget
from toolweave.connect._feed.list_reader import tool_reader
from toolweave.errors import ProtocolError, RequestError, printable
from toolweave.protocol import methods
from toolweave.protocol.client_requests import (
    REJECTED,
    ElicitationRequest,
    ElicitationResult,
    SamplingResult,
    capabilities_for,
    elicitation_request,
    elicitation_result_json,
    roots_json,
    sampling_fields,
    sampling_result_json,
    wants_tools,
)
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from toolweave.protocol.lenient_offers import NoteChange, ignore_change
from toolweave.protocol.lenient_questions import readable_elicitation, readable_sampling
from toolweave.protocol.meta import TASKS_EXTENSION
from toolweave.tools import CallQuestions
from toolweave.tools._call_questions import filled_form

_log = logging.getLogger("toolweave.connect")


def client_capabilities(callbacks: Callbacks, *, modern: bool) -> Json:
    """Return the client capabilities of these callbacks, in the form of the era."""
    made = capabilities_for(callbacks.answers())
    if modern:
        return made | {"extensions": {TASKS_EXTENSION: {}}}
    if callbacks.roots is None:
        return made
    return made | {"roots": {"listChanged": True}}


class ServerRequestHandler:
    """The handler of one server's requests.

    Args:
        callbacks: The callbacks of the user.
        server: The server's name.
        budget: The budget of its questions.
        note: Called with each part of a request that is outside of the specification and is read.

    Attributes:
        roots: The current roots: a sequence, or a callable that returns one.
        budget: The budget of its questions.
    """

    def __init__(
        self, callbacks: Callbacks, server: str, budget: QuestionBudget, note: NoteChange = ignore_change
    ) -> None:
        self.roots: RootsAnswer | Callable[[], RootsAnswer | Awaitable[RootsAnswer]] | None = callbacks.roots
        self.budget = budget
        self._callbacks = callbacks
        self._server = server
        self._note = note

    def refuses(self, method: str) -> bool:
        """Return whether a request is refused without any callback: there is none, or the budget is spent."""
        callbacks = {
            methods.SAMPLING_CREATE_MESSAGE: self._callbacks.sampling,
            methods.ELICITATION_CREATE: self._callbacks.elicitation,
            methods.ROOTS_LIST: self.roots,
        }
        return callbacks.get(method) is None or self.budget.is_spent(method)

    async def answer(self, method: str, params: JsonObject) -> Json:
        """Return the result of one request, within the budget of the call.

        Raises:
            ProtocolError: The refusal, with the code for the answer.
        """
        async with self.budget.spending(method, params):
            return await self._answer(method, params)

    async def _answer(self, method: str, params: JsonObject) -> Json:
        try:
            match method:
                case methods.SAMPLING_CREATE_MESSAGE if self._callbacks.sampling is not None:
                    return await self._sample(params)
                case methods.ELICITATION_CREATE if self._callbacks.elicitation is not None:
                    return await self._elicit(params)
                case methods.ROOTS_LIST if self.roots is not None:
                    return await self._list_roots()
                case _:
                    raise self.refusal(METHOD_NOT_FOUND, f"this client does not offer {method}")
        except ProtocolError:
            raise
        except Exception:  # boundary: an odd request, or an odd answer of a callback
            _log.exception("server %r: its request %r could not be answered", self._server, method)
        raise self.refusal(INTERNAL_ERROR, "the client failed to answer")

    async def _sample(self, params: JsonObject) -> Json:
        try:
            params = readable_sampling(params, partial(self._note_request, methods.SAMPLING_CREATE_MESSAGE))
            fields = sampling_fields(params)
        except ValueError as exc:
            raise self.refusal(INVALID_PARAMS, str(exc)) from None
        if not self._callbacks.sampling_tools and wants_tools(params):
            raise self.refusal(INVALID_PARAMS, "this client did not declare sampling with tools")
        offered = await tool_reader(array_or_empty(params.get("tools")), server=self._server).read_in_steps()
        request = SamplingRequest(server=self._server, tools=offered.items, **fields)
        answer = await self._run("sampling", self._callbacks.sampling, request)
        if answer is None:
            raise self.refusal(REJECTED, "the user rejected the sampling request")
        # The callback is code of the user, whose types are checked here. Its fault is logged in full for the user, and
        # the server gets an error without details.
        made = SamplingResult(content=answer) if isinstance(answer, str) else answer
        if not isinstance(made, SamplingResult):
            text = f"the sampling callback returned {type(answer).__name__}, not a SamplingResult, a text or None"
            _log.error("server %r: %s", self._server, printable(text))
            raise self.refusal(INTERNAL_ERROR, "the client's sampling callback failed")
        return sampling_result_json(made)

    async def _elicit(self, params: JsonObject) -> Json:
        try:
            params = readable_elicitation(params, partial(self._note_request, methods.ELICITATION_CREATE))
            request = elicitation_request(params, server=self._server)
        except ValueError as exc:
            raise self.refusal(INVALID_PARAMS, str(exc)) from None
        try:
            answer = await self._run("elicitation", self._callbacks.elicitation, request)
        except ProtocolError:
            answer = ElicitationResult.cancel()
        content = as_object(answer)
        if answer is None:
            answer = ElicitationResult.decline()
        elif content is not None:
            answer = ElicitationResult.accept(content)
        # Cancelled in all cases of doubt: what the user did not plainly accept is not sent.
        if not isinstance(answer, ElicitationResult):
            kind = type(answer).__name__
            _log.error("server %r: the elicitation callback returned %s; cancelled", self._server, kind)
            answer = ElicitationResult.cancel()
        if answer.accepted and request.mode == "form":
            answer = self._accepted(request.schema, object_or_empty(answer.content))
        else:
            answer = ElicitationResult(action=answer.action)
        return elicitation_result_json(answer)

    def _accepted(self, schema: JsonObject, given: JsonObject) -> ElicitationResult:
        """Return the consent with the form's values: its defaults filled in (SEP-1034), and valid."""
        content, wrong = filled_form(schema, given)
        if not wrong:
            return ElicitationResult.accept(content)
        _log.error(
            "server %r: the elicitation callback's answer does not fit; cancelled: %s", self._server, printable(wrong)
        )
        return ElicitationResult.cancel()

    async def _list_roots(self) -> Json:
        roots = self.roots
        given: Any = await self._run("roots", roots) if callable(roots) else roots
        try:
            made = checked_roots(given)
        except (TypeError, ValueError) as exc:
            _log.error("server %r: the roots callback did not return a list of roots: %s", self._server, exc)
            raise self.refusal(INTERNAL_ERROR, "the client's roots callback failed") from None
        return roots_json(made)

    async def _run(self, what: str, callback: Any, *args: Any) -> Any:
        try:
            outcome = callback(*args)
            if inspect.isawaitable(outcome):
                return await outcome
            return outcome
        except Exception:  # boundary: user code; the server does not get its error text
            _log.exception("server %r: the %s callback raised", self._server, what)
        raise self.refusal(INTERNAL_ERROR, f"the client's {what} callback failed")

    def _note_request(self, method: str, change: str) -> None:
        self._note(f"its request {method} {change}")

    def note_result(self, change: str) -> None:
        """Report a part of the result of a call that is outside of the specification and is read."""
        self._note(f"its result {change}")

    def refusal(self, code: int, message: str) -> ProtocolError:
        """Make the error of a request that is not answered."""
        return ProtocolError(message, server=self._server, code=code)

    @property
    def leaves_questions(self) -> bool:
        """Whether the callers of tools answer the questions asked in their calls."""
        return self._callbacks.elicitation is ask_caller

    def of_call(
        self, questions: CallQuestions, *, running: bool = True, asked_by: JsonObject | None = None
    ) -> CallRequestHandler:
        """Return the handler for one call, whose questions its caller answers; see `CallQuestions.answer`."""

        async def elicit(request: ElicitationRequest) -> ElicitationResult:
            return await questions.answer(request, running=running, asked_by=asked_by)

        # Each call has the whole budget; between its rounds the questions count for the call that they are of.
        budget = self.budget.copy() if running else self.budget
        callbacks = self._callbacks.replace(elicitation=elicit)
        made = CallRequestHandler(callbacks, self._server, questions, budget, self._note)
        made.roots = self.roots
        return made

    def at_rest(self, asked_by: JsonObject | None) -> ServerRequestHandler:
        """Return the handler of questions while no call is running at the server; see `CallQuestions.answer`."""
        return self


class CallRequestHandler(ServerRequestHandler):
    """The handler of one server's requests in one call.

    Attributes:
        questions: Answers its questions to the user.
    """

    def __init__(
        self,
        callbacks: Callbacks,
        server: str,
        questions: CallQuestions,
        budget: QuestionBudget,
        note: NoteChange,
    ) -> None:
        super().__init__(callbacks, server, budget, note)
        self.questions = questions

    def at_rest(self, asked_by: JsonObject | None) -> ServerRequestHandler:
        """Return the handler of questions that a result, or a refusal, of the call's server has asked."""
        return self.of_call(self.questions, running=False, asked_by=asked_by)


class ForwardingHandler(ServerRequestHandler):
    """The handler of one server's requests that another client answers: nothing is read, checked or changed."""

    def __init__(self, forward: AnswerRequest, server: str, budget: QuestionBudget) -> None:
        super().__init__(NO_CALLBACKS, server, budget)
        self._forward = forward

    def refuses(self, method: str) -> bool:
        """Return whether the budget is spent; other refusals are known to the other client alone."""
        return self.budget.is_spent(method)

    async def _answer(self, method: str, params: JsonObject) -> Json:
        """Return the other client's result.

        Raises:
            ProtocolError: Its refusal, with its code and data.
        """
        try:
            return await self._forward(method, params)
        except RequestError as exc:
            raise ProtocolError(exc.message, server=self._server, code=exc.code, data=exc.data) from None
