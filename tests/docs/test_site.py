"""The pages as a site: all of them are found, every link and anchor leads somewhere, and nothing comes from elsewhere.

The whole site, with the reference made of docstrings, is built by `scripts/docs --site`, which CI runs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.site import DECISIONS, build, configuration, modules, navigation, pages_of_the_site, stage

FOREIGN = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//(?P<host>[^/\"]+)")


def without_reference(entries: Any) -> list[Any]:  # any YAML value
    """Return a navigation without the pages that are made of docstrings."""
    kept: list[Any] = []
    for entry in entries:
        for title, target in entry.items():
            if isinstance(target, list):
                kept.append({title: without_reference(target)})
            elif not target.startswith("reference/"):
                kept.append({title: target})
    return kept


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of all pages but the reference."""
    folder = tmp_path_factory.mktemp("site")
    stage(folder / "docs", reference=False)
    config = configuration()
    plugins = [one for one in config["plugins"] if "mkdocstrings" not in one]
    done = build(folder, {**config, "nav": without_reference(config["nav"]), "plugins": plugins})
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_every_page_is_in_the_navigation_once() -> None:
    listed = sorted(navigation(configuration()["nav"]))
    pages = {*(page for page in pages_of_the_site() if not page.startswith("decisions/")), *modules(), DECISIONS}

    missing = sorted(pages - set(listed))
    assert not missing, f"give each of these a place in the `nav` of mkdocs.yml: {', '.join(missing)}"
    assert not sorted(set(listed) - pages), "the `nav` of mkdocs.yml names pages that are not there"
    assert len(listed) == len(set(listed))


@pytest.mark.slow
def test_the_site_has_every_page_and_loads_nothing_from_another_host(site: Path) -> None:
    for place in pages_of_the_site():
        page = site / ("" if place == "index.md" else place.removesuffix(".md")) / "index.html"
        text = page.read_text(encoding="utf-8")
        assert "<h1" in text, place
        own = re.sub(r'<link [^>]*rel="canonical"[^>]*>|<link [^>]*rel="alternate"[^>]*>', "", text)
        assert not [match["host"] for match in FOREIGN.finditer(own)], place
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\W?(https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet.name


@pytest.mark.slow
def test_the_site_has_a_list_of_its_pages_for_models(site: Path) -> None:
    listed = (site / "llms.txt").read_text(encoding="utf-8")

    assert "/first-steps/" in listed
    assert "/gateway/" in listed
    assert "connect_mcp" in (site / "llms-full.txt").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_page_or_an_anchor_that_is_not_there_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n\n[a](two.md#nowhere) [b](nothing.md)\n", encoding="utf-8")
    (tmp_path / "docs" / "two.md").write_text("# Two\n\n## There\n", encoding="utf-8")

    done = build(tmp_path, {**configuration(), "nav": [{"One": "index.md"}, {"Two": "two.md"}], "plugins": []})

    assert done.returncode != 0
    assert "anchor does not exist" in done.stdout + done.stderr
    assert "page does not exist" in done.stdout + done.stderr
