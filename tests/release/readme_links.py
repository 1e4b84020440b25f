"""Where the links of a wheel's README lead: `python -m tests.release.readme_links WHEEL REPOSITORY` checks them."""

from __future__ import annotations

import email.parser
import re
import sys
import zipfile
from pathlib import Path

__all__ = ["broken_links", "readme_of"]

CHECKOUT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(\s*([^)\s]+)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def readme_of(wheel: Path) -> str:
    """Return the text that an index page shows for a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return str(email.parser.Parser().parsestr(archive.read(name).decode()).get_payload())


def broken_links(text: str, repository: str) -> list[str]:
    """Return the links that an index page cannot follow: relative ones, and those to no file or heading here."""
    return [link for link in LINK.findall(text) if not _leads_somewhere(link, text, repository)]


def _leads_somewhere(link: str, text: str, repository: str) -> bool:
    if link.startswith("#"):
        return link[1:] in _anchors(text)
    match = re.fullmatch(rf"{re.escape(repository)}/(?:blob|raw)/main/([^#]+)(?:#(.+))?", link)
    if match is None:  # other hosts are not asked
        return link.startswith("https://") and not link.startswith(repository)
    file = CHECKOUT / match[1]
    return file.is_file() and (match[2] is None or match[2] in _anchors(file.read_text(encoding="utf-8")))


def _anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a page, as code hosts and index pages make them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


if __name__ == "__main__":
    broken = broken_links(readme_of(Path(sys.argv[1])), sys.argv[2].rstrip("/"))
    sys.exit(f"links of the README that lead nowhere on an index page: {', '.join(broken)}" if broken else 0)
