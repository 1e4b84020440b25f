"""The pages of the documentation and the fenced blocks in them.

A ```python block and a ```json block name their source in the comment before the fence:
`<!-- docs_src/callbacks.py -->`, or `<!-- docs_src/callbacks.py: call -->` for a program of its own made of the lines
between `# region call` and `# endregion`. A ```text block may name the `.out` file beside a snippet, which holds what
it prints. A ```console block holds `$ toolweave ...` lines with what they print; `...` stands for anything.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.docs.programs import program
from tests.programs import ran

__all__ = ["Block", "blocks", "command_lines", "filled", "pages", "printed_by", "source_of", "tables"]

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SNIPPETS = CHECKOUT / "docs_src"
FENCE = re.compile(
    r"(?:^<!-- (?P<source>docs_src/[^>]+?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    kind: str
    source: str | None
    text: str

    @property
    def where(self) -> str:
        """The place to click on."""
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return every page a user reads."""
    return sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])


def blocks(kind: str) -> Iterator[Block]:
    """Yield the blocks of one kind over all pages."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match["kind"] == kind:
                line = text.count("\n", 0, match.start()) + 1
                yield Block(str(page.relative_to(CHECKOUT)), line, kind, match["source"], match["text"])


def source_of(reference: str) -> str:
    """Return the text a block must equal: a file under docs_src, or the program that one region of it makes.

    The module docstring and the `from __future__` line of a snippet are left out of the page.
    """
    name, _, region = reference.partition(": ")
    text = (CHECKOUT / name).read_text(encoding="utf-8")
    if region:
        assert f"# region {region}\n" in text, f"{name} has no region {region!r}"
        return program(text, region)
    if name.endswith(".py"):
        text = re.sub(r'\A""".*?"""\n+', "", text, flags=re.DOTALL)
        text = re.sub(r"\Afrom __future__ import annotations\n+", "", text)
        text = re.sub(r"^ *# (region .*|endregion)\n", "", text, flags=re.MULTILINE)
    return text


def command_lines(block: Block) -> Iterator[tuple[str, str]]:
    """Yield each `$ ` line of a console block with the output that follows it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def filled(page: str) -> str:
    """Return a page with every block that names a source replaced by that source."""

    def fill(match: re.Match[str]) -> str:
        if match["source"] is None:
            return match[0]
        return f"<!-- {match['source']} -->\n```{match['kind']}\n{source_of(match['source'])}```"

    return FENCE.sub(fill, page)


def tables(page: str, heading: str | None = None) -> Iterator[list[str]]:
    """Yield the rows of a page's tables as cells, header rows and rulers left out; `heading` picks one section."""
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    if heading is not None:
        text = re.split(r"^## ", text.split(f"\n## {heading}\n")[1], flags=re.MULTILINE)[0]
    lines = text.splitlines()
    for number, line in enumerate(lines):
        is_row = line.startswith("| ") and not (lines[number + 1 : number + 2] or [""])[0].startswith("|--")
        if is_row:
            yield [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]


def printed_by(snippet: Path, folder: Path, *arguments: str, **environ: str) -> str:
    """Return what a snippet prints that is run in a folder, where warnings are errors; or pytest, of its arguments."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = ran(
        [sys.executable, "-W", "error", *(["-m", "pytest", *arguments] if arguments else []), str(snippet)],
        cwd=folder,
        env={**os.environ, "PATH": path, **environ},
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
