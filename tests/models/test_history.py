"""Conversations as providers insist on them: every call answered once, directly after."""

from __future__ import annotations

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
