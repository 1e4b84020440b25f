"""What moves on standard error while something takes its time; nothing at all where there is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from toolweave.cli.render.text import clip, safe_text
from toolweave.cli.screen import stderr_console
from toolweave.tools.call import Progress

__all__ = ["call_progress", "starting"]

_MESSAGE = 60


@contextmanager
def starting(names: Sequence[str]) -> Generator[Callable[[str], None]]:
    """Show which servers are still starting; yields what to call when one of them is done, however it ended."""
    waiting = list(names)
    console = stderr_console()
    if console is None or not waiting:
        yield lambda _: None
        return

    from rich.text import Text  # rich takes as long to import as the rest of the command

    def line() -> Text:
        shown = clip(", ".join(safe_text(name) for name in waiting), _MESSAGE)
        return Text(f"starting {len(names)} server{'s' * (len(names) > 1)}, waiting for {shown}")

    with console.status(line()) as status:

        def done(name: str) -> None:
            if name in waiting:
                waiting.remove(name)
                status.update(line())

        yield done


@contextmanager
def call_progress(*names: str) -> Generator[list[Callable[[Progress], None]]]:
    """Show a bar for each of these calls once it reports progress; yields one listener for each."""
    console = stderr_console()
    if console is None:
        yield [lambda _: None for _ in names]
        return
    from rich.progress import BarColumn, TextColumn  # as above
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.fields[label]}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[message]}", markup=False),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        tasks = [bars.add_task("", total=None, label=safe_text(name), message="") for name in names]

        def listener(task: int) -> Callable[[Progress], None]:
            def show(progress: Progress) -> None:
                message = clip(safe_text(progress.message or ""), _MESSAGE)
                bars.update(tasks[task], completed=progress.progress, total=progress.total, message=message)

            return show

        yield [listener(number) for number in range(len(names))]
