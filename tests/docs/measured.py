"""Tables and sentences of pages that a script measures: between `<!-- NAME -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["measured_part", "write_measured_part"]


def measured_part(page: Path, name: str) -> str:
    """Return one part as the page has it."""
    found = re.search(_marked(name, "(.*?)"), page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, f"{page} has no part {name!r}"
    return found[1]


def write_measured_part(page: Path, name: str, text: str) -> None:
    """Replace one part of a page."""
    before, after = page.read_text(encoding="utf-8").split(_marked(name, measured_part(page, name)))
    page.write_text(before + _marked(name, text) + after, encoding="utf-8")


def _marked(name: str, text: str) -> str:
    return f"<!-- {name} -->\n{text}\n<!-- end of {name} -->"
