"""Progress display on standard error; silent without a terminal."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from toolweave._text import counted
from toolweave.cli._render.text import clip, safe_text
from toolweave.cli._screen import stderr_console
from toolweave.tools import Progress

_MESSAGE = 60
_SHOWN_FROM = 3  # seconds of silence


def _silence(seconds: float) -> str:
    """Return the text for a time without a sign of life; `""` for a short one."""
    if seconds < _SHOWN_FROM:
        return ""
    return f"no sign of life for {int(seconds)} s"


@contextmanager
def starting(
    names: Sequence[str], silences: Callable[[], Mapping[str, float]] = dict
) -> Generator[Callable[[str], None]]:
    """Show the servers that are still starting; yields a function to call when one of them is ready or has failed.

    `silences` returns the seconds without a sign of life, by server.
    """
    waiting = list(names)
    console = stderr_console()
    if console is None or not waiting:
        yield lambda _: None
        return

    from rich.text import Text  # rich takes as long to import as the rest of the command

    def named(name: str) -> str:
        silence = _silence(silences().get(name, 0))
        return f"{safe_text(name)} ({silence})" if silence else safe_text(name)

    class StartingLine:
        """The line with the starting servers, rebuilt at every refresh."""

        def __rich__(self) -> Text:
            shown = clip(", ".join(map(named, waiting)), _MESSAGE)
            return Text(f"starting {counted(len(names), 'server')}, waiting for {shown}")

    with console.status(StartingLine()):

        def done(name: str) -> None:
            if name in waiting:
                waiting.remove(name)

        yield done


@contextmanager
def call_progress(*names: str) -> Generator[list[Callable[[Progress], None]]]:
    """Show a progress bar for each of these calls, with its idle time; yields one progress listener for each."""
    console = stderr_console()
    if console is None:
        yield [lambda _: None for _ in names]
        return
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn  # as above
    from rich.progress import Progress as Bars
    from rich.text import Text

    class SilenceColumn(ProgressColumn):
        """A column with the idle time of a call, from a few seconds on."""

        max_refresh = 0.5

        def render(self, task: Task) -> Text:
            return Text(_silence(task.get_time() - task.fields["last_sign"]))

    columns = (
        TextColumn("{task.fields[label]}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[message]}", markup=False),
        SilenceColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        now = bars.get_time()
        tasks = [bars.add_task("", total=None, label=safe_text(name), message="", last_sign=now) for name in names]

        def listener(task: int) -> Callable[[Progress], None]:
            def show(progress: Progress) -> None:
                message = clip(safe_text(progress.message or ""), _MESSAGE)
                bars.update(
                    tasks[task],
                    completed=progress.progress,
                    total=progress.total,
                    message=message,
                    last_sign=bars.get_time(),
                )

            return show

        yield [listener(number) for number in range(len(names))]
