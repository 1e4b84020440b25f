"""A running task: its state, its open questions, and its end.

Knows neither the work nor the rights of callers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from toolweave.errors import RequestError, ToolError
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.input_required import INPUT_REQUESTS, INPUT_REQUIRED, input_request
from toolweave.protocol.logs import LogLevel
from toolweave.protocol.tasks import ENDED, TASK_ID, failed, updated
from toolweave.serve._request_context import HandlerRunner, check_capabilities
from toolweave.serve._sessions import ClientSessions
from toolweave.serve.request import Json, Request
from toolweave.tools import Progress, Question
from toolweave.tools._client_requests import Keys

TOLD_BY = methods.NOTIFICATIONS_TASKS
"""The notification of a task's status."""


class RunningTask:
    """A task that runs in this process.

    Args:
        shown: Its state when it was created, or when it runs again.
        expires_at: Its deadline, in seconds since the epoch.
        now: Returns the time in seconds since the epoch.
        changed: Called after every change that clients can see.
    """

    def __init__(
        self, shown: Json, *, expires_at: float, now: Callable[[], float], changed: Callable[[RunningTask], None]
    ) -> None:
        self.id: str = shown[TASK_ID]
        self.scope = anyio.CancelScope()
        self.questions: dict[str, Question] = {}
        self.expires_at = expires_at
        self._shown = shown
        self._answers: dict[str, Any] = {}
        self._keys = Keys()
        self._used: set[str] = set()
        # the key that a question had first, by the one that it has now
        self._first: dict[str, str] = {}
        self._now = now
        self._changed = changed
        self._news = anyio.Event()

    @property
    def status(self) -> str:
        """`working`, `input_required`, `completed`, `failed` or `cancelled`."""
        return self._shown["status"]

    @property
    def left(self) -> float:
        """Seconds until its deadline."""
        return self.expires_at - self._now()

    @property
    def ended(self) -> bool:
        """Whether the status is final."""
        return self.status in ENDED

    def show(self) -> Json:
        """Return the task as clients see it, in the form of the extension (`DetailedTask`)."""
        return dict(self._shown)

    def progress(self, progress: Progress) -> None:
        """Set the status message to the handler's progress."""
        if self.ended:
            return
        total = "" if progress.total is None else f"/{progress.total:g}"
        self._update(statusMessage=progress.message or f"{progress.progress:g}{total}")

    def end(self, status: str, message: str | None = None, result: Json | None = None) -> bool:
        """End as `completed`, with a `result`, or as `cancelled`; return False if it has ended already."""
        if self.ended:
            return False
        self.questions.clear()
        self._update(status=status, statusMessage=message, result=result)
        return True

    def fail(self, error: RequestError, *, anew: bool = False) -> None:
        """Fail with a JSON-RPC error, unless it has ended; with `anew` also then, because its end was not read yet."""
        if not self.ended or anew:
            self.questions.clear()
            self._become(failed(self._shown, self._now(), error))

    async def ask(self, questions: Sequence[Question], given: Mapping[str, Any]) -> list[Any]:
        """Ask questions and wait until the client has answered all that `given` does not answer by key."""
        keys = [self._unused(key) for key in self._keys.of(questions)]
        for key, question in zip(keys, questions, strict=True):
            try:
                self._answers[key] = question.read(given[key])
            except (KeyError, ToolError):
                # not given, or no answer to it
                self.questions[key] = question
        if self.questions:
            self._require()
        # Other questions of the task may be answered in between, and one answer may take several tries: so the
        # condition is checked after each change, and an answer that came before the wait began is not missed.
        while not all(key in self._answers for key in keys):
            await self.change()
        answers = [self._answers.pop(key) for key in keys]
        for answer in answers:
            if isinstance(answer, ToolError):
                raise answer
        return answers

    def answer(self, answers: Mapping[str, Any]) -> None:
        """Accept answers of the client; those to no open question are ignored.

        Raises:
            RequestError: An answer does not fit its question, and all are refused.
        """
        try:
            read = {key: self.questions[key].read(value) for key, value in answers.items() if key in self.questions}
        except ToolError as exc:
            raise RequestError(exc.message, code=INVALID_PARAMS) from None
        # All are read before the first is kept: a request with one wrong answer changes nothing, and its sender may
        # send all of them again.
        if read:
            for key, answer in read.items():
                self._answers[self._first.pop(key, key)] = answer
                del self.questions[key]
            self._require()

    def refuse(self, key: str, error: ToolError) -> None:
        """Accept the client's refusal to answer a question: the handler gets the error."""
        if self.questions.pop(key, None) is not None:
            self._answers[self._first.pop(key, key)] = error
            self._require()

    def ask_again(self, key: str) -> None:
        """Ask an open question under another key: its answer was invalid, and clients remember answered keys."""
        anew = self._unused(key)
        self._first[anew] = self._first.pop(key, key)
        self.questions[anew] = self.questions.pop(key)
        self._require()

    async def change(self) -> None:
        """Wait for the next change."""
        await self._news.wait()

    def _unused(self, wished: str) -> str:
        """Return a key that this task never used; clients remember answered keys."""
        key = wished
        count = 1
        while key in self._used:
            count += 1
            key = f"{wished}-{count}"
        self._used.add(key)
        return key

    def _require(self) -> None:
        if self.questions:
            requests = {
                key: input_request(question.method, question.params(modern=True))
                for key, question in self.questions.items()
            }
            self._update(status=INPUT_REQUIRED, statusMessage=None, **{INPUT_REQUESTS: requests})
        else:
            self._update(status="working", statusMessage=None)

    def _update(self, **members: Any) -> None:
        self._become(updated(self._shown, self._now(), **members))

    def _become(self, shown: Json) -> None:
        self._shown = shown
        # An event cannot be reset, so each change has its own. The new one is in place before the waiters of the old
        # one run: a task that waits again waits for the next change.
        news = self._news
        self._news = anyio.Event()
        news.set()
        self._changed(self)


