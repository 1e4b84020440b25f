"""Calls to legacy upstreams that live on while their modern caller answers: between two of its requests.

A legacy server asks in the middle of a call. A modern caller gets the question as the result of its request, and brings
the answer with the next; meanwhile the call is parked. Knows no upstream and no state; a handle names a parked call.

Why a round is answered once: `take` removes the call without awaiting, so of two requests with one handle the second
finds none. Its outcome is kept for a while after, because a caller whose answer was lost repeats the request. A
parked call has one watcher, which ends it when its caller does not come back; its share of the bounds is released by
the one that removes it from `_parked`, and only there.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import anyio.abc
import msgspec

from toolweave.errors import ErrorKind, RequestError, ToolError, ToolweaveError
from toolweave.gateway._relay.caller_stream import CallerStream
from toolweave.protocol.client_requests import refused_by_expiry
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.serve.request import Json

_log = logging.getLogger("toolweave.gateway")
_TOGETHER_SECONDS = 0.01
"""Questions that come within this time are put in one round."""
_LAST_SECONDS = 2.0
"""Seconds in which an upstream may end a call whose caller did not come back."""


class _Question:
    """One request of the upstream that waits for its answer."""

    def __init__(self, method: str, params: Mapping[str, Any]) -> None:
        self.method = method
        self.params = params
        self.result: Json | None = None
        self.refusal: RequestError | None = None
        self.answered = anyio.Event()

    def settle(self, result: Json | None, refusal: RequestError | None = None) -> None:
        self.result = result
        self.refusal = refusal
        self.answered.set()


class LiveCall:
    """One call that may outlive the request that began it.

    Attributes:
        stream: Where its progress and log messages go now; None between requests.
        scope: Ends the call when it is cancelled.
        questions: The questions that are open, by key.
        over: Whether it has ended.
    """

    def __init__(self) -> None:
        self.stream: CallerStream | None = None
        self.scope: anyio.CancelScope = anyio.CancelScope()
        self.questions: dict[str, _Question] = {}
        self.over: bool = False
        self._result: Json | None = None
        self._failure: ToolweaveError | None = None
        self._asked = 0
        self._moved = anyio.Event()

    async def run(self, work: Callable[[LiveCall], Awaitable[Json]]) -> None:
        """Make the call; `outcome` has its end."""
        try:
            with self.scope:
                self._result = await work(self)
        except ToolweaveError as exc:
            self._failure = exc
        except Exception:  # boundary: no code awaits this task, and its caller must not wait forever
            _log.exception("a call failed unexpectedly")
            self._failure = RequestError("Internal error", code=INTERNAL_ERROR)
        finally:
            # Also after a cancellation: the requests that wait for this call wake, and find it over without a result.
            self.over = True
            self._notify_moved()

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Put a question of the upstream to the caller, and return the answer.

        Raises:
            RequestError: The caller refused, or did not answer in time.
        """
        self._asked += 1
        key = f"question-{self._asked}"
        question = _Question(method, params)
        self.questions[key] = question
        self._notify_moved()
        try:
            await question.answered.wait()
        finally:
            self.questions.pop(key, None)
        if question.refusal is not None:
            raise question.refusal
        assert question.result is not None
        return question.result

    def answer(self, answers: Mapping[str, Any]) -> None:
        """Give the answers to open questions; others are ignored.

        Raises:
            RequestError: An answer is not an object (-32602).
        """
        # A copy, since questions that have an answer are removed on the way.
        for key, question in list(self.questions.items()):
            if key not in answers:
                continue
            if not isinstance(answers[key], dict):
                raise RequestError(f"the answer {key!r} must be an object", code=INVALID_PARAMS)
            # Removed at once, not when its task wakes: `settled` would take the open question for the next round, and
            # put it to the caller again.
            del self.questions[key]
            question.settle(answers[key])

    def give_up(self) -> None:
        """Answer every open question as if the user dismissed it."""
        for question in list(self.questions.values()):
            try:
                question.settle(refused_by_expiry(question.method))
            except RequestError as exc:
                question.settle(None, exc)
        self.questions.clear()

    def progress(self, params: Mapping[str, Any]) -> None:
        """Pass a progress notification on to the request that waits now, if any."""
        if self.stream is not None:
            self.stream.progress(params)

    def news(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass another notification on likewise."""
        if self.stream is not None:
            self.stream.news(method, params)

    async def settled(self) -> None:
        """Wait until the call is over, or questions are open."""
        while not self.over and not self.questions:
            await self._moved.wait()
        # A server may ask several things at once, each in its own request. A short wait puts them into one round,
        # which saves the caller a request for each.
        if not self.over:
            await anyio.sleep(_TOGETHER_SECONDS)

    def outcome(self) -> Json:
        """Return the result of a call that is over.

        Raises:
            ToolweaveError: It failed.
        """
        if self._failure is not None:
            raise self._failure
        if self._result is None:
            raise RequestError("the call was cancelled; repeat the request", code=INTERNAL_ERROR)
        return self._result

    async def ended(self) -> None:
        """Wait until the call is over."""
        while not self.over:
            await self._moved.wait()

    def _notify_moved(self) -> None:
        # An event cannot be cleared: each change sets the present one, and later waits are for the next. The new one
        # is in place before any task runs, so no change between two waits is missed.
        event = self._moved
        self._moved = anyio.Event()
        event.set()


class ParkingFull(ToolError):
    """Too many calls wait for their callers; the text names the limit that was reached."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind=ErrorKind.EXECUTION_FAILED, retryable=True)


class ParkedRound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one round of a call: its end, or its questions.

    Attributes:
        result: The result of a call that is over.
        questions: The questions of one that is not, by key.
        handle: The handle by which that call is found again.
    """

    result: dict[str, Any] | None = None
    questions: dict[str, Any] | None = None
    handle: str | None = None


class _Parked(msgspec.Struct, eq=False):
    """One parked call."""

    call: LiveCall
    caller: str | None
    taken: anyio.Event = msgspec.field(default_factory=anyio.Event)
    answered: bool = False


class Parking:
    """The parked calls of one process.

    Args:
        max_parked: Maximum number of parked calls.
        max_per_caller: Maximum number of one caller.
        seconds: Seconds after which a call is given up whose caller did not come back.
        kept_seconds: Seconds for which the answer to a round is kept, for a request that is repeated.
    """

    def __init__(
        self, *, max_parked: int = 1000, max_per_caller: int = 16, seconds: float = 600.0, kept_seconds: float = 60.0
    ) -> None:
        self._max_parked = max_parked
        self._max_per_caller = max_per_caller
        self._seconds = seconds
        self._kept_seconds = kept_seconds
        self._parked: dict[str, _Parked] = {}
        self._of_caller: Counter[str] = Counter()
        self._kept: dict[str, tuple[float, ParkedRound | None]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, call: LiveCall, caller: str | None, tasks: anyio.abc.TaskGroup) -> str:
        """Keep a call until its caller comes back, and return the handle by which it does.

        Raises:
            ParkingFull: Too many wait.
        """
        if len(self._parked) >= self._max_parked:
            raise ParkingFull(f"{self._max_parked} calls wait for answers of users already; try again later")
        if caller is not None and self._of_caller[caller] >= self._max_per_caller:
            raise ParkingFull(f"{self._max_per_caller} calls of this caller wait for answers of its user already")
        handle = secrets.token_urlsafe(18)
        parked = self._parked[handle] = _Parked(call, caller)
        if caller is not None:
            self._of_caller[caller] += 1
        call.stream = None
        tasks.start_soon(self._watch, handle, parked)
        return handle

    def knows(self, handle: str) -> bool:
        """Return whether a handle is that of a call parked in this replica, or of a round that was answered in it."""
        return handle in self._parked or handle in self._kept

    def give_up(self, handle: str) -> None:
        """End a parked call."""
        parked = self._parked.pop(handle, None)
        if parked is not None:
            self._leave(parked)
            parked.call.scope.cancel()

    def take(self, handle: str) -> LiveCall | ParkedRound:
        """Return a parked call, which is parked no more; or the answer that its round was given before.

        Raises:
            RequestError: Its time is over, or the round is being answered by another request (-32602).
        """
        parked = self._parked.pop(handle, None)
        if parked is not None:
            self._leave(parked)
            self._remember(handle, None)
            return parked.call
        # A handle without an answer is that of a round that another request is just continuing. It gets an error, not
        # the call: its answers would otherwise be given twice.
        until, answer = self._kept.get(handle, (0.0, None))
        if answer is not None and until >= anyio.current_time():
            return answer
        if until >= anyio.current_time():
            text = "is answered by another request"
        else:
            text = "is not waiting any more"
        raise RequestError(f"the call that asked for this input {text}; repeat the request", code=INVALID_PARAMS)

    def keep(self, handle: str, answer: ParkedRound) -> None:
        """Remember the answer to a round, for a request that is repeated because its answer was lost."""
        self._remember(handle, answer)

    def _remember(self, handle: str, answer: ParkedRound | None) -> None:
        # Removed first, so that the newest is last in the dictionary: the order is the order of expiry, and old ones
        # are dropped from the front without looking at the rest.
        now = anyio.current_time()
        self._kept.pop(handle, None)
        self._kept[handle] = (now + self._kept_seconds, answer)
        while self._kept:
            oldest = next(iter(self._kept))
            if len(self._kept) <= self._max_parked and self._kept[oldest][0] >= now:
                return
            del self._kept[oldest]

    def _leave(self, parked: _Parked) -> None:
        parked.taken.set()
        if parked.caller is None:
            return
        self._of_caller[parked.caller] -= 1
        if not self._of_caller[parked.caller]:
            del self._of_caller[parked.caller]

    async def _watch(self, handle: str, parked: _Parked) -> None:
        """Give a call up when its caller does not come back."""
        try:
            with anyio.move_on_after(self._seconds):
                await parked.taken.wait()
                return
            _log.info("a call that waited %g s for the answers of its caller is given up", self._seconds)
            parked.call.give_up()
            with anyio.move_on_after(_LAST_SECONDS):
                await parked.call.ended()
        finally:
            # The caller may have come back meanwhile: then `take` has removed the call, and it is not ours to end.
            if self._parked.pop(handle, None) is not None:
                self._leave(parked)
                parked.call.scope.cancel()
