"""Brings the documentation up to date; `scripts/docs` runs it.

These are docs/cli.md, every block that names its source, the parts of pages that are made of the code, the chart of the
figures in docs/performance.md, and the diagrams of docs/diagrams.
"""

from __future__ import annotations

from benchmarks.bars import redraw
from tests.docs.cli_reference import PAGE, reference
from tests.docs.diagrams import diagrams
from tests.docs.generated import generated
from tests.docs.pages import filled, pages

__all__: list[str] = []

if __name__ == "__main__":
    redraw()
    for picture, svg in diagrams().items():
        picture.write_text(svg, encoding="utf-8")
    PAGE.write_text(reference(), encoding="utf-8")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := generated(filled(text))) != text:
            page.write_text(new, encoding="utf-8")
