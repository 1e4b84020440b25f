"""The words that people wrote on the pages: `python -m tests.docs.words` prints them, the longest page last.

Not counted are parts that a script writes, between two comments of one name: tables of measurements, of settings and of
profiles. Of the pages that are written as a whole, the help of the command is not counted, and of two others the tables
are not.
"""

from __future__ import annotations

import re
import sys

from tests.docs.pages import CHECKOUT

__all__ = ["words"]

_WRITTEN = re.compile(
    r"<!-- (?P<name>(?!docs_src)[a-z][a-z :-]*) -->\n.*?<!-- (?:/(?P=name)|/generated|end of (?P=name)) -->", re.DOTALL
)
_WHOLE = "cli.md"
_TABLES = ("conformance.md", "reliability.md")


def words() -> dict[str, int]:
    """Return the number of words by page, for the README, the tutorial and the pages of docs/."""
    docs = CHECKOUT / "docs"
    pages = [CHECKOUT / "README.md", *docs.glob("*.md"), *(docs / "tutorial").glob("*.md")]
    return {page.name: _count(page.name, page.read_text(encoding="utf-8")) for page in pages}


def _count(name: str, text: str) -> int:
    if name == _WHOLE:
        return 0
    lines = _WRITTEN.sub("", text).splitlines()
    if name in _TABLES:
        lines = [line for line in lines if not line.startswith("|")]
    return len(" ".join(lines).split())


if __name__ == "__main__":
    counted = words()
    for page, number in sorted(counted.items(), key=lambda item: item[1]):
        sys.stdout.write(f"{number:6,} {page}\n")
    sys.stdout.write(f"{sum(counted.values()):6,} in all\n")
