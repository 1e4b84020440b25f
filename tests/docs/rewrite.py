"""Brings the documentation up to date: docs/cli.md, and every block that names its source. `scripts/docs` runs it."""

from __future__ import annotations

from tests.docs.cli_reference import PAGE, reference
from tests.docs.pages import filled, pages

__all__: list[str] = []

if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, encoding="utf-8")
