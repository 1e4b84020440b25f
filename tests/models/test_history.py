"""Conversations as providers insist on them: every call answered once, directly after. And arguments as JSON."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from toolweave.models._history import pair_tool_calls
from toolweave.models._messages import (
    AssistantMessage,
    Message,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.tools import ToolResult
from toolweave.tools._arguments import json_text, read_arguments, wire_id

IDS = st.sampled_from("abcd")
CALLS = st.lists(IDS, unique=True, max_size=3).map(
    lambda ids: AssistantMessage(parts=(TextPart(text="t"), *(ToolCallPart(id=one, name="t") for one in ids)))
)
OUTCOMES = st.lists(IDS, max_size=3).map(
    lambda ids: ToolMessage(
        outcomes=tuple(ToolOutcome(call_id=one, name="t", result=ToolResult.of(one)) for one in ids)
    )
)
MESSAGES = st.lists(st.one_of(CALLS, OUTCOMES, st.just(UserMessage.of("u"))), max_size=8)


@given(MESSAGES)
def test_every_call_is_answered_once_directly_after_in_the_order_of_the_calls(messages: list[Message]) -> None:
    fixed = pair_tool_calls(messages)

    for message, following in pairwise([*fixed, None]):
        if isinstance(message, AssistantMessage) and message.tool_calls:
            assert isinstance(following, ToolMessage)
            assert [one.call_id for one in following.outcomes] == [call.id for call in message.tool_calls]
        else:
            assert not isinstance(following, ToolMessage)
    assert [one for one in fixed if isinstance(one, AssistantMessage)] == [
        one for one in messages if isinstance(one, AssistantMessage)
    ]


@given(MESSAGES)
def test_a_conversation_that_is_in_order_stays_as_it_is(messages: list[Message]) -> None:
    assert pair_tool_calls(pair_tool_calls(messages)) == pair_tool_calls(messages)


def test_an_outcome_without_its_call_is_told_as_text() -> None:
    stray = ToolOutcome(call_id="x", name="look", result=ToolResult.of("found"))

    assert pair_tool_calls([UserMessage.of("u"), ToolMessage(outcomes=(stray,))])[1] == UserMessage.of(
        "[result of an earlier call of 'look'] found"
    )


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


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
