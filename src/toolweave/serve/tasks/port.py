"""The port between what clients ask about tasks and where tasks are: this process, or a store and its workers.

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
from toolweave.serve.request import Json, Request
from toolweave.serve.rounds import Work
from toolweave.serve.tasks.task import Task
from toolweave.tools.call import CallContext
from toolweave.tools.questions import Question

__all__ = [
    "KEPT_AT_LEAST",
    "MARK_SECONDS",
    "Heard",
    "NewTask",
    "TaskBackend",
    "TaskHandle",
    "full",
    "perform",
    "too_long",
]

_log = logging.getLogger("toolweave.serve")

KEPT_AT_LEAST = 60.0
"""Seconds for which the end of a task can be read, however late it came."""
MARK_SECONDS = 5.0
"""How long what is cancelled may take to leave a note of it."""

Heard = Callable[[str, Json], None]
"""Told the id of a task, and how it is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A call that is to become a task.

    Attributes:
        request: The call as it came.
        work: What the call asks for.
        given: Answers that came with it, by key.
        shown: The task as its client is told of it; `taskId` is its name.
        expires_at: When it has to be over, in seconds since the epoch.
    """

    request: Request
    work: Work
    given: Mapping[str, Any]
    shown: Json
    expires_at: float


class TaskHandle(Protocol):
    """A task of the client that asks."""

    @property
    def shown(self) -> Json:
        """The task as it is now, as far as is known here (`DetailedTask`)."""
        ...

    @property
    def questions(self) -> Mapping[str, Question]:
        """What waits for the client, by key."""
        ...

    @property
    def left(self) -> float:
        """Seconds until it has to be over."""
        ...

    async def answer(self, answers: Mapping[str, Any]) -> None:
        """Take answers of the client; what was not asked, or is answered, is ignored.

        Raises:
            RequestError: One is no answer to its question; none was taken.
        """
        ...

    async def refuse(self, key: str, error: RequestError) -> None:
        """Take that the client refuses to answer a question: the handler gets the error."""
        ...

    async def cancel(self) -> bool:
        """End it as cancelled; return False if it has ended already."""
        ...

    async def change(self) -> None:
        """Wait until it is not as it was.

        Raises:
            RequestError: It is gone.
        """
        ...


class TaskBackend(Protocol):
    """Where tasks are."""

    def within(self, group: anyio.abc.TaskGroup) -> AbstractContextManager[None]:
        """Be served in a task group until the block ends."""
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

    async def watch(self, known: Mapping[str, Json], heard: Heard) -> None:
        """Tell of every change of these tasks that would not be told otherwise, until all have ended."""
        ...


async def perform(task: Task, work: Work, context: CallContext) -> None:
    """Do the work of a task in its scope, to its end."""
    try:
        result = await work(context)
    except RequestError as exc:
        task.fail(exc)
    except Exception:  # boundary: what went wrong inside is logged, never told
        _log.exception("a task failed")
        task.fail(RequestError("Internal error", code=INTERNAL_ERROR))
    else:
        task.end("completed", result=result)


def too_long() -> RequestError:
    """Return how a task fails that was not over when it had to be."""
    return RequestError("the task took longer than it may", code=INTERNAL_ERROR)


def full() -> RequestError:
    """Return why no task can be taken on."""
    return RequestError("no more tasks can be taken on now; try again later", code=INTERNAL_ERROR)
