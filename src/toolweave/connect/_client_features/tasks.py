"""Tasks: calls that outlast their request, in the core of 2025-11-25 and as the extension of 2026 (SEP-2663).

Polls at the server's interval, provides the input it asks for, and cancels a task whose caller is gone.
Knows no connection: requests go through a given function.
"""

from __future__ import annotations

import logging

import anyio

from toolweave._json_types import Json, JsonObject, as_integer, as_text, object_or_empty, without_members
from toolweave.config import ServerConfig
from toolweave.connect._client_features.input_required import gather_input
from toolweave.connect._client_features.server_requests import ServerRequestHandler
from toolweave.connect._deadline import Deadline
from toolweave.connect._feed.list_reader import SendRequest
from toolweave.connect._session import Agreement
from toolweave.errors import ErrorKind, RequestTimeoutError, ServerError, ToolError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.input_required import INPUT_REQUIRED, INPUT_RESPONSES
from toolweave.protocol.lenient_answers import readable_task
from toolweave.protocol.tasks import TASK_ID, TaskDocument, needs_task, read_task
from toolweave.tools import ToolSpec

_log = logging.getLogger("toolweave.connect")
_POLL_SECONDS = 1.0
_MIN_POLL_MS = 50
_MAX_POLL_MS = 60_000
_COURTESY_SECONDS = 1.0
_MAX_TTL_MS = 1e15


def wants_task(spec: ToolSpec | None, agreement: Agreement) -> bool:
    """Return whether a tool must be called as a task: it requires that, in a revision whose core has tasks."""
    if spec is None or agreement.modern or "execution" not in spec.raw:
        return False
    return needs_task(spec.raw, agreement.capabilities)


