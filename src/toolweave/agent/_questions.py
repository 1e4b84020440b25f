"""Questions of MCP servers in the calls of a run: answered by a person now, by a recorded answer, or later.

Knows no connection: a call's questions come through `CallContext.questions`. Knows no user interface either: an answer
names the question by its id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from toolweave._json_types import JsonObject
from toolweave.agent.approval import Approvals, WaitingQuestion
from toolweave.errors import RunError
from toolweave.protocol.client_requests import ElicitationRequest, ElicitationResult
from toolweave.tools._call_questions import filled_form

GivenAnswer: TypeAlias = ElicitationResult | JsonObject
"""An answer to a question; a mapping accepts it with these values of the form."""

_TOGETHER_SECONDS = 0.01
"""Questions that come within this time are put together."""
_END_SECONDS = 5.0
"""Seconds in which a call may end that is given up for its question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The questions and answers of a call so far, in all of the processes that have made it.

    Attributes:
        number: Number of its questions.
        answers: The recorded answers, by the digest of the question, the oldest first.
        asked_by: The result that asked, of a call that is continued with the answers; else None.
        current: The answers to that result's questions.
        allowed: The digest of the tool's definition for which a call that waits was allowed, or None.
        repeats: Whether it may be made again from its start, as it does no harm or a person says so.
    """

    number: int = 0
    answers: Sequence[tuple[str, ElicitationResult]] = ()
    asked_by: JsonObject | None = None
    current: Sequence[tuple[str, ElicitationResult]] = ()
    allowed: str | None = None
    repeats: Literal["freely", "ask", "never"] = "never"


NOTHING_ASKED = Asked()


@dataclass(slots=True)
class _PendingQuestion:
    question: WaitingQuestion
    decided: anyio.Event = field(default_factory=anyio.Event)
    answer: ElicitationResult | None = None


class RunQuestions:
    """The questions of one run that a person can answer now.

    Args:
        run_id: The run.
        approvals: Say whether a person can be asked, and for how long.
    """

    def __init__(self, run_id: str, approvals: Approvals) -> None:
        self._run_id = run_id
        self._approvals = approvals
        self._waiting: dict[str, _PendingQuestion] = {}

    @property
    def attended(self) -> bool | Literal["later"]:
        """Whether a person can answer: now, not at all, or later, while no process executes the run."""
        return self._approvals.attended

    def waits(self, question_id: str) -> bool:
        """Whether a question of this id waits."""
        return question_id in self._waiting

    def answer(self, question_id: str, given: GivenAnswer) -> bool:
        """Answer a question that waits; returns False when none of this id does.

        Raises:
            RunError: The values do not fit the form; the question still waits.
        """
        waiting = self._waiting.get(question_id)
        if waiting is None:
            return False
        # Checked before the question is removed, so that a person can correct a wrong answer.
        waiting.answer = checked_answer(self._run_id, question_id, waiting.question, given)
        # Removed at once, not when the waiting task wakes up: a second answer must not replace this one.
        del self._waiting[question_id]
        waiting.decided.set()
        return True

    async def decide(self, question_id: str, question: WaitingQuestion, ask: Callable[[], None]) -> ElicitationResult:
        """Return the answer of a person, who is asked by `ask`; a question without a timely answer is cancelled."""
        waiting = self._waiting[question_id] = _PendingQuestion(question)
        try:
            # Inside the block: an answer may arrive before `ask` returns, and the question has to be known by then.
            ask()
            with anyio.move_on_after(self._approvals.seconds):
                await waiting.decided.wait()
        finally:
            # An answer that comes after the time would be for a question that has been cancelled; `answer` returns
            # False for it.
            self._waiting.pop(question_id, None)
        return waiting.answer or ElicitationResult.cancel()


class QuestionAnswers:
    """Answers the questions of one call: `CallQuestions` of the tools.

    A call whose question cannot be answered now is cancelled, and `parked` has the question; unless it is running at
    the server and must not be repeated: then the server gets a dismissal as the answer.

    Attributes:
        scope: The call runs in it.
        parked: The questions that the call waits for, by id, and whether the server was at work on the call.
    """

    def __init__(
        self,
        run: RunQuestions,
        call_id: str,
        asked: Asked,
        *,
        publish: Callable[[str, ElicitationRequest, ElicitationResult | None], None],
    ) -> None:
        self.scope = anyio.CancelScope()
        self.parked: dict[str, tuple[WaitingQuestion, bool]] = {}
        self._run = run
        self._call_id = call_id
        self._asked = asked
        self._publish = publish
        self._number = asked.number
        self._answers: dict[str, deque[ElicitationResult]] = {}
        self._over = anyio.Event()

    def begin(self) -> JsonObject | None:
        """Return the result that asked, of a call that is resumed where it asked."""
        # A call that continues from a result was already given the earlier answers; they are part of its request
        # state.
        self._use(self._asked.answers if self._asked.asked_by is None else self._asked.current)
        return self._asked.asked_by

    def restart(self) -> bool:
        """Whether the call may be made again from its start; all recorded answers are given again then."""
        self._use(self._asked.answers)
        return self._asked.repeats == "freely"

    async def answer(
        self, request: ElicitationRequest, *, running: bool, asked_by: JsonObject | None
    ) -> ElicitationResult:
        """Return the recorded answer, or that of a person; cancels the call where it has to wait for one."""
        question = WaitingQuestion.of(request, asked_by)
        # By what is asked, not by position: a call that runs again may ask in another order. Equal questions get their
        # answers in the order in which they were given.
        known = self._answers.get(question.digest)
        if known:
            return known.popleft()
        attended = self._run.attended
        # While the server is at work on the call, its answer cannot come later: the call would have to be made again,
        # which may do harm twice.
        if not attended or (attended == "later" and running and self._asked.repeats == "never"):
            return ElicitationResult.cancel()
        # Numbers continue from the recorded ones, since the journal has those and an id names one question for ever.
        self._number += 1
        question_id = f"{self._call_id}:{self._number}"
        if attended == "later":
            await self._park(question_id, request, question, running=running)
            return ElicitationResult.cancel()
        answer = await self._run.decide(question_id, question, lambda: self._publish(question_id, request, None))
        self._publish(question_id, request, answer)
        return answer

    def end(self) -> None:
        """Signal that the call has ended."""
        self._over.set()

    async def _park(
        self, question_id: str, request: ElicitationRequest, question: WaitingQuestion, *, running: bool
    ) -> None:
        self.parked[question_id] = (question, running)
        self._publish(question_id, request, None)
        # Others of the same call may be on their way; one visit of a person should answer all.
        await anyio.sleep(_TOGETHER_SECONDS)
        self.scope.cancel()
        with anyio.move_on_after(_END_SECONDS):
            await self._over.wait()

    def _use(self, answers: Sequence[tuple[str, ElicitationResult]]) -> None:
        # Made new each time: a call that restarts has to be given the same answers once more.
        self._answers = {}
        for digest, answer in answers:
            self._answers.setdefault(digest, deque()).append(answer)


def checked_answer(run_id: str, question_id: str, question: WaitingQuestion, given: GivenAnswer) -> ElicitationResult:
    """Return an answer as it is given to the server: an accepted form with its defaults filled in.

    Raises:
        RunError: The values do not fit the form, or there are values and no form.
    """
    if isinstance(given, ElicitationResult):
        answer = given
    else:
        answer = ElicitationResult.accept(given)
    if not answer.accepted:
        return ElicitationResult(action=answer.action)
    if question.mode == "url":
        # Such a page has its own form, and what is typed there must not pass through the client (SEP-1036).
        if answer.content:
            text = f"has a question {question_id!r} about a page to visit, which takes no values: accept it without any"
            raise RunError(text, run_id=run_id, reason="error")
        return ElicitationResult.accept()
    content, wrong = filled_form(question.schema, answer.content or {})
    if wrong:
        raise RunError(
            f"has a form {question_id!r} that the answer does not fit: {wrong}", run_id=run_id, reason="error"
        )
    return ElicitationResult.accept(content)
