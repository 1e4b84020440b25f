"""Prompts for a person: reads typed lines without a thread, so that Ctrl-C and servers are still handled.

A text that needs consent is shown whole. If it is longer than a screen, its beginning and end are shown with the number
of lines between, and `v` shows all of it, page by page, before the question is repeated.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext

from toolweave.cli._render.text import safe_text
from toolweave.cli._screen import note, question_shown

_AROUND = 6
"""Lines of a screen that are left for the question and for the output before it."""
_MIN_PAGE = 12
_MAX_PAGE = 60
"""Minimum and maximum lines of a page, for any size of the screen."""


async def ask_line(question: str, *, hidden: bool = False) -> str | None:
    """Ask a question on standard error and return the typed line, or None at the end of the input.

    The question is shown again below lines that are written before its answer.

    Args:
        question: The question, in one line.
        hidden: Whether the answer is not shown while it is typed, as it is a secret.
    """
    # before the question: who answers may be quick
    with _without_echo() if hidden else nullcontext():
        while not await _answered(question):
            pass
        data = os.read(sys.stdin.fileno(), 65536)
    if data:
        return data.decode(errors="replace").rstrip("\r\n")
    return None


async def _answered(question: str) -> bool:
    """Show a question and wait for input; return False if a line was written below the question first."""
    import asyncio  # --help imports this module

    import anyio

    loop = asyncio.get_running_loop()
    with anyio.CancelScope() as shown:
        # Not shown again at once: of ten warnings in a row, which log handlers of any thread write, each would be
        # followed by the question.
        with question_shown(question, lambda: loop.call_soon_threadsafe(shown.cancel)):
            await anyio.wait_readable(sys.stdin.fileno())
        return True
    return False


@contextmanager
def _without_echo() -> Generator[None]:
    """Turn off the terminal's echo for the block; it is restored at the end, also after an interruption."""
    import termios  # not on Windows

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        print(file=sys.stderr, flush=True)  # the line break was not shown either


async def ask_about(text: str, question: str, choices: str) -> str:
    """Show a text and ask a question about it; return the answer in lower case, `""` at the end of the input.

    Args:
        text: The text, of any number of lines; omitted lines are counted.
        question: The question, in one line.
        choices: The possible answers, such as `[y]es, [n]o`.
    """
    columns, rows = shutil.get_terminal_size()
    page = min(max(rows - _AROUND, _MIN_PAGE), _MAX_PAGE)
    lines: list[str] = []
    for line in safe_text(text, multiline=True).split("\n"):
        lines += _wrapped(line, columns)
    whole = len(lines) <= page
    note("\n".join(lines if whole else _ends(lines, page)))
    while True:
        more = "" if whole else ", [v]iew all of it"
        answer = (await ask_line(f"{question} {choices}{more}: ") or "").strip().lower()
        if whole or answer not in ("v", "view"):
            return answer
        await _show_pages(lines, page)


def _ends(lines: list[str], page: int) -> list[str]:
    """Return the beginning and the end of a text, and between them the number of omitted lines."""
    # The end is shown as well as the beginning: its author could hide the part that matters at either.
    first = lines[: page * 2 // 3]
    last = lines[-(page // 3) :]
    hidden = lines[len(first) : len(lines) - len(last)]
    left_out = f"--- {len(hidden)} lines, {sum(map(len, hidden)):,} characters, are NOT shown here: v shows them ---"
    return [*first, left_out, *last]


async def _show_pages(lines: list[str], page: int) -> None:
    for start in range(0, len(lines), page):
        note("\n".join(lines[start : start + page]))
        left = len(lines) - start - page
        if left > 0 and await ask_line(f"--- {left} more lines; Enter continues, q ends: ") != "":
            return


def _wrapped(line: str, columns: int) -> Iterator[str]:
    """Wrap a line as the terminal does, so that the counted lines are those on the screen."""
    # By cells and not by characters: a wide one takes two, and a line that is longer than counted would push the
    # question's beginning off the screen.
    start = width = 0
    for place, char in enumerate(line):
        cells = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if width + cells > columns:
            yield line[start:place]
            start = place
            width = 0
        width += cells
    yield line[start:]
