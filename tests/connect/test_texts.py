"""Requests as texts: each holds exactly the parameters that it was made from."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave import ToolError
from toolweave.connect._wire.request_encoder import request_text

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


@given(st.sampled_from(("tools/call", "prompts/get")), st.dictionaries(ODD_TEXTS, VALUES, max_size=4))
def test_a_request_holds_exactly_its_parameters(method: str, params: dict[str, Any]) -> None:
    sent = json.loads(request_text(7, method, params))
    assert sent == {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


@pytest.mark.parametrize("bad", [math.nan, [math.inf], {"deep": -math.inf}, object(), "\ud800"])
def test_a_value_that_json_cannot_hold_is_refused_in_each_call_and_costs_no_later_one(bad: object) -> None:
    for _ in range(2):
        with pytest.raises(ToolError, match=r"the parameters of tools/call are not JSON"):
            request_text(1, "tools/call", {"name": "t", "arguments": {"x": bad}})
        assert json.loads(request_text(1, "tools/call", {"name": "t"}))["params"] == {"name": "t"}


def test_members_that_a_caller_adds_and_changes_are_sent_as_they_are_at_that_moment() -> None:
    meta: dict[str, Any] = {}
    for number in range(4):
        meta["count"] = number
        sent = json.loads(request_text(1, "tools/call", {"name": "t", "arguments": {}, "_meta": meta}))
        assert sent["params"]["_meta"] == {"count": number}
