"""What the pages say in tables and sentences, held against the package."""

from __future__ import annotations

import importlib
import importlib.metadata
import re

import pytest

import toolweave
from experiments.features.report import LIBRARIES, OURS, read
from tests.architecture.density import words_of_page
from tests.docs.generated import generated
from tests.docs.pages import CHECKOUT, filled, pages, tables
from tests.docs.public_names import code_spans, is_public
from tests.docs.site import modules
from tests.docs.words import words
from toolweave.config import ServerConfig, known_transports, server_config
from toolweave.providers._profiles import PROFILES
from toolweave.version import VERSION

VOCABULARIES = ["Axle", "AIDK", "squidbot", "Axiom MCP", "kitn"]
WORDS = 45_000
"""How many words the pages may have that people write. This number only falls."""
NAMES = "docs_src/designs/names.md"


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_name_that_a_vocabulary_is_mapped_to_is_public(vocabulary: str) -> None:
    rows = list(tables(NAMES, vocabulary))
    ours = [span for _, cell in rows for span in code_spans(cell) if re.fullmatch(r"[A-Za-z_]+(\.[a-z_]+)*", span)]

    assert rows
    assert not [name for name in ours if not is_public(name) and name != "github_createIssue"]


@pytest.mark.requirement("R111")
def test_every_module_of_the_designs_has_a_place_here() -> None:
    rows = list(tables(NAMES, "Where their modules went"))

    for theirs, ours in rows:
        assert code_spans(ours) or ours == "not yet", theirs
        for name in code_spans(ours):
            importlib.import_module(name)
    assert {theirs.split()[0] for theirs, _ in rows} == {"Axle", "AIDK", "squidbot", "kitn"}


@pytest.mark.requirement("R14")
def test_the_table_of_transports_names_each_of_them_as_configs_may_write_it() -> None:
    rows = list(tables("docs/transports.md"))
    fields = {"stdio": {"command": "x"}, "http": {"url": "http://h/mcp"}, "sse": {"url": "http://h/sse"}}

    assert {code_spans(row[0])[0] for row in rows} >= set(fields) | {"inprocess"}
    assert {code_spans(row[0])[0] for row in rows} <= known_transports()
    for name, others, what, use in rows:
        (canonical,) = code_spans(name)
        assert what
        assert use
        for written in {canonical, *code_spans(others)} - {"websocket"}:
            if canonical in fields:
                assert server_config({"type": written, **fields[canonical]}, name="x").transport == canonical
            else:
                assert ServerConfig(name="x", transport=written, server=object()).transport == canonical


@pytest.mark.requirement("R110")
def test_the_only_distribution_that_knows_mcp_is_the_official_sdk_in_its_extra() -> None:
    requires = importlib.metadata.requires("toolweave") or []
    known = {line for line in requires if "mcp" in line.lower()}

    # `test` and `dev` take the extra `sdk` in.
    assert known == {f"mcp<3,>=2.3; extra == '{extra}'" for extra in ("sdk", "test", "dev")}


FIGURES = {
    "530 of 530 runs": ("reliability.md", "| runs passed (fault x transport x revision) | 530 of 530 |"),
    "client passed 364": ("reliability.md", "| 364 of 530 |"),
    "2.6 times the CPU": ("performance.md", "| stdio, 100 B, 16 callers | 0.80 | 2.62 |"),
    "costs 23 times": ("performance.md", "| 2.67 | 23.51 |"),
    "64 of 65 scenarios": ("conformance.md", "65 scenarios: 64 pass wherever they apply, 1 are skipped"),
    "5,632 tools of 675 public servers": ("schemas.md", "5,632 tools, as 675 public MCP servers list them"),
}
"""What the README claims, and where a script has written the figure."""


@pytest.mark.parametrize(("claim", "page", "source"), [(claim, *source) for claim, source in FIGURES.items()])
def test_a_figure_of_the_readme_is_the_one_that_a_script_wrote(claim: str, page: str, source: str) -> None:
    assert claim in (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert source in (CHECKOUT / "docs" / page).read_text(encoding="utf-8")


def test_the_readme_counts_the_features_of_the_table() -> None:
    cells = read().cells
    complete = {name: [row for row in cells if cells[row][name].outcome == "yes"] for name in (OURS, *LIBRARIES)}

    assert len(complete.pop(OURS)) == len(cells) == 10
    assert max(len(rows) for rows in complete.values()) == 3


def test_no_tool_of_a_public_server_is_refused_by_a_profile_that_is_not_strict() -> None:
    rows = [row for row in tables("docs/schemas.md", "What is lost") if re.fullmatch(r"`[\w.-]+`", row[0])]
    refused = {row[0]: row[4] for row in rows[: len(PROFILES)]}

    assert refused.keys() == {f"`{name}`" for name in PROFILES}
    assert {name for name, count in refused.items() if count != "0" and "strict" not in name} == set()


def test_the_readme_is_short() -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")

    assert len(text.split()) <= 900
    assert len(text.splitlines()) <= 140


def test_the_pages_have_no_more_words_than_their_budget() -> None:
    assert sum(words().values()) <= WORDS


def newest_entry() -> str:
    """Return the changelog's entry for the version of the package."""
    entries = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert entries[0].startswith(f"{VERSION} - ")
    return entries[0]


def test_the_newest_entry_of_the_changelog_is_for_the_version_of_the_package_and_short() -> None:
    head, *sections = newest_entry().split("\n### ")

    assert re.fullmatch(r"\d+\.\d+\.\d+ - (unreleased|20\d\d-\d\d-\d\d)", head.splitlines()[0])
    assert len(newest_entry().split()) <= 800
    assert all(section.split("\n", 1)[1].strip() for section in sections)


def test_no_page_has_a_word_that_our_english_refuses() -> None:
    read = [*(CHECKOUT / "docs").glob("*.md"), *(CHECKOUT / "docs" / "tutorial").glob("*.md"), *CHECKOUT.glob("*.md")]
    found = {page.name: words_of_page(page.read_text(encoding="utf-8")) for page in read}

    assert not {name: number for name, number in found.items() if number}


def test_the_changelog_names_only_what_exists() -> None:
    spans = code_spans(newest_entry())
    names = [span for span in spans if re.fullmatch(r"@?[A-Za-z]+(_[a-z]+)+|[A-Z]\w+(\.\w+)*", span)]
    rooms = [span for span in spans if re.fullmatch(r"toolweave(\.[a-z]+)+", span)]

    assert not [name for name in names if not is_public(name.lstrip("@"))]
    assert not [room for room in rooms if room not in modules().values()]


@pytest.mark.slow
def test_pages_are_what_scripts_docs_would_write() -> None:
    stale = [page.name for page in pages() if generated(filled(text := page.read_text(encoding="utf-8"))) != text]

    assert not stale, "run scripts/docs"


def test_the_version_of_the_package_is_the_one_that_the_build_reads() -> None:
    assert importlib.metadata.version("toolweave") == VERSION
    assert toolweave.__doc__
