"""The page about the tasks that callers got: how each is now, and a button to cancel it.

The messages of servers about their tasks are untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolweave._text import counted
from toolweave.errors import RequestError
from toolweave.gateway._console.rendering import ConsolePages
from toolweave.gateway._console.requests import ConsolePage, ConsoleReply, ConsoleRequest
from toolweave.gateway._recent_tasks import RecentTask, RecentTasks
from toolweave.protocol.input_required import INPUT_REQUIRED
from toolweave.serve._http.asgi import Receive

_LOOK_SECONDS = 5
_MAX_SHOWN = 100


class TaskPages:
    """The page about tasks.

    Args:
        tasks: The tasks.
        pages: Renders it.
    """

    def __init__(self, tasks: RecentTasks, pages: ConsolePages) -> None:
        self._tasks = tasks
        self._pages = pages
        self.shown: Mapping[str, ConsolePage] = {"/tasks": self.tasks}
        self.changing: Mapping[str, ConsolePage] = {"/tasks/cancel": self.cancel}

    async def tasks(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show the tasks that were begun last, or those that have not ended."""
        every = await self._tasks.newest_first()
        only = asked.query.get("only", "")
        open_ones = [one for one in every if not one.over]
        shown = open_ones if only == "open" else every
        return self._pages.live(
            asked,
            "tasks.html",
            summary=f"{counted(len(every), 'task')}, {len(open_ones)} not ended",
            seconds=_LOOK_SECONDS,
            tasks=[(one, _state(one), _tone(one)) for one in shown[:_MAX_SHOWN]],
            only=only,
        )

    async def cancel(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Cancel a task."""
        number = asked.form.get("task", "")
        if number.isascii() and number.isdecimal():
            one = self._tasks.find(int(number))
        else:
            one = None
        if one is None:
            said = "The task is no longer kept."
            problem = True
        else:
            said, problem = await _cancelled(one)
        asked.signed_in.say(said, problem=problem)
        return ConsoleReply.see(asked.url("/tasks"))


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
