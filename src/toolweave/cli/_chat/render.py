"""One run as a person sees it: the answer on standard output as it comes, the tools' calls on standard error.

Asks for approvals, and shows progress bars while calls run. Knows events, and neither models nor servers.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from toolweave.agent import (
    ApprovalRequested,
    Event,
    Run,
    RunResult,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnRestarted,
)
from toolweave.cli._questions import ask_about, ask_line
from toolweave.cli._render.text import SafeStream, clip, safe_text
from toolweave.cli._screen import note, stderr_console, stream
from toolweave.errors import shortened
from toolweave.models import ToolCallPart

if TYPE_CHECKING:
    from rich.progress import TaskID

    from toolweave.tools import Progress

_LABEL = 100
_ERROR = 300
_MESSAGE = 60
_FOR_USER = 4000
"""Maximum characters shown of the blocks of a result that are for the user alone."""


class RunView:
    """Displays runs, one after the other.

    Args:
        text: Whether the answer is shown as it streams.
    """

    def __init__(self, *, text: bool = True) -> None:
        self._text = text
        self._calls = RunningCalls()
        self._begun: dict[str, float] = {}
        self._in_line = False
        self._stream = SafeStream()
        self._finished_calls: list[ToolFinished] = []
        self._step_began = False

    @property
    def failed(self) -> list[ToolFinished]:
        """The calls of the last turn with calls, when every one of them was refused or failed."""
        calls = self._finished_calls
        if all(call.result.is_error for call in calls):
            return [*calls]
        return []

    async def show(self, run: Run) -> RunResult:
        """Display a run to its end and return its result.

        Raises:
            ModelError, ToolError, RunError: The error that made it fail.
        """
        try:
            async for event in run:
                await self._on(run, event)
        finally:
            self._calls.hide()
            self._end_line()
        return await run

    async def _on(self, run: Run, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._say(text)
            case TurnRestarted(error=error):
                self._end_line()
                note(f"{error}; asking again: the part of the answer above does not count")
            case StepStarted():
                self._step_began = True
            case ToolStarted(call=call):
                self._end_line()
                self._begun[call.id] = time.monotonic()
                self._calls.started(call.id, _label(call))
            case ToolProgress(call=call, progress=progress):
                self._calls.progress(call.id, progress)
            case ToolFinished():
                self._finished(event)
            case ApprovalRequested():
                await self._ask(run, event)
            case _:
                pass

    def _say(self, text: str) -> None:
        if self._text and text:
            self._calls.hide()
            stream(self._stream.feed(text))
            self._in_line = not text.endswith("\n")

    def _end_line(self) -> None:
        held = self._stream.end()
        if held or self._in_line:
            stream(f"{held}\n")
            self._in_line = False

    def _finished(self, event: ToolFinished) -> None:
        self._calls.finished(event.call.id)
        self._calls.hide()
        if self._step_began:
            self._finished_calls.clear()
            self._step_began = False
        self._finished_calls.append(event)
        self._end_line()
        seconds = time.monotonic() - self._begun.pop(event.call.id, time.monotonic())
        if event.result.is_error:
            why = clip(" ".join(event.result.text.split()), _ERROR)
            note(f"✗ {_label(event.call)}: {why}")
        else:
            note(f"✓ {_label(event.call)}  {seconds:.1f} s")
            for_user = [block for block in event.result.content if "assistant" not in block.audience]
            if for_user:  # the model will not speak of it
                note(shortened("\n".join(block.render() for block in for_user), _FOR_USER))
        self._calls.show()

    async def _ask(self, run: Run, event: ApprovalRequested) -> None:
        self._calls.hide()
        self._end_line()
        answer = await _answer_about(event.call)
        if answer in ("a", "always"):
            run.approve(event, remember="agent")
        elif answer in ("y", "yes"):
            run.approve(event)
        else:
            run.deny(event, reason="the user said no")
        self._calls.show()


async def _answer_about(call: ToolCallPart) -> str:
    """Ask whether a call is approved; all of its arguments are shown, however long."""
    choices = "[y]es, [n]o, [a]lways"
    short = _written(call)
    if len(safe_text(short)) <= _LABEL:
        return (await ask_line(f"run {short}? {choices}: ") or "").strip().lower()
    arguments = json.dumps(call.arguments, ensure_ascii=False, default=str, indent=2)
    return await ask_about(f"{call.name} is to run with\n{arguments}", f"run {call.name}?", choices)


def _label(call: ToolCallPart) -> str:
    """Return a call as one short line, for reports and never for approvals."""
    return clip(_written(call), _LABEL)


def _written(call: ToolCallPart) -> str:
    if call.arguments:
        arguments = json.dumps(call.arguments, ensure_ascii=False, default=str)
    else:
        arguments = ""
    return f"{call.name} {arguments}".strip()


class RunningCalls:
    """Progress display of the running tool calls, one line each; silent without a terminal."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskID] = {}
        self._bars = None
        console = stderr_console()
        if console is None:
            return
        from rich.progress import BarColumn, SpinnerColumn, TextColumn  # rich is slow to import
        from rich.progress import Progress as Bars

        columns = (
            SpinnerColumn(),
            TextColumn("{task.fields[label]}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[message]}", markup=False),
        )
        self._bars = Bars(*columns, console=console, transient=True)

    def started(self, call_id: str, label: str) -> None:
        """Add a line for a call."""
        if self._bars is not None:
            self._tasks[call_id] = self._bars.add_task("", total=None, label=safe_text(label), message="")
            self.show()

    def progress(self, call_id: str, progress: Progress) -> None:
        """Show the progress of a call."""
        if self._bars is not None and call_id in self._tasks:
            message = clip(safe_text(progress.message or ""), _MESSAGE)
            self._bars.update(self._tasks[call_id], completed=progress.progress, total=progress.total, message=message)

    def finished(self, call_id: str) -> None:
        """Remove the line of a call."""
        task = self._tasks.pop(call_id, None)
        if self._bars is not None and task is not None:
            self._bars.remove_task(task)

    def hide(self) -> None:
        """Hide the lines for other output; `show` shows them again."""
        if self._bars is not None:
            self._bars.stop()

    def show(self) -> None:
        """Show the lines of the running calls."""
        if self._bars is not None and self._tasks:
            self._bars.start()
