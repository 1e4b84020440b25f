"""The merge of three texts: nothing that the user wrote is lost, and what only one side changed needs nobody."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from tests.components.texts import Three, added, texts, three_texts
from toolweave.components._merge import lines_of, merge

BASE = "one\ntwo\nthree\nfour\nfive\n"


@pytest.mark.slow
@given(text=texts())
def test_lines_put_together_again_are_the_text(text: str) -> None:
    assert "".join(lines_of(text)) == text


@pytest.mark.slow
@given(three=three_texts())
def test_a_side_that_changed_nothing_gets_the_other_side(three: Three) -> None:
    assert merge(three.base, three.mine, three.base).mine() == three.mine
    assert merge(three.base, three.base, three.theirs).mine() == three.theirs
    assert merge(three.base, three.mine, three.mine).mine() == three.mine
    assert not merge(three.base, three.mine, three.base).conflicts
    assert not merge(three.base, three.base, three.theirs).conflicts
    assert not merge(three.base, three.mine, three.mine).conflicts


@pytest.mark.slow
@pytest.mark.requirement("R107")
@given(three=three_texts())
def test_every_line_the_user_added_is_in_the_merged_text(three: Three) -> None:
    merged = merge(*three)

    mine = added(three.base, three.mine)
    assert not mine - added("", merged.mine())
    assert not mine - added("", merged.marked("yours", "theirs"))


@pytest.mark.slow
@given(three=three_texts())
def test_both_sides_of_a_conflict_stand_between_its_markers(three: Three) -> None:
    merged = merge(*three)

    marked = merged.marked("yours", "theirs")
    assert marked.count("<<<<<<< yours\n") == len(merged.conflicts)
    for conflict in merged.conflicts:
        assert "".join(conflict.mine) in marked
        assert "".join(conflict.theirs) in marked


@pytest.mark.slow
@given(three=three_texts())
def test_the_line_of_a_conflict_is_where_it_begins_in_the_users_text(three: Three) -> None:
    lines = lines_of(three.mine)
    for conflict in merge(*three).conflicts:
        at = conflict.line - 1
        assert tuple(lines[at : at + len(conflict.mine)]) == conflict.mine


def test_changes_in_different_places_come_together() -> None:
    merged = merge(BASE, "zero\n" + BASE, BASE.replace("five", "5"))

    assert not merged.conflicts
    assert merged.mine() == "zero\none\ntwo\nthree\nfour\n5\n"


def test_a_line_that_the_user_deleted_stays_deleted() -> None:
    merged = merge(BASE, BASE.replace("two\n", ""), BASE + "six\n")

    assert merged.mine() == "one\nthree\nfour\nfive\nsix\n"


def test_the_same_line_changed_on_both_sides_is_a_conflict() -> None:
    merged = merge(BASE, BASE.replace("three", "mine"), BASE.replace("three", "theirs"))

    assert [conflict.line for conflict in merged.conflicts] == [3]
    assert merged.mine() == BASE.replace("three", "mine")
    assert merged.marked("yours", "1.2") == (
        "one\ntwo\n<<<<<<< yours\nmine\n=======\ntheirs\n>>>>>>> 1.2\nfour\nfive\n"
    )


def test_a_last_line_without_an_end_never_runs_into_a_marker() -> None:
    marked = merge("a\n", "a\nmine", "a\ntheirs").marked("yours", "catalog")

    assert marked == "a\n<<<<<<< yours\nmine\n=======\ntheirs\n>>>>>>> catalog\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@settings(max_examples=50, deadline=None)
@given(three=three_texts())
def test_what_git_merges_without_a_conflict_and_so_do_we_is_the_same_text(three: Three) -> None:
    merged = merge(*three)
    if merged.conflicts:
        return
    with TemporaryDirectory() as folder:
        names = ("mine", "base", "theirs")
        for name, text in zip(names, (three.mine, three.base, three.theirs), strict=True):
            (Path(folder) / name).write_bytes(text.encode())
        done = subprocess.run(["git", "merge-file", "-p", *names], cwd=folder, capture_output=True, check=False)
    if done.returncode == 0:
        assert sorted(lines_of(done.stdout.decode())) == sorted(lines_of(merged.mine()))
