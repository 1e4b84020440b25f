"""Requests as texts: what is encoded once for many calls must never be seen in them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave import ToolError
from toolweave.connect._session import Envelope
from toolweave.connect._wire.request_encoder import RequestEncoder, request_text

ODD_TEXTS = st.sampled_from(("t", 'a"b', '"arguments":null', "\\", "null", "é\n", '{"id":0}'))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | ODD_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS, inner, max_size=3),
    max_leaves=6,
)
METAS: tuple[Any, ...] = (
    None,
    Envelope({"k": {"v": 1}}),
    Envelope({"arguments": None, "name": '"arguments":null'}),
    {},
)
CALLS = st.tuples(
    st.sampled_from(("tools/call", "prompts/get")),
    ODD_TEXTS,
    st.dictionaries(ODD_TEXTS, VALUES, max_size=3),
    st.sampled_from(range(len(METAS))),
    st.sampled_from(((), ("task",), ("requestState",), ("_meta",))),
)


@pytest.mark.slow
@given(st.lists(CALLS, max_size=12))
def test_a_call_has_the_text_it_would_have_alone_whatever_was_called_before(calls: list[Any]) -> None:
    texts = RequestEncoder()
    for number, (method, name, arguments, meta, more) in enumerate(calls):
        params: dict[str, Any] = {"name": name, "arguments": arguments, **dict.fromkeys(more)}
        if METAS[meta] is not None:
            params["_meta"] = METAS[meta]
        assert texts.of(number, method, params) == request_text(number, method, params)


@pytest.mark.parametrize("params", [{}, {"name": 1, "arguments": {}}, {"name": [], "arguments": {}}, {"name": "t"}])
def test_odd_parameters_of_a_call_are_sent_as_they_are(params: dict[str, Any]) -> None:
    texts = RequestEncoder()
    for _ in range(3):
        assert json.loads(texts.of(1, "tools/call", params))["params"] == params


@pytest.mark.parametrize("bad", [math.nan, [math.inf], {"deep": -math.inf}, object(), "\ud800"])
def test_what_json_has_no_word_for_is_refused_in_every_call_alike(bad: object) -> None:
    texts = RequestEncoder()
    params: dict[str, Any] = {"name": "t", "arguments": {"x": 1}}
    for _ in range(3):
        with pytest.raises(ToolError, match=r"the parameters of tools/call are no JSON") as refused:
            texts.of(1, "tools/call", {**params, "arguments": {"x": bad}})
        with pytest.raises(ToolError) as alone:
            request_text(1, "tools/call", {**params, "arguments": {"x": bad}})
        assert str(refused.value) == str(alone.value)
        assert texts.of(1, "tools/call", params) == request_text(1, "tools/call", params)


def test_members_that_a_caller_adds_and_changes_are_sent_as_they_are_at_that_moment() -> None:
    texts = RequestEncoder()
    meta: dict[str, Any] = {}
    for number in range(4):
        meta["count"] = number
        sent = json.loads(texts.of(1, "tools/call", {"name": "t", "arguments": {}, "_meta": meta}))
        assert sent["params"]["_meta"] == {"count": number}