class ClientTask:
    """One task of the extension, from its creation to its result."""

    _MODERN = True

    def __init__(
        self,
        created: JsonObject,
        request: SendRequest,
        asked: ServerRequestHandler,
        deadline: Deadline,
        config: ServerConfig,
    ) -> None:
        self._server = config.name
        self._timeout = config.timeout
        self._begun = self._alive_from = anyio.current_time()
        self._bound = anyio.CancelScope(deadline=self._begun + config.timeout.task)
        self._late = f"'timeout.task', {config.timeout.task:g} s"
        self._created = created
        self._request = request
        self._asked = asked
        self._deadline = deadline
        self._over = False
        self._given: set[str] = set()
        self._id = as_text(created.get(TASK_ID))
        if not self._id:
            raise asked.refusal(INTERNAL_ERROR, "it created a task without an id")

    async def result(self) -> Json:
        """Return the result of the call once the task has ended.

        When this is cancelled or fails before, the task is cancelled at the server.

        Raises:
            ProtocolError: The task failed, or needs a capability that is not declared.
            RequestTimeoutError: It does not end; whether its work was done is unknown.
            ToolError: The server cancelled it; kind `cancelled`.
        """
        try:
            with self._bound:
                task = await self._follow()
                if task.status == "cancelled":
                    why = f": {task.message}" if task.message else ""
                    raise ToolError(f"the server cancelled the task{why}", kind=ErrorKind.CANCELLED)
                return await self._outcome(task)
            seconds = anyio.current_time() - self._begun
            text = f"its task did not end within {seconds:.0f} s ({self._late}); whether its work was done is unknown"
            raise RequestTimeoutError(text, server=self._server, seconds=seconds)
        # A cancellation included: a task that nobody waits for would run to its end at the server.
        except BaseException:
            if not self._over:
                await self._cancel()
            raise

    async def _follow(self) -> TaskDocument:
        """Poll until the task stops."""
        task = self._read(self._created)
        while True:
            if task.status == INPUT_REQUIRED:
                await self._give_input(task)
            await self._pause(task)
            task = await self._get()
            if self._stops(task):
                return task

    def _stops(self, task: TaskDocument) -> bool:
        return task.ended

    async def _give_input(self, task: TaskDocument) -> None:
        """Answer new input requests; they stay listed until the server has accepted the answer."""
        # Each request is answered once, by its key. A server that polls slowly lists it again before it has read the
        # answer, and the user must not be asked twice.
        new = without_members(task.requests, *self._given)
        if not new:
            return
        with self._deadline.held():
            responses = await gather_input(new, self._asked)
        self._given.update(new)
        await self._request(methods.TASKS_UPDATE, {TASK_ID: self._id, INPUT_RESPONSES: responses})
        self._deadline.touch()

    async def _outcome(self, task: TaskDocument) -> Json:
        if task.status == "completed":
            if task.result is None:
                raise self._asked.refusal(INTERNAL_ERROR, "its task completed without a result")
            return dict(task.result)
        error = object_or_empty(task.error)
        code = as_integer(error.get("code"))
        message = as_text(error.get("message")) or task.message
        failure = self._asked.refusal(INTERNAL_ERROR if code is None else code, message or "the task failed")
        failure.data = error.get("data")
        raise failure

    async def _get(self) -> TaskDocument:
        task = self._read(await self._request(methods.TASKS_GET, {TASK_ID: self._id}))
        self._deadline.touch()
        self._over = task.ended
        return task

    def _read(self, raw: JsonObject) -> TaskDocument:
        try:
            task = read_task(readable_task(raw, self._asked.note_result), modern=self._MODERN)
        except ValueError as exc:
            raise self._asked.refusal(INTERNAL_ERROR, f"its task has {exc}") from None
        self._move_bound(task)
        return task

    def _move_bound(self, task: TaskDocument) -> None:
        """Move the bound with the task's time to live, after which its server may forget it.

        While it waits for input its user may take long, so that only the bound of the config counts.
        """
        total = self._timeout.task
        grace = self._deadline.seconds
        self._late = f"'timeout.task', {total:g} s"
        self._bound.deadline = self._begun + total
        # A user may take longer than the lifetime, and the server keeps a task that waits. So the lifetime counts from
        # the last time that the task was seen waiting.
        if task.status == INPUT_REQUIRED:
            self._alive_from = anyio.current_time()
        elif task.ttl_ms is not None:
            # in this order it holds for NaN, and before the division for numbers that no float can hold
            alive = min(max(0, task.ttl_ms), _MAX_TTL_MS) / 1000
            if self._alive_from + alive + grace < self._bound.deadline:
                self._late = f"its time to live, {alive:g} s, and the timeout of the call, {grace:g} s"
                self._bound.deadline = self._alive_from + alive + grace

    async def _pause(self, task: TaskDocument) -> None:
        seconds = _POLL_SECONDS
        if task.poll_ms is not None:
            # in this order it holds for NaN too, and before the division for numbers that no float can hold
            seconds = min(max(_MIN_POLL_MS, task.poll_ms), _MAX_POLL_MS) / 1000
        with self._deadline.held():
            await anyio.sleep(seconds)

    async def _cancel(self) -> None:
        """Cancel the task at the server; bounded, so that a slow server blocks no caller."""
        with anyio.move_on_after(_COURTESY_SECONDS, shield=True):
            try:
                await self._request(methods.TASKS_CANCEL, {TASK_ID: self._id})
            except ServerError as exc:
                _log.debug("a task was not cancelled: %s", exc)


class LegacyClientTask(ClientTask):
    """One task of revision 2025-11-25: its result is another request, on which the server asks for input."""

    _MODERN = False

    def _stops(self, task: TaskDocument) -> bool:
        return task.ended or task.status == INPUT_REQUIRED

    async def _give_input(self, task: TaskDocument) -> None:
        """Do nothing: the server sends its requests while `tasks/result` waits."""

    async def _outcome(self, task: TaskDocument) -> Json:
        """Ask for the result, which comes when the task has ended; polling is its sign of life until then."""
        # `tasks/result` may wait for as long as the task runs, so its own silence means nothing. The polls beside it
        # show that the server is alive, and the group ends them with the result.
        result: Json | None = None
        failure: ServerError | None = None
        async with anyio.create_task_group() as tasks:
            if task.status == INPUT_REQUIRED:
                tasks.start_soon(self._watch, task)
            try:
                result = await self._request(methods.TASKS_RESULT, {TASK_ID: self._id})
            except ServerError as exc:  # kept out of the task group, which would wrap it
                failure = exc
            tasks.cancel_scope.cancel()
        if result is None:
            raise failure or self._asked.refusal(INTERNAL_ERROR, "its task has no result")
        return result

    async def _watch(self, task: TaskDocument) -> None:
        while not self._over:
            await self._pause(task)
            try:
                task = await self._get()
            except ServerError as exc:
                _log.debug("a task cannot be watched: %s", exc)
                return
