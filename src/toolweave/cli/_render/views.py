"""Readable views: tables of tools, servers, resources and prompts. Their JSON equivalents are in the commands.

Builds views from values; prints nothing. Every text goes through `safe_text`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from toolweave._json_types import JsonObject
from toolweave.cli._render.text import clip, safe_text
from toolweave.errors import LAST_WORDS

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table
    from rich.text import Text

_SUMMARY = 120


class FittingTable:
    """A table if it fits without breaking a word, else a list of its rows.

    Args:
        names: The columns.
        rows: The cells, as safe text.
        right: The columns that are aligned to the right.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str]) -> None:
        self._names = names
        self._rows = rows
        self._right = right

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._narrowest() <= options.max_width:
            yield _table(self._names, self._rows, self._right)
            return
        yield from self._listed()

    def _narrowest(self) -> int:
        """Return the minimum width of a table: that of its longest words and its separators."""
        from rich.cells import cell_len  # rich takes as long to import as the rest of the command

        columns = zip(self._names, *self._rows, strict=True)
        widest = [max((cell_len(word) for cell in column for word in cell.split()), default=0) for column in columns]
        return sum(widest) + 2 * (len(widest) - 1)

    def _listed(self) -> RenderResult:
        from rich.padding import Padding  # as above
        from rich.text import Text

        for first, *rest in self._rows:
            yield Text(first, style="bold")
            for name, cell in zip(self._names[1:], rest, strict=True):
                if cell:
                    # also lines that continue a cell
                    yield Padding(Text(f"{name}: {cell}"), (0, 0, 0, 2))


def table(names: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> FittingTable:
    """Return a table of plain text cells; the columns in `right` are aligned to the right."""
    return FittingTable(names, [list(map(safe_text, row)) for row in rows], right=right)


def first_line(text: str) -> str:
    """Return the first line of an error; the others are output of its process."""
    return text.split("\n", maxsplit=1)[0].removesuffix(LAST_WORDS)


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str]) -> Table:
    from rich.box import SIMPLE_HEAD  # rich takes as long to import as the rest of the command
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for name in names:
        made.add_column(
            name,
            overflow="fold",
            justify="right" if name in right else "left",
            style="bold" if name == names[0] else "",
        )
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def heading(name: str, *details: str) -> Text:
    """Return a server's heading: its name and details."""
    from rich.text import Text  # as above

    text = Text("\n")
    text.append(safe_text(name), style="bold cyan")
    for detail in details:
        if detail:
            text.append("  ")
            text.append(safe_text(detail), style="dim")
    return text


def difference(line: str) -> Text:
    """Return a line of a unified diff in its colour."""
    from rich.text import Text  # as above

    styles = {"+++": "bold", "---": "bold", "@@": "cyan", "+": "green", "-": "red"}
    style = next((style for start, style in styles.items() if line.startswith(start)), "")
    return Text(safe_text(line, multiline=True), style=style)


def summary(description: str) -> str:
    """Return a description's first paragraph as one line."""
    return clip(" ".join(description.strip().split("\n\n")[0].split()), _SUMMARY)


def seconds_text(seconds: float | None) -> str:
    """Return a readable duration, `""` for None."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s"


def size_text(tokens: int) -> str:
    """Return a readable, approximate number of tokens."""
    return f"~{tokens:,} tokens"


def software_text(info: JsonObject) -> str:
    """Return the name and the version that a server gives itself, `""` without them."""
    return " ".join(str(info.get(key, "")) for key in ("name", "version")).strip()
