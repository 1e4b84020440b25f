"""Requests of clients about tasks, in both forms of the protocol, and the check that a caller may make them.

Knows no tool, no carrier, and not where a task runs: that is its `TaskBackend`.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import anyio
import anyio.abc

from toolweave._json_types import as_integer, object_or_empty
from toolweave.errors import RequestError, StoreError
from toolweave.jobs.retention import milliseconds, retention_of
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.input_required import INPUT_RESPONSES
from toolweave.protocol.tasks import ENDED, TASK_ID, capabilities, created, in_core, related, task_result
from toolweave.serve._request_context import HandlerRunner, Work
from toolweave.serve._tasks.port import NewTask, OnTaskChange, TaskBackend, TaskHandle
from toolweave.serve._tasks.rules import TaskRule, TaskRules, TaskSupport, declared, named_task, undeclared
from toolweave.serve._tasks.task import TOLD_BY
from toolweave.serve.request import Json, Method, Request
from toolweave.tools import ToolSpec

T = TypeVar("T")
_log = logging.getLogger("toolweave.serve")

SLACK_SECONDS = 5.0
"""Seconds beyond a task's deadline that a request for its result waits."""


class TasksFeature:
    """Turns calls into tasks and answers the task methods; one for all clients of a server.

    Args:
        rules: The tools that become tasks, by name: `"optional"`, `"required"` or a `TaskRule`.
        runner: Runs handlers, and reads the answers that came with a call.
        backend: Where tasks are.
        ttl_ms: Milliseconds from a task's creation until it may be forgotten; work that takes longer is cancelled.
        poll_ms: Milliseconds between two requests of a client for the state of a task.
        always: Whether there may be tasks without rules: calls that are given to `start`.
        new_id: Makes the id of a task, which cannot be guessed.
        clock: Returns the time in seconds since the epoch.

    Raises:
        ValueError: A rule is neither.
    """

    method = TOLD_BY

    def __init__(
        self,
        rules: Mapping[str, TaskSupport | TaskRule],
        *,
        runner: HandlerRunner,
        backend: TaskBackend,
        ttl_ms: int = 3_600_000,
        poll_ms: int = 500,
        always: bool = False,
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(24),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rules: TaskRules = TaskRules(rules)
        self._always = always
        self._new_id = new_id
        self._runner = runner
        self._backend = backend
        self._ttl_ms = ttl_ms
        self._poll_ms = poll_ms
        self._clock = clock

    # the interface for the server and the tools

    def within(self, group: anyio.abc.TaskGroup) -> AbstractContextManager[None]:
        """Run the tasks of this process in a task group until the block ends."""
        return self._backend.within(group)

    def takes(self, spec: ToolSpec, request: Request) -> bool:
        """Whether this call becomes a task.

        Raises:
            RequestError: The tool requires tasks and this client does not support them.
        """
        return self.rules.takes(spec, request)

    async def start(self, request: Request, spec: ToolSpec, work: Work) -> Json:
        """Start the work as a task and return the result that names it.

        Raises:
            RequestError: No more tasks are accepted.
        """
        given: Mapping[str, Any] = self._runner.given(request) if request.modern else {}
        ttl_ms = self._ttl(request)
        now = self._clock()
        shown = created(self._new_id(), ttl_ms=ttl_ms, poll_ms=self._poll_ms, now=now)
        new = NewTask(request=request, work=work, given=given, shown=shown, expires_at=now + ttl_ms / 1000)
        await self._backend.start(new)
        return task_result(shown, modern=request.modern)

    def support(self, spec: ToolSpec, *, modern: bool) -> Json:
        """Return the members of a tool definition that declare its task support."""
        return self.rules.support(spec, modern=modern)

    # the methods of the protocol

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods about tasks; none if no tool becomes a task."""
        if not self._offered:
            return {}
        if modern:
            return {
                methods.TASKS_GET: self._get,
                methods.TASKS_UPDATE: self._update,
                methods.TASKS_CANCEL: self._cancel,
            }
        return {methods.TASKS_GET: self._get, methods.TASKS_RESULT: self._result, methods.TASKS_CANCEL: self._cancel}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return the extension, or the capability `tasks` of revision 2025-11-25."""
        if self._offered:
            return capabilities(modern=modern)
        return {}

    @property
    def _offered(self) -> bool:
        return bool(self.rules) or self._always

    async def current(self, request: Request, names: Sequence[str]) -> Mapping[str, Json]:
        """Return the current state of those tasks that are this client's, by id.

        Raises:
            RequestError: The client did not declare the extension.
        """
        _require(request)
        states: dict[str, Json] = {}
        for name in names:
            found = await _reached(self._backend.find(name, request.client.principal))
            if found is not None:
                states[name] = found.shown
        return states

    async def watch(self, known: Mapping[str, Json], on_change: OnTaskChange) -> None:
        """Report changes of tasks that other processes run."""
        await self._backend.watch(known, on_change)

    async def _get(self, request: Request) -> Json:
        found = await self._find(request)
        if request.modern:
            return found.shown
        return in_core(found.shown)

    async def _update(self, request: Request) -> Json:
        found = await self._find(request)
        if INPUT_RESPONSES not in request.params:
            raise RequestError(f"tasks/update needs the object {INPUT_RESPONSES!r}", code=INVALID_PARAMS)
        await _reached(found.answer(request.object(INPUT_RESPONSES)))
        return {}

    async def _cancel(self, request: Request) -> Json:
        found = await self._find(request)
        cancelled = await _reached(found.cancel())
        if not cancelled and not request.modern:
            status = found.shown["status"]
            raise RequestError(f"the task has ended already, it is {status}", code=INVALID_PARAMS)
        if request.modern:
            return {}
        return in_core(found.shown)

    async def _result(self, request: Request) -> Json:
        """Return the result of a task once it has ended; until then put its questions to the client."""
        found = await self._find(request)
        with anyio.move_on_after(max(0.0, found.left) + SLACK_SECONDS) as bound:
            await _reached(self._await_end(request, found))
        shown = found.shown
        if bound.cancelled_caught and shown["status"] not in ENDED:
            raise RequestError("the task was not over when it had to be; look again later", code=INTERNAL_ERROR)
        if "result" in shown:
            meta = {**object_or_empty(shown["result"].get("_meta")), **related(shown[TASK_ID])}
            return {**shown["result"], "_meta": meta}
        error: Json = shown.get("error", {})
        if not error:
            error = {"code": INVALID_PARAMS, "message": f"the task is {shown['status']}"}
        raise RequestError(error["message"], code=error["code"], data=error.get("data"))

    async def _await_end(self, request: Request, found: TaskHandle) -> None:
        while found.shown["status"] not in ENDED:
            await self._put_questions(request, found)
            if found.shown["status"] not in ENDED and not found.questions:
                await found.change()

    async def _put_questions(self, request: Request, found: TaskHandle) -> None:
        """Put a task's open questions to the client, on the stream of the request for its result."""
        for key, question in tuple(found.questions.items()):
            params = {**question.params(modern=False), "_meta": related(found.shown[TASK_ID])}
            try:
                with anyio.fail_after(self._runner.timeout):
                    answer = await request.reply_channel.ask(question.method, params)
                await found.answer({key: answer})
            except RequestError as exc:
                await found.refuse(key, exc)
            except TimeoutError:
                said = f"the client did not answer {question.method} within {self._runner.timeout:g} s"
                await found.refuse(key, RequestError(said, code=INTERNAL_ERROR))

    async def _find(self, request: Request) -> TaskHandle:
        """Return the task that a request names, if it is this client's."""
        name = named_task(request)
        found = await _reached(self._backend.find(name, request.client.principal))
        if found is None:
            raise RequestError("Unknown task", code=INVALID_PARAMS)
        return found

    def _ttl(self, request: Request) -> int:
        # the extension has no such parameter
        if request.modern:
            return self._ttl_ms
        wished = as_integer(request.object("task").get("ttl"))
        if wished is None or wished <= 0:
            return self._ttl_ms
        return min(wished, self._ttl_ms)


def tasks_kept_by(
    keeper: object, rules: Mapping[str, TaskSupport | TaskRule], *, runner: HandlerRunner, backend: TaskBackend
) -> TasksFeature:
    """Return the tasks of a server, kept as long as the retention of its work backend, if it has one, wants it."""
    ttl_ms = milliseconds(retention_of(keeper).task_seconds)
    return TasksFeature(rules, runner=runner, backend=backend, ttl_ms=ttl_ms)


async def _reached(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except StoreError as exc:
        _log.error("a client asked about its task: %s", exc)
        raise RequestError("the store of tasks cannot be reached; try again later", code=INTERNAL_ERROR) from None


def _require(request: Request) -> None:
    if request.modern and not declared(request):
        raise undeclared()
