"""The page about the tasks that callers got: how each is now, and a button to cancel it.

The messages of servers about their tasks are untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from toolweave._json_types import text_or_empty
from toolweave._text import counted
from toolweave.errors import RequestError
from toolweave.gateway._console.fleet_rows import newest_rows, read_replies
from toolweave.gateway._console.rendering import ConsolePages
from toolweave.gateway._console.requests import ConsolePage, ConsoleReply, ConsoleRequest
from toolweave.gateway._observe.recent_tasks import RecentTask, RecentTasks
from toolweave.gateway._replicas.fleet import Fleet
from toolweave.protocol.input_required import INPUT_REQUIRED
from toolweave.serve._http.asgi import Receive
from toolweave.serve.request import Json

_LOOK_SECONDS = 5
_MAX_SHOWN = 100


class TaskPages:
    """The page about tasks.

    Args:
        tasks: The tasks of this process.
        fleet: The replicas, whose tasks are shown.
        pages: Renders it.
    """

    def __init__(self, tasks: RecentTasks, fleet: Fleet, pages: ConsolePages) -> None:
        self._tasks = tasks
        self._fleet = fleet
        self._pages = pages
        fleet.on("tasks", self._tasks_here)
        fleet.on("cancel", self._cancel_here)
        self.shown: Mapping[str, ConsolePage] = {"/tasks": self.tasks}
        self.changing: Mapping[str, ConsolePage] = {"/tasks/cancel": self.cancel}

    async def tasks(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show the tasks that were begun last at any replica, or those that have not ended."""
        only = "open" if asked.query.get("only") == "open" else ""
        found, silent = read_replies(await self._fleet.look("tasks", {"only": only}), TasksHere)
        rows = [(one.begun, peer, one) for peer, here in found.items() for one in here.tasks]
        total = sum(here.total for here in found.values())
        not_ended = sum(here.not_ended for here in found.values())
        return self._pages.live(
            asked,
            "tasks.html",
            summary=f"{counted(total, 'task')}, {not_ended} not ended",
            seconds=_LOOK_SECONDS,
            tasks=[(one, peer) for peer, one in newest_rows(rows, _MAX_SHOWN)],
            several=len(found) + len(silent) > 1,
            silent=silent,
            only=only,
        )

    async def cancel(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Cancel a task at the replica that has it."""
        number = asked.form.get("task", "")
        replica = asked.form.get("replica", self._fleet.here.id)
        replies = await self._fleet.act("cancel", {"number": number}, replica=replica)
        found, silent = read_replies(replies, CancelOutcome)
        outcome = next(iter(found.values()), None)
        if outcome is None:
            reason = next(iter(silent.values()), "its replica has ended")
            outcome = CancelOutcome(text=f"The task was not cancelled: {reason}.", problem=True)
        asked.signed_in.say(outcome.text, problem=outcome.problem)
        return ConsoleReply.see(asked.url("/tasks"))

    async def _tasks_here(self, body: Json) -> Json:
        every = await self._tasks.newest_first()
        not_ended = [one for one in every if not one.over]
        shown = not_ended if body.get("only") == "open" else every
        found = TasksHere(
            total=len(every), not_ended=len(not_ended), tasks=tuple(_row(one) for one in shown[:_MAX_SHOWN])
        )
        return msgspec.to_builtins(found)

    async def _cancel_here(self, body: Json) -> Json:
        number = text_or_empty(body.get("number"))
        if number.isascii() and number.isdecimal():
            one = self._tasks.find(int(number))
        else:
            one = None
        if one is None:
            return msgspec.to_builtins(CancelOutcome(text="The task is no longer kept.", problem=True))
        text, problem = await _cancelled(one)
        return msgspec.to_builtins(CancelOutcome(text=text, problem=problem))


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task as the page shows it.

    Attributes:
        number: Names it at its replica.
        name: The tool.
        server: The upstream.
        caller: The caller by its token; "" without one.
        revision: The protocol revision of the caller.
        begun: When it became a task, in seconds since the epoch.
        state: Its state.
        tone: How the page marks the state.
        over: Whether it has ended.
        message: The server's message about it.
        problem: Why it could not be looked at, or "".
    """

    number: int
    name: str
    server: str
    caller: str
    revision: str
    begun: float
    state: str
    tone: str
    over: bool
    message: str
    problem: str


class TasksHere(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one replica.

    Attributes:
        total: The number of tasks that it keeps.
        not_ended: How many of them have not ended.
        tasks: The newest of them, all or those that have not ended.
    """

    total: int
    not_ended: int
    tasks: tuple[TaskRow, ...]


class CancelOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of cancelling a task.

    Attributes:
        text: The outcome.
        problem: Whether it was not cancelled.
    """

    text: str
    problem: bool


def _row(one: RecentTask) -> TaskRow:
    return TaskRow(
        number=one.number,
        name=one.name,
        server=one.server,
        caller=one.caller,
        revision=one.client.version,
        begun=one.begun,
        state=_state(one),
        tone=_tone(one),
        over=one.over,
        message=one.message,
        problem=one.problem,
    )


async def _cancelled(one: RecentTask) -> tuple[str, bool]:
    """Cancel a task; return the outcome as text, and whether that is a problem."""
    try:
        await one.cancel()
    except RequestError as error:
        return f"{one.name!r} was not cancelled: {one.masked(error.message)}", True
    except TimeoutError:
        return f"Server {one.server!r} did not say in time whether it cancelled {one.name!r}.", True
    return f"Server {one.server!r} is asked to cancel {one.name!r}.", False


def _state(one: RecentTask) -> str:
    if one.status == INPUT_REQUIRED:
        return "waits for its caller"
    if one.status == "completed" and one.is_error:
        return "completed with an error"
    return one.status


def _tone(one: RecentTask) -> str:
    if not one.over:
        return "busy"
    if one.is_error or one.status != "completed":
        return "bad"
    return "good"
