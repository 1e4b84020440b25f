"""The tasks that callers of a gateway got from this process, for its console.

A task is asked about as its caller would ask, past the middleware, and its result is not kept.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import anyio

from toolweave._json_types import as_object, as_text
from toolweave.errors import RequestError
from toolweave.gateway._tasks.kept_tasks import NO_REPLY_CHANNEL
from toolweave.middleware import RequestEnd
from toolweave.middleware._outcome import first_text
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.tasks import ENDED, TASK_ID, TaskDocument, read_task
from toolweave.serve import Client, Request
from toolweave.serve.request import Json, principal_name

_MOST = 500
_MAX_ASKED = 100
_ASK_SECONDS = 3.0
_LONGEST = 300
UNKNOWN = "unknown"
"""The status of a task that its server does not know any more."""


MaskText: TypeAlias = Callable[[str, str], str]
"""Returns the beginning of a text of a server, which is named first, without its secrets."""


class TaskAnswerer(Protocol):
    """Answers requests about tasks without middleware: the endpoint of a gateway, or of a virtual server."""

    async def dispatch(self, request: Request) -> Json:
        """Answer a request.

        Raises:
            RequestError: The answer is a JSON-RPC error.
        """
        ...


@dataclass(slots=True, kw_only=True)
class RecentTask:
    """A task of a caller, as it was when it was looked at last.

    Attributes:
        number: Names it for the pages, which do not show its id.
        name: The tool.
        server: The upstream.
        client: The caller.
        begun: When it became a task, in seconds since the epoch.
        status: `working`, `input_required`, `completed`, `failed`, `cancelled` or `unknown`.
        message: The server's message about its state, or the beginning of its error.
        is_error: Whether it has ended with an error, also one of the tool.
        problem: Why it could not be looked at, or "". Secrets of the server's config are masked here and in `message`.
    """

    number: int
    name: str
    server: str
    client: Client
    begun: float
    status: str = "working"
    message: str = ""
    is_error: bool = False
    problem: str = ""
    _id: str = field(repr=False)
    _answerer: TaskAnswerer = field(repr=False)
    _mask: MaskText = field(repr=False)

    @property
    def over(self) -> bool:
        """Whether it has ended, or nothing more will be known of it."""
        return self.status in ENDED or self.status == UNKNOWN

    @property
    def caller(self) -> str:
        """The caller by its token, subject or client; "" without one."""
        return principal_name(self.client.principal or "")[:_LONGEST]

    async def look(self) -> None:
        """Ask how it is."""
        try:
            with anyio.fail_after(_ASK_SECONDS):
                self.read(read_task(await self._ask(methods.TASKS_GET), modern=self.client.modern))
        except RequestError as error:
            # SEP-2663 and the revision of 2025-11-25 answer an id that is not known with this code: the task has
            # expired, or the server has lost it. Any other error is about this request, and the next look may succeed.
            if error.code == INVALID_PARAMS:
                self.status = UNKNOWN
            self.problem = self.masked(error.message)
        # The answer is not a task. The last known state stays: it may be right, and nothing better is known.
        except ValueError as error:
            self.problem = self.masked(f"server {self.server!r}: {error}")
        except TimeoutError:
            self.problem = f"server {self.server!r} did not say how it is within {_ASK_SECONDS:g} s"

    async def cancel(self) -> None:
        """Cancel it.

        Raises:
            RequestError: It has ended, or its server refused.
            TimeoutError: Its server did not answer.
        """
        with anyio.fail_after(_ASK_SECONDS):
            await self._ask(methods.TASKS_CANCEL)

    def masked(self, text: str) -> str:
        """Return the beginning of a text about it, without the secrets of its server."""
        return self._mask(self.server, text)

    async def _ask(self, method: str) -> Json:
        return await self._answerer.dispatch(Request(method, {TASK_ID: self._id}, self.client, NO_REPLY_CHANNEL, 0))

    def read(self, task: TaskDocument) -> None:
        """Take over the state that its server reports."""
        result = task.result or {}
        # The problem of an earlier look is over, as this one got an answer.
        self.status = task.status
        self.problem = ""
        self.is_error = task.status == "failed" or result.get("isError") is True
        said = as_text((task.error or {}).get("message")) or (first_text(result) if self.is_error else "")
        self.message = self.masked(said or task.message or "")


class RecentTasks:
    """Keeps the last 500 tasks.

    Args:
        mask: Masks the secrets of a server in a text.
    """

    def __init__(self, mask: MaskText) -> None:
        self._mask = mask
        self._kept: OrderedDict[int, RecentTask] = OrderedDict()
        self._count = 0

    def find(self, number: int) -> RecentTask | None:
        """Return a task by its number, or None."""
        return self._kept.get(number)

    async def newest_first(self) -> Sequence[RecentTask]:
        """Return the tasks as they are now; of those that have not ended the newest hundred are asked about."""
        found = list(reversed(self._kept.values()))
        async with anyio.create_task_group() as group:
            # An ended task does not change, so it is not asked about. The bound keeps one view of the page from
            # sending hundreds of requests to a server that has left many tasks open.
            for one in [one for one in found if not one.over][:_MAX_ASKED]:
                group.start_soon(one.look)
        return found

    def request_ended(self, answerer: TaskAnswerer, end: RequestEnd) -> None:
        """Keep the task that a call has become.

        Args:
            answerer: Answers requests about it.
            end: The end of a request.
        """
        result = end.result
        # Only a call makes a task; `tasks/get` and its kind return one, too, which is kept already.
        if end.outcome != "task" or end.method != methods.TOOLS_CALL or result is None:
            return
        try:
            task = read_task(as_object(result.get("task")) or result, modern=end.client.modern)
        except ValueError:  # its caller gets the same unreadable answer
            return
        # Without an id it can be neither looked at nor cancelled.
        if task.id is None:
            return
        self._count += 1
        one = self._kept[self._count] = RecentTask(
            number=self._count,
            # A caller writes this name, which may be as long as a message may be.
            name=(end.name or "")[:_LONGEST],
            server=end.server,
            client=end.client,
            begun=time.time(),
            _id=task.id,
            _answerer=answerer,
            _mask=self._mask,
        )
        one.read(task)
        # The oldest goes first, ended or not: its server still has it, and its caller does not need this list.
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)
