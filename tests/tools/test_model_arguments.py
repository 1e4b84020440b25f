"""Arguments and ids of calls on their way to a model and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.tools.arguments import json_text, read_arguments, wire_id

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(), JSON))
def test_arguments_survive_the_way_there_and_back(arguments: dict[str, object]) -> None:
    assert read_arguments(json_text(arguments)) == (arguments, None)


@given(st.text())
def test_what_a_model_writes_is_an_object_or_kept_as_it_came(text: str) -> None:
    arguments, malformed = read_arguments(text)

    assert malformed in (None, text)
    assert malformed is None or arguments == {}


@given(st.text())
def test_ids_fit_every_provider_and_stay_the_same(call_id: str) -> None:
    wire = wire_id(call_id)

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", wire)
    assert wire_id(wire) == wire
    assert wire_id(call_id) == wire
