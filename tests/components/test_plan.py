"""Plans, from values alone: what happens to which file, and that nothing a user wrote is lost."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.components.texts import added, texts, three_texts
from toolweave.components._plan import (
    SIDE,
    Action,
    OnConflict,
    Plan,
    plan_add,
    plan_remove,
    plan_update,
    text_of,
)

Project: TypeAlias = tuple[dict[str, str], dict[str, str], dict[str, bytes]]
"""The catalog, what was copied of it once, and what stands in the project."""

PATHS = ["a.py", "b.py"]
CONFLICTS = st.sampled_from(["refuse", "markers", "side"])
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
FORMS = st.sampled_from(["lf", "crlf", "bom"])


def written(text: str, form: str) -> bytes:
    """Return a text as an editor writes it."""
    if form == "crlf" and "\r" not in text:
        return text.replace("\n", "\r\n").encode()
    return (b"\xef\xbb\xbf" if form == "bom" else b"") + text.encode()


@st.composite
def projects(draw: st.DrawFn) -> Project:
    """Return a catalog, what was copied of it once, and what stands in the project: files may lack on any side."""
    catalog: dict[str, str] = {}
    originals: dict[str, str] = {}
    disk: dict[str, bytes] = {}
    for path in PATHS:
        base, mine, theirs = draw(three_texts())
        base, theirs = base.replace("\r", ""), theirs.replace("\r", "")  # what the catalog has is its own affair
        if draw(st.integers(0, 5)):
            catalog[path] = theirs
        if draw(st.integers(0, 5)):
            originals[path] = base
        if draw(st.integers(0, 5)):
            disk[path] = written(draw(st.sampled_from([mine, mine, base, theirs])), draw(FORMS))
        if not draw(st.integers(0, 5)):
            disk[path + SIDE] = draw(texts()).encode()
    return catalog, originals, disk


def after(plan: Plan, disk: dict[str, bytes]) -> dict[str, bytes]:
    """Return what stands in the project when a plan was carried out; a refused one is not."""
    if plan.refused:
        return disk
    result = dict(disk)
    for step in plan.steps:
        assert step.before == disk.get(step.path), step.path
        if step.after is None:
            result.pop(step.path, None)
        else:
            result[step.path] = step.after
    return result


def lines_in(disk: dict[str, bytes]) -> Counter[str]:
    """Return every line of every file that is text, with how often it stands there."""
    found: Counter[str] = Counter()
    for data in disk.values():
        found += added("", text_of(data) or "")
    return found


@pytest.mark.slow
@pytest.mark.requirement("R107")
@steady
@given(project=projects(), on_conflict=CONFLICTS)
def test_an_update_loses_no_line_of_the_users(project: Project, on_conflict: OnConflict) -> None:
    catalog, originals, disk = project

    result = after(plan_update(catalog, originals, disk, on_conflict=on_conflict), disk)

    for path, data in disk.items():
        mine = text_of(data)
        assert mine is not None
        lost = added(originals.get(path, ""), mine) - lines_in({path: result.get(path, b"")})
        assert not lost, (path, lost)


@pytest.mark.slow
@pytest.mark.requirement("R107")
@steady
@given(project=projects(), on_conflict=CONFLICTS)
def test_a_second_update_changes_nothing(project: Project, on_conflict: OnConflict) -> None:
    catalog, originals, disk = project
    first = plan_update(catalog, originals, disk, on_conflict=on_conflict)
    if first.refused:
        return
    result = after(first, disk)

    second = plan_update(catalog, first.originals, result, on_conflict="refuse")

    assert not second.refused
    assert not second.writes


@pytest.mark.slow
@steady
@given(project=projects())
def test_a_refused_update_names_each_file_and_changes_the_lock_of_none(
    project: Project,
) -> None:
    catalog, originals, disk = project

    for step in plan_update(catalog, originals, disk).refused:
        assert step.why
        assert step.before == step.after == disk[step.path]
        assert step.original == originals.get(step.path)


@pytest.mark.slow
@steady
@given(project=projects())
def test_an_untouched_copy_becomes_the_catalog(
    project: Project,
) -> None:
    catalog, originals, _ = project
    disk = {path: text.encode() for path, text in originals.items()}

    plan = plan_update(catalog, originals, disk)

    assert not plan.refused
    assert after(plan, disk) == {path: text.encode() for path, text in catalog.items()}
    assert plan.originals == catalog


@pytest.mark.slow
@pytest.mark.requirement("R107")
@steady
@given(project=projects())
def test_adding_without_overwrite_changes_no_file_that_is_there(
    project: Project,
) -> None:
    catalog, originals, disk = project

    result = after(plan_add(catalog, originals, disk), disk)

    assert {path: result.get(path) for path in disk} == disk


@pytest.mark.slow
@steady
@given(project=projects())
def test_adding_with_overwrite_makes_every_file_the_catalogs(
    project: Project,
) -> None:
    catalog, originals, disk = project

    plan = plan_add(catalog, originals, disk, overwrite=True)

    assert not plan.refused
    assert {path: text_of(after(plan, disk)[path]) for path in catalog} == catalog


@pytest.mark.slow
@pytest.mark.requirement("R107")
@steady
@given(project=projects())
def test_removing_takes_only_what_nobody_changed_and_remembers_the_rest(
    project: Project,
) -> None:
    _, originals, disk = project

    plan = plan_remove(originals, disk)

    result = after(plan, disk)
    for path in disk:
        untouched = path in originals and text_of(disk[path]) == originals[path]
        assert (path not in result) == untouched
    assert plan.originals.keys() == result.keys() & originals.keys()
    assert not after(plan_remove(plan.originals, result, force=True), result).keys() & originals.keys()


def action(plan: Plan, path: str = "a.py") -> Action:
    """Return what happens to one file."""
    return next(step.action for step in plan.steps if step.path == path)


OLD, NEW = "one\ntwo\nthree\n", "one\ntwo\n3\n"


@pytest.mark.parametrize(
    "catalog, mine, expected",
    [
        (OLD, OLD, Action.KEEP),
        (OLD, "mine\n", Action.KEEP),
        (NEW, OLD, Action.REPLACE),
        (NEW, NEW, Action.KEEP),
        (NEW, "zero\n" + OLD, Action.MERGE),
        (NEW, "one\ntwo\ndrei\n", Action.REFUSE),
        (NEW, None, Action.KEEP),
        (None, OLD, Action.DELETE),
        (None, "mine\n", Action.KEEP),
        (None, None, Action.KEEP),
    ],
)
def test_the_three_texts_of_a_file_decide(catalog: str | None, mine: str | None, expected: Action) -> None:
    disk = {} if mine is None else {"a.py": mine.encode()}

    assert action(plan_update({} if catalog is None else {"a.py": catalog}, {"a.py": OLD}, disk)) is expected


def test_a_file_that_is_no_text_is_refused_only_when_there_is_something_new_for_it() -> None:
    disk = {"a.py": b"\xff\xfe"}

    assert action(plan_update({"a.py": NEW}, {"a.py": OLD}, disk, on_conflict="markers")) is Action.REFUSE
    assert action(plan_update({"a.py": OLD}, {"a.py": OLD}, disk)) is Action.KEEP


@pytest.mark.parametrize("form", ["lf", "crlf", "bom"])
def test_a_merged_file_keeps_its_line_ends_and_its_byte_order_mark(form: str) -> None:
    mine, merged = written("zero\n" + OLD, form), written("zero\n" + NEW, form)

    (step,) = plan_update({"a.py": NEW}, {"a.py": OLD}, {"a.py": mine}).steps

    assert step.after == merged


def test_a_file_beside_the_users_is_written_only_where_none_stands() -> None:
    disk = {"a.py": b"one\ntwo\ndrei\n"}

    plan = plan_update({"a.py": NEW}, {"a.py": OLD}, disk, on_conflict="side")
    again = plan_update({"a.py": NEW}, {"a.py": OLD}, {**disk, "a.py.new": b"my notes\n"}, on_conflict="side")

    assert after(plan, disk) == {**disk, "a.py.new": NEW.encode()}
    assert [step.path for step in again.refused] == ["a.py"]
    assert "there is a file a.py.new already" in again.refused[0].why


def test_without_a_lock_a_file_that_differs_is_a_strangers() -> None:
    plan = plan_update({"a.py": NEW}, {}, {"a.py": OLD.encode()})

    assert plan.refused[0].why == "there is another file of this name"
