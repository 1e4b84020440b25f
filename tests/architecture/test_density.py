"""Code is not packed and its texts are in the field's English: limits for the package, a ratchet for each module."""

from __future__ import annotations

import ast
import json

import pytest

from tests.architecture.density import (
    LIMITS,
    RATCHET,
    counts,
    numbers,
    over_the_limits,
    refused_words,
    totals,
    words_of_page,
    words_of_source,
)

HOW = "mend it; if others fell, run python -m tests.architecture.density --write"
KEPT = json.loads(RATCHET.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_package_is_within_its_limits_or_does_not_move_away_from_them() -> None:
    """Over a limit the number counts and not the density, which rises too when plain lines are deleted."""
    found = numbers()
    over = [kind for kind, figure in totals().items() if kind in LIMITS and figure > LIMITS[kind]]

    assert {kind: found[kind] for kind in over if found[kind] > KEPT["numbers"][kind]} == {}, HOW
    assert all(KEPT["totals"][kind] > LIMITS[kind] for kind in over)


@pytest.mark.slow
def test_a_module_over_a_limit_gets_no_denser() -> None:
    grown = [
        f"{name}: {count} {kind}"
        for name, kind, count in over_the_limits()
        if count > KEPT["modules"].get(name, {}).get(kind, 0)
    ]

    assert grown == [], HOW


@pytest.mark.slow
def test_casts_do_not_multiply_and_comments_do_not_go() -> None:
    assert numbers()["casts"] <= KEPT["numbers"]["casts"], HOW
    assert totals()["comments"] >= KEPT["totals"]["comments"] - 0.05, "say why where a lock, a retry or a cache stands"


@pytest.mark.slow
def test_no_text_takes_up_a_word_that_the_standard_refuses() -> None:
    found = refused_words()
    in_source = {place: count for place, count in found.items() if place.startswith("src: ") and count}
    grown = {place: count for place, count in found.items() if count > KEPT["words"].get(place, 0)}

    assert in_source == {}, "use the field's word; REFUSED lists the patterns"
    assert grown == {}, HOW


def test_the_figures_count_what_they_name() -> None:
    source = "a, b = 1, 2\nc = 1 if a else 2 if b else 3\nd = a and b or c\ne = [x for x in y]\nf: Any = cast(int, g)\n"

    assert counts(ast.parse(source)) == {
        "tuple assignments": 1,
        "conditional expressions": 2,
        "nested conditional expressions": 1,
        "boolean operators": 2,
        "comprehensions": 1,
        "uses of Any": 1,
        "casts": 1,
    }


def test_words_are_looked_for_in_texts_and_names_alone() -> None:
    assert words_of_source('if a is None:\n    raise X("it is no URL")  # as it was told\n_MOST_LINES = 3\n') == 3
    assert words_of_source('shown = f"{name} is none of {group}"\nassert "is None" in counter.most_common(1)\n') == 1
    assert words_of_page("It is none.\n\n```python\nif x is none: tell()\n```\n") == 1
