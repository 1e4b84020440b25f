"""Standard output and standard error: the answer goes to the one, everything else to the other.

The only module that writes to the terminal. Whatever may come from a server passes through `safe_text`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from toolweave.cli._next_steps import next_step
from toolweave.cli._render.text import safe_json, safe_text
from toolweave.cli._streams import is_terminal, quietly, write

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PIPED_WIDTH = 300
"""Width of a view that is not written to a terminal."""

_repeat_question: Callable[[], object] | None = None
"""Shows the question again behind which the cursor stands; None while no question waits."""


def answer(text: str) -> None:
    """Write text to standard output, escaped; a closed pipe is not an error."""
    write(sys.stdout, safe_text(text, multiline=True).rstrip("\n") + "\n")


def stream(text: str) -> None:
    """Write a piece of an answer to standard output; `SafeStream` has escaped it."""
    write(sys.stdout, text)


def answer_json(value: Any) -> None:  # any JSON value
    """Write a JSON value to standard output; characters that its encoding lacks become JSON escapes."""
    write(sys.stdout, safe_json(value, ascii_only=not _takes_unicode(sys.stdout)) + "\n")


def answer_bytes(data: bytes) -> None:
    """Write bytes to standard output unchanged; only if that is not a terminal."""
    sys.stdout.flush()
    quietly(sys.stdout, lambda: (sys.stdout.buffer.write(data), sys.stdout.buffer.flush()))


def show(*views: RenderableType, piped_width: int = _PIPED_WIDTH) -> None:
    """Write readable views to standard output; their texts were escaped when they were built.

    Without a terminal and without `COLUMNS` they are `piped_width` columns wide: by default so wide that each row of a
    table is one line, for programs that search lines.
    """
    console = _console(sys.stdout, piped_width)
    with console.capture() as capture:
        for view in views:
            console.print(view)
    write(sys.stdout, "".join(line.rstrip(" ") + "\n" for line in capture.get().splitlines()))


def note(text: str) -> None:
    """Write a readable line to standard error, escaped."""
    _write_below(safe_text(text, multiline=True) + "\n")


@contextmanager
def question_shown(question: str, repeat: Callable[[], object]) -> Generator[None]:
    """Show a question on standard error and wait for its answer in the block.

    The first line that is written meanwhile, such as a warning, starts below the question and calls `repeat`, from any
    thread: the question does not stand above that line alone.
    """
    global _repeat_question
    write(sys.stderr, safe_text(question))
    # without a question the cursor is at the start of a line
    _repeat_question = repeat if question else None
    try:
        yield
    finally:
        _repeat_question = None


def _write_below(text: str) -> None:
    """Write whole lines to standard error, below a question that waits."""
    global _repeat_question
    # Cleared before it is called: it writes by itself, and must not come back here.
    repeat = _repeat_question
    _repeat_question = None
    if repeat is None:
        write(sys.stderr, text)
        return
    write(sys.stderr, "\n" + text)
    repeat()


def announce(name: str, *details: str) -> None:
    """Write a line about a running service to standard error, in colours if it is a terminal."""
    from toolweave.cli._render.views import heading  # rich is slow to import, and few commands announce

    console = _console(sys.stderr)
    with console.capture() as capture:
        console.print(heading(name, *details))
    _write_below(capture.get().strip("\n") + "\n")


def complain(error: Exception, *, label: str = "error") -> None:
    """Write an error and its hint to standard error."""
    # a server's text may have several lines: indented, they cannot pass for ours
    note(wrapped(safe_text(f"{label}: {error}".replace("\n", "\n  "), multiline=True), stream=sys.stderr))
    hint = next_step(error)
    if hint:
        note(wrapped(safe_text(f"hint: {hint}"), stream=sys.stderr))


def wrapped(text: str, *, indent: int = 2, stream: TextIO | None = None) -> str:
    """Return a text wrapped between words at the width of the stream; unchanged if it has no width.

    Continuation lines are indented by `indent` more; a word that is longer than a line stays whole.
    """
    out = stream or sys.stdout
    if not is_terminal(out) and "COLUMNS" not in os.environ:
        return text
    import shutil  # takes long to import, and few commands are wider than their terminal

    columns = max(shutil.get_terminal_size().columns, 20)
    return "\n".join(_wrapped_line(line, columns, indent) for line in text.split("\n"))


def _wrapped_line(line: str, columns: int, indent: int) -> str:
    import textwrap  # only long lines need it

    if len(line) <= columns:
        return line
    margin = " " * (len(line) - len(line.lstrip(" ")))
    later = margin + " " * indent
    return textwrap.fill(
        line.lstrip(" "),
        columns,
        initial_indent=margin,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )


def stderr_console() -> Console | None:
    """Return a console on standard error for progress displays if it is a terminal, else None."""
    if is_terminal(sys.stderr):
        return _console(sys.stderr)
    return None


def wide(stream: TextIO | None = None) -> bool:
    """Whether the stream is a terminal."""
    return is_terminal(stream or sys.stdout)


def _console(stream: TextIO, piped_width: int = _PIPED_WIDTH) -> Console:
    import shutil

    from rich.console import Console  # as slow to import as the rest of the command: only for views

    if is_terminal(stream):
        width = None
    else:
        width = shutil.get_terminal_size((piped_width, 24)).columns
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=width, soft_wrap=False)


def _takes_unicode(stream: TextIO | None) -> bool:
    # None if the process began without it
    encoding = None if stream is None else stream.encoding
    return (encoding or "utf-8").lower().replace("-", "").startswith("utf")
