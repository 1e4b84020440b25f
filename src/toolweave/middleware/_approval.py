"""Approval of calls by the user of the calling client, who is asked before the tool gets anything.

A legacy client is asked while its request waits; a modern one gets `input_required` and repeats the call with the
answer. What the tool itself asks afterwards passes through with the approval kept in the signed state, so that the user
is asked once. The answer comes from the client, which is trusted to ask its user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import anyio
import msgspec

from toolweave._json_types import without_members
from toolweave._option_checks import TEXT
from toolweave._value import Value
from toolweave.errors import ErrorKind, RequestError, ToolError, printable, shortened
from toolweave.middleware._options import as_tuples, at_least, of_kinds
from toolweave.middleware._selection import SELECTIONS, OfferSelection, RequestTarget, selected, target_of
from toolweave.protocol import methods
from toolweave.protocol.client_requests import ElicitationResult
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.input_required import (
    INPUT_REQUESTS,
    INPUT_REQUIRED,
    INPUT_RESPONSES,
    REQUEST_STATE,
    input_request,
    input_required,
)
from toolweave.serve import CallNext, Request
from toolweave.serve._request_context import check_capabilities
from toolweave.serve._request_state import TTL_SECONDS, StateSigner
from toolweave.serve.request import Json
from toolweave.tools import Elicitation, ToolResult
from toolweave.tools.mcp import call_result

_QUESTION_KEY = "toolweave.approval"
_TOOL_STATE = "state"
_MAX_SHOWN = 600
_DESTRUCTIVE = (OfferSelection(kinds=("tools",), annotations={"destructiveHint": True}),)


class UserApproval(Value, frozen=True, kw_only=True):
    """Middleware that has a call approved by the caller's user (elicitation); without approval the tool is not called.

    A client that cannot ask its user is refused. The answer to a refused call is an error that the model reads.

    Attributes:
        only: The tools whose calls need approval; by default those that may be destructive, which is every tool that
            does not say otherwise. Those for which the config of their server wants approvals (`confirm`) are among
            them.
        message: The question; `{tool}` is the tool's name, `{arguments}` its arguments, shortened.
        patience_seconds: How long a legacy client may take to answer.
        state_keys: Secrets of at least 32 bytes that sign the state of modern clients, the newest first; made for this
            process by default, so replicas share some.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"state_keys", "_signer"})
    ports: ClassVar[frozenset[str]] = frozenset({"state_keys", "_signer"})
    reads_results: ClassVar[bool] = False
    only: Sequence[OfferSelection] = _DESTRUCTIVE
    message: str = "Allow the call of {tool} with {arguments}?"
    patience_seconds: float = TTL_SECONDS
    state_keys: Sequence[str | bytes] | None = None
    _signer: StateSigner | None = None

    def __post_init__(self) -> None:
        as_tuples(self, "only")
        of_kinds(self, {"only": SELECTIONS, "message": TEXT})
        at_least(self, 0.001, "patience_seconds")
        msgspec.structs.force_setattr(self, "_signer", StateSigner(self.state_keys))

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a call once it is approved."""
        if request.method == methods.TOOLS_CALL:
            target = target_of(request)
        else:
            target = None
        if target is None or target.spec is None:
            return await call_next(request)
        # `confirm` of a server's config wins over a narrower `only`: its owner wrote it for this server.
        if not target.spec.needs_approval and not selected(self.only, target):
            return await call_next(request)
        question = Elicitation(self._question(request, target), key=_QUESTION_KEY)
        try:
            if request.modern:
                return await self._ask_or_continue(request, question, call_next)
            approved = await self._ask_legacy_client(request, question)
        except ToolError as exc:
            return _denied_result(request, exc.message)
        if approved:
            return await call_next(request)
        return _denied_result(request, "the user did not allow it")

    def _question(self, request: Request, target: RequestTarget) -> str:
        arguments = json.dumps(request.params.get("arguments") or {}, ensure_ascii=False)
        # The model wrote the arguments: control characters could hide a part of them in the user's terminal.
        shown = shortened(printable(arguments), _MAX_SHOWN)
        # `str.format` would read braces in the arguments as fields. The tool's name is replaced first, so that
        # arguments which contain `{tool}` stay as they are.
        return self.message.replace("{tool}", target.names[0]).replace("{arguments}", shown)

    async def _ask_legacy_client(self, request: Request, question: Elicitation) -> bool:
        """Ask the user of a legacy client while its request waits, and return whether the call is allowed.

        Raises:
            ToolError: The client cannot ask its user, refuses to, or does not answer in time.
        """
        _check_can_ask(question, request)
        try:
            with anyio.fail_after(self.patience_seconds):
                answer = await request.reply_channel.ask(question.method, question.params(modern=False))
        except RequestError as exc:
            raise ToolError(f"the client refused to ask its user: {exc.message}") from None
        except TimeoutError:
            raise ToolError(f"the user did not answer within {self.patience_seconds:g} s") from None
        return question.read(answer).accepted

    async def _ask_or_continue(self, request: Request, question: Elicitation, call_next: CallNext) -> Json:
        """Return a question for a modern client; once it repeats the call with its user's approval, make the call.

        Raises:
            RequestError: The state belongs to another request, or the answer cannot be read.
            ToolError: The client cannot be asked.
        """
        signer = cast("StateSigner", self._signer)
        kept: Mapping[str, Any] = {}
        if REQUEST_STATE in request.params:
            kept = signer.open(request, request.params[REQUEST_STATE])
        responses = dict(request.object(INPUT_RESPONSES))
        answer = responses.pop(_QUESTION_KEY, None)
        # A signed state with this member exists only after an approval. Later rounds of the same call are those of the
        # tool, and the user is not asked twice.
        if _TOOL_STATE not in kept:
            # An answer without our state answers no question of ours: a client could otherwise send the approval with
            # the first request, before any user has seen it.
            if answer is None or REQUEST_STATE not in request.params:
                _check_can_ask(question, request)
                asked = {_QUESTION_KEY: input_request(question.method, question.params(modern=True))}
                return input_required(asked, signer.seal(request, {}))
            if not _read_answer(question, answer).accepted:
                return _denied_result(request, "the user did not allow it")
        result = await call_next(
            request.replace(params=_inner_params(request.params, kept.get(_TOOL_STATE), responses))
        )
        if result.get("resultType") != INPUT_REQUIRED:
            return result
        # The tool's own state is carried inside ours, because the client returns one state only.
        state = signer.seal(request, {_TOOL_STATE: result.get(REQUEST_STATE)})
        return {**result, INPUT_REQUESTS: result.get(INPUT_REQUESTS, {}), REQUEST_STATE: state}


def _check_can_ask(question: Elicitation, request: Request) -> None:
    """Check that the client can ask its user.

    Raises:
        ToolError: The client did not declare elicitation.
    """
    questions: Sequence[Elicitation] = (question,)
    try:
        check_capabilities(questions, request.client.capabilities)
    except RequestError:
        raise ToolError("it needs the approval of a user, and the client cannot ask one (elicitation)") from None


def _read_answer(question: Elicitation, answer: object) -> ElicitationResult:
    try:
        return question.read(answer)
    except ToolError as exc:
        raise RequestError(f"{INPUT_RESPONSES}[{_QUESTION_KEY!r}]: {exc.message}", code=INVALID_PARAMS) from None


def _inner_params(params: Mapping[str, Any], state: object, responses: Json) -> Json:
    """Return the parameters of the call itself: its own state and answers, and nothing of the approval."""
    inner = without_members(params, REQUEST_STATE, INPUT_RESPONSES)
    if state is not None:
        inner[REQUEST_STATE] = state
    if responses:
        inner[INPUT_RESPONSES] = responses
    return inner


def _denied_result(request: Request, why: str) -> Json:
    error = ToolError(f"the call was not made: {why}", kind=ErrorKind.DENIED)
    return call_result(ToolResult.failure(error), modern=request.modern)
