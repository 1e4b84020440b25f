"""Calls that outlast their request: the extension `io.modelcontextprotocol/tasks`, and its form in revision 2025-11-25.

Decides which calls become tasks, runs them while the server runs, and answers what clients ask about them. Knows no
tool and no carrier; what one task says of itself is `task.py`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

import anyio
import anyio.abc

from toolweave.errors import ErrorKind, RequestError, StoreError, ToolError
from toolweave.serve.changes import Changes, Topic
from toolweave.serve.codes import HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY
from toolweave.serve.request import Json, Method, Request
from toolweave.serve.rounds import Rounds, Work
from toolweave.serve.task import Task, TaskCaller
from toolweave.state import MemoryStore, Store
from toolweave.tools.call import CallContext
from toolweave.tools.spec import ToolSpec

__all__ = ["TaskRule", "TaskSupport", "Tasks"]

_log = logging.getLogger("toolweave.serve")

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
IN_CORE = "2025-11-25"
"""The one revision whose core has tasks."""
COLLECTION = "tasks"
KEPT_AT_LEAST = 60.0
"""Seconds for which the end of a task can be read, however late it came."""
MARK_SECONDS = 5.0

TaskSupport: TypeAlias = Literal["optional", "required"]
"""Whether a client that has no tasks may call the tool."""

_home: ContextVar[anyio.abc.TaskGroup | None] = ContextVar("toolweave-serve-tasks", default=None)


@dataclass(frozen=True, slots=True)
class TaskRule:
    """How a tool becomes a task.

    Attributes:
        support: `"required"` refuses clients that have no tasks, `"optional"` gives them a plain call.
        ask_first: The first questions are asked in the call itself, and the task, in which the handler runs from its
            start again, begins with their answers. A call that asks nothing is answered without a task.
    """

    support: TaskSupport
    ask_first: bool = False

    def __post_init__(self) -> None:
        if self.support not in get_args(TaskSupport):
            raise ValueError(f"task support is 'optional' or 'required', not {self.support!r}")


@dataclass(frozen=True, slots=True)
class _Running:
    """A task that runs here, and the caller that it belongs to."""

    task: Task
    owner: str | None
    group: anyio.abc.TaskGroup


class Tasks:
    """Makes tasks of calls and keeps them; one for all clients of a server.

    Args:
        rules: The tools that become tasks, by name: `"optional"`, `"required"` or a `TaskRule`.
        rounds: Makes the contexts of handlers, and knows the answers that came with a call.
        changes: Tells clients that listen.
        store: Keeps tasks; by default in this process.
        ttl_ms: Milliseconds from a task's creation until it may be forgotten; work that takes longer is cancelled.
        poll_ms: How often clients are asked to look, in milliseconds.
        most: How many run at the same time; the store bounds those that are kept.
        clock: Tells the time in seconds since the epoch.

    Raises:
        ValueError: A rule is neither.
    """

    method = "notifications/tasks"

    def __init__(
        self,
        rules: Mapping[str, TaskSupport | TaskRule],
        *,
        rounds: Rounds,
        changes: Changes,
        store: Store | None = None,
        ttl_ms: int = 3_600_000,
        poll_ms: int = 500,
        most: int = 1000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._rules = {name: rule if isinstance(rule, TaskRule) else TaskRule(rule) for name, rule in rules.items()}
        self._changes = changes
        self._store = MemoryStore(most_documents=10 * most, clock=clock) if store is None else store
        self._rounds = rounds
        self._ttl_ms = ttl_ms
        self._poll_ms = poll_ms
        self._most = most
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._groups: list[tuple[asyncio.AbstractEventLoop, anyio.abc.TaskGroup]] = []

    # as the server and the tools see it

    @contextmanager
    def within(self, group: anyio.abc.TaskGroup) -> Generator[None]:
        """Let tasks run in a task group until the block ends; those that still run then are cancelled.

        Tasks of requests that came in the block, or in tasks begun in it, run there; others in the group that has been
        there longest.
        """
        self._groups.append(mine := (asyncio.get_running_loop(), group))
        before = _home.get()
        _home.set(group)
        try:
            yield
        finally:
            _home.set(before)
            self._groups.remove(mine)
            for running in tuple(self._running.values()):
                if running.group is group:
                    running.task.scope.cancel()

    def takes(self, spec: ToolSpec, request: Request) -> bool:
        """Whether this call becomes a task.

        Raises:
            RequestError: It must, and this client cannot take one.
        """
        if not self._rules:
            return False
        rule = self._rules.get(spec.name)
        asked = not request.modern and request.client.version == IN_CORE and "task" in request.params
        if rule is None:
            if asked:
                raise RequestError(f"tool {spec.name!r} cannot be called as a task", code=METHOD_NOT_FOUND)
            return False
        if not request.modern:
            if rule.support == "required" and not asked:
                raise RequestError(
                    f"tool {spec.name!r} runs only as a task: with 'task' in revision {IN_CORE}, or with the extension",
                    code=METHOD_NOT_FOUND,
                )
            return asked
        if _declared(request):
            return not rule.ask_first or "inputResponses" in request.params
        if rule.support == "required":
            raise _undeclared()
        return False

    async def start(self, request: Request, spec: ToolSpec, work: Work) -> Json:
        """Start the work as a task and return the result that names it.

        Raises:
            RequestError: Too many run.
        """
        if len(self._running) >= self._most:
            raise _full()
        group = self._group()
        task = Task(
            secrets.token_urlsafe(24),
            ttl_ms=self._ttl(request),
            poll_ms=self._poll_ms,
            now=self._clock,
            changed=self._tell,
        )
        given: Mapping[str, Any] = self._rounds.given(request) if request.modern else {}
        caller = TaskCaller(task, request.client.capabilities, given)
        context = self._rounds.context(request, caller, task.progress)
        running = self._running[task.id] = _Running(task, request.client.principal, group)
        try:
            await self._keep(running)
        except BaseException as exc:
            del self._running[task.id]
            if isinstance(exc, StoreError):
                raise _full() from None
            raise
        created = task.show()
        group.start_soon(self._run, running, work, context)
        return {"resultType": "task", **created} if request.modern else {"task": _in_core(created)}

    def support(self, spec: ToolSpec, *, modern: bool) -> Json:
        """Return what a definition says about tasks, as members of it; the extension says nothing there."""
        rule = self._rules.get(spec.name)
        return {} if modern or rule is None else {"execution": {"taskSupport": rule.support}}

    # as clients see it

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods about tasks, none when no tool becomes one."""
        if not self._rules:
            return {}
        if modern:
            return {"tasks/get": self._get, "tasks/update": self._update, "tasks/cancel": self._cancel}
        return {"tasks/get": self._get, "tasks/result": self._result, "tasks/cancel": self._cancel}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return the extension, or the capability `tasks` of revision 2025-11-25."""
        if not self._rules:
            return {}
        if modern:
            return {"extensions": {EXTENSION: {}}}
        return {"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}

    async def current(self, request: Request, names: Sequence[str]) -> Mapping[str, Json]:
        """Return, for those ids whose tasks are this client's, the tasks as they are now.

        Raises:
            RequestError: The client did not declare the extension.
        """
        self._require(request)
        found = [(name, await self._look(request, name)) for name in names]
        return {name: one[1] for name, one in found if one is not None}

    async def _get(self, request: Request) -> Json:
        _, shown = await self._find(request)
        return shown if request.modern else _in_core(shown)

    async def _update(self, request: Request) -> Json:
        running, _ = await self._find(request)
        if "inputResponses" not in request.params:
            raise RequestError("tasks/update needs the object 'inputResponses'", code=INVALID_PARAMS)
        answers = request.object("inputResponses")
        if running is not None:
            running.task.answer(answers)
        return {}

    async def _cancel(self, request: Request) -> Json:
        running, shown = await self._find(request)
        if running is not None and running.task.end("cancelled", "the client cancelled it"):
            running.task.scope.cancel()
            shown = running.task.show()
        elif not request.modern:
            raise RequestError(f"the task has ended already, it is {shown['status']}", code=INVALID_PARAMS)
        return {} if request.modern else _in_core(shown)

    async def _result(self, request: Request) -> Json:
        """Return the result of a task once it has ended, and ask until then what it wants to know."""
        running, shown = await self._find(request)
        while running is not None and not running.task.ended:
            await self._put_questions(request, running.task)
            if not running.task.ended and not running.task.questions:
                await running.task.change()
        if running is not None:
            shown = running.task.show()
        if "result" in shown:
            meta = {**cast("Json", shown["result"].get("_meta") or {}), RELATED: {"taskId": shown["taskId"]}}
            return {**shown["result"], "_meta": meta}
        error: Json = shown.get("error") or {"code": INVALID_PARAMS, "message": f"the task is {shown['status']}"}
        raise RequestError(error["message"], code=error["code"], data=error.get("data"))

    async def _put_questions(self, request: Request, task: Task) -> None:
        """Ask what waits in a task, on the stream of the request for its result."""
        for key, question in tuple(task.questions.items()):
            params = {**question.params(modern=False), "_meta": {RELATED: {"taskId": task.id}}}
            try:
                answer = await request.line.ask(question.method, params)
                task.answer({key: answer})
            except RequestError as exc:
                task.refuse(key, ToolError(exc.message, kind=ErrorKind.PROTOCOL, data=exc.data))

    # one task

    async def _run(self, running: _Running, work: Work, context: CallContext) -> None:
        try:
            if not await self._ran(running, work, context):
                await anyio.sleep(max(0.0, self._left(running.task)))  # its end is told from here
        finally:
            del self._running[running.task.id]

    async def _ran(self, running: _Running, work: Work, context: CallContext) -> bool:
        """Do the work of a task; return whether its end is in the store."""
        task, kept = running.task, False
        try:
            with task.scope, anyio.move_on_after(self._left(task)) as bound:
                await _work(task, work, context)
            if bound.cancelled_caught:
                task.fail(RequestError("the task took longer than it may", code=INTERNAL_ERROR))
        finally:
            task.end("cancelled", "the server stopped")
            with anyio.move_on_after(MARK_SECONDS, shield=True):
                kept = await self._keep_end(running)
        return kept

    async def _keep(self, running: _Running) -> None:
        value = {"owner": running.owner, "task": running.task.show()}
        await self._store.put(COLLECTION, running.task.id, value, ttl=max(self._left(running.task), KEPT_AT_LEAST))

    async def _keep_end(self, running: _Running) -> bool:
        """Keep how a task ended, or that this cannot be kept; False when the store takes neither."""
        try:
            await self._keep(running)
        except Exception as exc:  # boundary: a store may be anybody's, and what it raises here ends every task
            _log.error("the end of a task cannot be kept: %s", exc)
            running.task.fail(RequestError("the outcome cannot be kept", code=INTERNAL_ERROR), anew=True)
            try:
                await self._keep(running)
            except Exception:  # boundary: as above
                _log.exception("nor can be kept that it failed")
                return False
        return True

    async def _find(self, request: Request) -> tuple[_Running | None, Json]:
        """Return a task of this client: as it runs, if it runs here, and as it is shown."""
        self._require(request)
        name = request.text("taskId")
        if request.modern and request.headers and request.headers.get("mcp-name", "").strip() != name:
            raise RequestError("the header Mcp-Name must be what params.taskId is", code=HEADER_MISMATCH)
        found = await self._look(request, name)
        if found is None:
            raise RequestError("Unknown task", code=INVALID_PARAMS)
        return found

    async def _look(self, request: Request, name: str) -> tuple[_Running | None, Json] | None:
        running = self._running.get(name)
        if running is not None:
            return (running, running.task.show()) if running.owner == request.client.principal else None
        document = await self._store.get(COLLECTION, name)
        if document is None or document.value["owner"] != request.client.principal:
            return None
        return None, document.value["task"]

    def _require(self, request: Request) -> None:
        if request.modern and not _declared(request):
            raise _undeclared()

    def _tell(self, task: Task) -> None:
        self._changes.tell(Topic(self.method, task.id), task.show())

    def _left(self, task: Task) -> float:
        return task.expires_at - self._clock()

    def _ttl(self, request: Request) -> int:
        wished: Any = request.object("task").get("ttl") if not request.modern else None
        if isinstance(wished, bool) or not isinstance(wished, int) or wished <= 0:
            return self._ttl_ms
        return min(wished, self._ttl_ms)

    def _group(self) -> anyio.abc.TaskGroup:
        loop, home = asyncio.get_running_loop(), _home.get()
        here = [group for known, group in self._groups if known is loop]
        if not here:
            raise RuntimeError("tasks run only while their server is served")
        return home if home is not None and home in here else here[0]


async def _work(task: Task, work: Work, context: CallContext) -> None:
    try:
        result = await work(context)
    except RequestError as exc:
        task.fail(exc)
    except Exception:  # boundary: what went wrong inside is logged, never told
        _log.exception("a task failed")
        task.fail(RequestError("Internal error", code=INTERNAL_ERROR))
    else:
        task.end("completed", result=result)


def _declared(request: Request) -> bool:
    extensions = request.client.capabilities.get("extensions")
    return isinstance(extensions, dict) and EXTENSION in extensions


def _undeclared() -> RequestError:
    return RequestError(
        f"Missing required client capability: extension {EXTENSION}",
        code=MISSING_CAPABILITY,
        data={"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


def _full() -> RequestError:
    return RequestError("no more tasks can be taken on now; try again later", code=INTERNAL_ERROR)


def _in_core(shown: Json) -> Json:
    """Return a task as revision 2025-11-25 writes it."""
    kept = ("taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt")
    task = {name: shown[name] for name in kept if name in shown}
    return task | {"ttl": shown["ttlMs"], "pollInterval": shown["pollIntervalMs"]}
