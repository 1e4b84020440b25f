"""The port between the task methods and the backend of tasks: this process, or a store with workers.

Knows neither of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio.abc

from toolweave.errors import RequestError
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.serve._request_context import Work
from toolweave.serve._tasks.task import RunningTask
from toolweave.serve.request import Json, Request
from toolweave.tools import CallContext, Question

_log = logging.getLogger("toolweave.serve")

KEPT_AT_LEAST = 60.0
"""Minimum seconds for which an ended task can be read."""
MARK_SECONDS = 5.0
"""Seconds a cancelled task has to record that it was cancelled."""

OnTaskChange = Callable[[str, Json], None]
"""Called with the id of a task and its current state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A call that is to become a task.

    Attributes:
        request: The call as it came.
        work: The handler of the call.
        given: Answers that came with it, by key.
        shown: The task as its client sees it; `taskId` is its name.
        expires_at: Its deadline, in seconds since the epoch.
    """

    request: Request
    work: Work
    given: Mapping[str, Any]
    shown: Json
    expires_at: float


class TaskHandle(Protocol):
    """A handle of a task of the requesting client."""

    @property
    def shown(self) -> Json:
        """The last known state of the task (`DetailedTask`)."""
        ...

    @property
    def questions(self) -> Mapping[str, Question]:
        """The open questions to the client, by key."""
        ...

    @property
    def left(self) -> float:
        """Seconds until its deadline."""
        ...

    async def answer(self, answers: Mapping[str, Any]) -> None:
        """Accept answers of the client; those to no open question are ignored.

        Raises:
            RequestError: An answer does not fit its question, and all are refused.
        """
        ...

    async def refuse(self, key: str, error: RequestError) -> None:
        """Accept the client's refusal to answer a question: the handler gets the error."""
        ...

    async def cancel(self) -> bool:
        """Cancel it; return False if it has ended already."""
        ...

    async def change(self) -> None:
        """Wait for its next change.

        Raises:
            RequestError: It is gone.
        """
        ...


class TaskBackend(Protocol):
    """The backend that runs and keeps tasks."""

    def within(self, group: anyio.abc.TaskGroup) -> AbstractContextManager[None]:
        """Run tasks in a task group until the block ends."""
        ...

    async def start(self, new: NewTask) -> None:
        """Take a task on.

        Raises:
            RequestError: That is not possible now.
        """
        ...

    async def find(self, name: str, owner: str | None) -> TaskHandle | None:
        """Return a task of this owner, or None."""
        ...

    async def watch(self, known: Mapping[str, Json], on_change: OnTaskChange) -> None:
        """Report the changes of these tasks that other processes make, until all have ended."""
        ...


async def perform(task: RunningTask, work: Work, context: CallContext) -> None:
    """Run the handler of a task in its cancel scope, to its end."""
    try:
        result = await work(context)
    except RequestError as exc:
        task.fail(exc)
    except Exception:  # boundary: internal errors are logged, never sent
        _log.exception("a task failed")
        task.fail(RequestError("Internal error", code=INTERNAL_ERROR))
    else:
        task.end("completed", result=result)


def too_long() -> RequestError:
    """Return the error of a task past its deadline."""
    return RequestError("the task took longer than it may", code=INTERNAL_ERROR)


def full() -> RequestError:
    """Return the error for too many tasks."""
    return RequestError("no more tasks can be taken on now; try again later", code=INTERNAL_ERROR)
