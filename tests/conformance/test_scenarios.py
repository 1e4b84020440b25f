"""Every scenario of the official conformance suite that is not about authorization, one by one, with both engines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conformance import suite
from tests.conformance.page import PAGE, page
from tests.conformance.suite import ENGINES, INSTALLED, WANTED, Outcome, Scenario, play, required, scenarios

pytestmark = [pytest.mark.conformance, pytest.mark.slow]

FOUND = scenarios() if INSTALLED.exists() else []
REQUIRED = 13
"""How many required pairs of scenario and revision there are at least; a suite that lists fewer was not read."""


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    stamp = INSTALLED / ".installed"
    if not stamp.exists() or stamp.read_bytes() != WANTED.read_bytes():
        pytest.fail(f"{INSTALLED} is missing or old; run scripts/conformance --install", pytrace=False)


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scenario", FOUND, ids=str)
def test_a_scenario_of_the_official_suite_passes(scenario: Scenario, engine: str, tmp_path: Path) -> None:
    outcome = play(scenario, engine, tmp_path)

    assert outcome.verdict == required(scenario), outcome.said


def test_no_revision_of_any_version_of_the_suite_is_left_out() -> None:
    by_suite = {version: {each.revision for each in FOUND if each.suite == version} for version in suite.versions()}

    assert by_suite == {
        "0.1.16": {"2025-06-18", "2025-11-25"},  # at 2025-03-26 it has scenarios about authorization only
        "0.2.0-alpha.12": {"2025-06-18", "2025-11-25", "2026-07-28", "extension"},
    }
    assert len([each for each in FOUND if required(each) == "pass"]) >= REQUIRED


def test_the_page_has_every_scenario_with_its_verdict() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(FOUND, lambda scenario, engine: required(scenario)), (
        "run scripts/conformance --write"
    )


BROKEN_CLIENTS = {
    "leaves with an exit code": "import sys; sys.exit(3)",
    "does nothing": "pass",
}


@pytest.mark.parametrize("name", ["tools_call", "http-invalid-tool-headers"])
@pytest.mark.parametrize("does", BROKEN_CLIENTS)
def test_a_client_that_does_not_do_its_part_fails(name: str, does: str, tmp_path: Path) -> None:
    outcome = run_client(tmp_path, name, BROKEN_CLIENTS[does])

    assert outcome.verdict == "fail"


def test_a_client_that_does_everything_and_leaves_with_an_exit_code_fails_even_where_the_suite_lets_it_pass(
    tmp_path: Path,
) -> None:
    script = f"sys.path.insert(0, {str(suite.HERE)!r}); import client; client.main(); sys.exit(3)"
    outcome = run_client(tmp_path, "http-invalid-tool-headers", f"import sys; {script}")

    assert "FAILURE" not in outcome.checks
    assert outcome.verdict == "fail"


def run_client(folder: Path, name: str, program: str) -> Outcome:
    """Run another client than ours."""
    newest = suite.versions()[-1]
    (folder / "client.py").write_text(program, encoding="utf-8")
    scenario = Scenario(suite=newest, revision="2026-07-28", name=name)
    (folder / "results").mkdir()
    return play(scenario, "auto", folder / "results", command=(sys.executable, str(folder / "client.py")))