class TaskCaller:
    """The `Caller` of a handler that runs as a task: questions wait in the task.

    Args:
        request: The call that became the task.
        given: Answers that came with the call, by key.
        runner: Runs handlers with the server's values.
    """

    def __init__(self, task: RunningTask, request: Request, given: Mapping[str, Any], runner: HandlerRunner) -> None:
        self.request = request
        self._task = task
        self._client = request.client
        self._given = given
        self._runner = runner

    @property
    def sessions(self) -> ClientSessions:
        """The sessions that the client reaches."""
        return ClientSessions(self._runner.sessions, self._client)

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities that the client declared with the call, and those that the server provides for it."""
        return self._runner.sampling.able(self._client.capabilities)

    @property
    def client_key(self) -> str | None:
        """The key that identifies the client, or None."""
        return self._client.key

    @property
    def principal(self) -> str | None:
        """The authorized principal, or None."""
        return self._client.principal

    @property
    def claims(self) -> Mapping[str, Any]:
        """The claims of its token; empty without a token."""
        return self._client.claims

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request that became the task; empty at a worker."""
        return self.request.headers

    async def ask(self, questions: Sequence[Question]) -> Sequence[Any]:
        """Ask the questions and wait until the client has answered all of them.

        Raises:
            RequestError: The client did not declare the capability that a question needs.
            ToolError: It refused.
        """
        declared = self._client.capabilities
        sampling = self._runner.sampling
        mine = {place: one for place, one in enumerate(questions) if sampling.takes(one, declared)}
        others = [one for place, one in enumerate(questions) if place not in mine]
        check_capabilities(others, declared)
        said = {place: one.read(await sampling.answer(one)) for place, one in mine.items()}
        theirs = iter(await self._task.ask(others, self._given) if others else ())
        return [said[place] if place in said else next(theirs) for place in range(len(questions))]

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:  # data is any JSON value
        """Do nothing: a task has no stream for log messages."""

    async def release(self) -> None:
        """Do nothing: a task has no stream."""
