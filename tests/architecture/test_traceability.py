"""Every requirement in scope has a test that names it, and every id a test names exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.traceability import IN_SCOPE, known_ids, marked_ids, report, text_of


@pytest.mark.slow
def test_every_requirement_in_scope_has_a_test_that_names_it() -> None:
    result = report(known_ids(), marked_ids())

    assert not result.missing, text_of(result)


@pytest.mark.slow
def test_no_test_names_an_id_that_does_not_exist() -> None:
    result = report(known_ids(), marked_ids())

    assert not result.unknown, text_of(result)


def test_everything_in_scope_is_a_known_requirement() -> None:
    assert known_ids() >= IN_SCOPE


def test_markers_count_on_functions_modules_and_parameters_and_comments_do_not(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n"
        'pytestmark = [pytest.mark.anyio, pytest.mark.requirement("R1")]\n'
        '@pytest.mark.requirement("R2", "C3")\n'
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.requirement("D4"))])\n'
        "def test_something(x): ...  # R5\n"
    )

    assert sorted(marked_ids(tmp_path)) == ["C3", "D4", "R1", "R2"]


def test_a_report_tells_missing_from_later_and_from_unknown() -> None:
    result = report({"R1", "R2", "R10"}, {"R1": ["test_a.py:1"], "R999": ["test_a.py:2"]}, in_scope={"R1", "R2"})

    assert result.missing == ["R2"]
    assert result.later == ["R10"]
    assert list(result.unknown) == ["R999"]
    assert text_of(result).splitlines()[1] == "without a test: R2"
