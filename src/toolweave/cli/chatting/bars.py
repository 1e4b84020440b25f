"""The tool calls that run now, a line each, with a bar where there is progress; nothing where there is no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolweave.cli.render.text import clip, safe_text
from toolweave.cli.screen import stderr_console

if TYPE_CHECKING:
    from rich.progress import TaskID

    from toolweave.tools import Progress

__all__ = ["RunningCalls"]

_MESSAGE = 60


class RunningCalls:
    """What stands at the bottom of the terminal while tools run."""

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
        """Show one more call."""
        if self._bars is not None:
            self._tasks[call_id] = self._bars.add_task("", total=None, label=safe_text(label), message="")
            self.show()

    def progress(self, call_id: str, progress: Progress) -> None:
        """Show how far a call is."""
        if self._bars is not None and call_id in self._tasks:
            message = clip(safe_text(progress.message or ""), _MESSAGE)
            self._bars.update(self._tasks[call_id], completed=progress.progress, total=progress.total, message=message)

    def finished(self, call_id: str) -> None:
        """Show a call no more."""
        task = self._tasks.pop(call_id, None)
        if self._bars is not None and task is not None:
            self._bars.remove_task(task)

    def hide(self) -> None:
        """Make room for something else; `show` brings them back."""
        if self._bars is not None:
            self._bars.stop()

    def show(self) -> None:
        """Show the calls that run, if any do."""
        if self._bars is not None and self._tasks:
            self._bars.start()
