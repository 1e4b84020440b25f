"""Questions to a person: lines that are typed, waited for without a thread, so that Ctrl-C and servers are heard.

What somebody is asked to agree to is shown whole. Where that is more than a screen, its beginning and its end are
shown with the count of what is between, and `v` shows everything, page by page, before the question comes again.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterator

from toolweave.cli.render.text import safe_text
from toolweave.cli.screen import note

__all__ = ["ask_about", "ask_line"]

_AROUND = 6
"""Lines of a screen that are left to the question and to what stood there before."""
_FEWEST, _MOST = 12, 60
"""Lines of a page, however small or large the screen is."""


async def ask_line(question: str) -> str | None:
    """Return the line that is typed after a question on standard error, None at the end of the input."""
    import anyio  # --help imports this module

    print(safe_text(question), end="", file=sys.stderr, flush=True)
    await anyio.wait_readable(sys.stdin.fileno())
    data = os.read(sys.stdin.fileno(), 65536)
    return data.decode(errors="replace").rstrip("\r\n") if data else None


async def ask_about(text: str, question: str, choices: str) -> str:
    """Show a text and ask what to do about it; return the answer in lower case, `""` at the end of the input.

    Args:
        text: What is asked about, in any number of lines; nothing of it is left out without a word.
        question: The question, in one line.
        choices: What can be answered, such as `[y]es, [n]o`.
    """
    columns, rows = shutil.get_terminal_size()
    page = min(max(rows - _AROUND, _FEWEST), _MOST)
    lines = [part for line in safe_text(text, multiline=True).split("\n") for part in _wrapped(line, columns)]
    whole = len(lines) <= page
    note("\n".join(lines if whole else _ends(lines, page)))
    while True:
        more = "" if whole else ", [v]iew all of it"
        answer = (await ask_line(f"{question} {choices}{more}: ") or "").strip().lower()
        if whole or answer not in ("v", "view"):
            return answer
        await _show_pages(lines, page)


def _ends(lines: list[str], page: int) -> list[str]:
    """Return the beginning and the end of a text, and between them how much of it is not shown."""
    first, last = lines[: page * 2 // 3], lines[-(page // 3) :]
    hidden = lines[len(first) : len(lines) - len(last)]
    left_out = f"--- {len(hidden)} lines, {sum(map(len, hidden)):,} characters, are NOT shown here: v shows them ---"
    return [*first, left_out, *last]


async def _show_pages(lines: list[str], page: int) -> None:
    for start in range(0, len(lines), page):
        note("\n".join(lines[start : start + page]))
        left = len(lines) - start - page
        if left > 0 and await ask_line(f"--- {left} more lines; Enter goes on, q ends: ") != "":
            return


def _wrapped(line: str, columns: int) -> Iterator[str]:
    """Cut a line where the terminal would, so that what is counted is what is seen."""
    start = width = 0
    for place, char in enumerate(line):
        cells = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if width + cells > columns:
            yield line[start:place]
            start, width = place, 0
        width += cells
    yield line[start:]
