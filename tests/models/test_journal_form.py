"""What is kept of a conversation is what is read again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolweave.errors import ErrorKind, StoreError, ToolError
from toolweave.models import (
    AssistantMessage,
    Finished,
    Message,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    Usage,
    UserMessage,
)
from toolweave.models._serialization import (
    message_from_json,
    messages_from_json,
    messages_to_json,
    result_from_json,
    result_to_json,
    turn_from_json,
    turn_to_json,
    usage_from_json,
    usage_to_json,
)
from toolweave.protocol.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    UnknownContent,
)
from toolweave.tools import ToolResult

texts = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates included
maybe = st.none() | texts
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(texts, json_values, max_size=3)
common = {"annotations": st.none() | objects, "meta": objects}
blocks: st.SearchStrategy[Any] = st.one_of(
    st.builds(TextContent, text=texts, **common),
    st.builds(ImageContent, data=texts, mime_type=texts, **common),
    st.builds(AudioContent, data=texts, mime_type=texts, **common),
    st.builds(ResourceLink, uri=texts, name=texts, title=maybe, size=st.none() | st.integers(), **common),
    st.builds(EmbeddedResource, uri=texts, mime_type=maybe, text=maybe, blob=maybe, **common),
    st.builds(UnknownContent, type=texts, raw=objects, **common),
)
errors = st.builds(
    ToolError,
    texts,
    kind=st.sampled_from(ErrorKind),
    code=st.none() | st.integers() | texts,
    retryable=st.booleans(),
    data=json_values,
)
results = st.builds(
    ToolResult,
    content=st.lists(blocks, max_size=3).map(tuple),
    structured_content=json_values,
    is_error=st.booleans(),
    error=st.none() | errors,
    meta=objects,
)
parts: st.SearchStrategy[Any] = st.one_of(
    st.builds(TextPart, text=texts),
    st.builds(ThinkingPart, text=texts, raw=st.none() | objects, provider=maybe),
    st.builds(ToolCallPart, id=texts, name=texts, arguments=objects, malformed=maybe),
    st.builds(ProviderPart, provider=texts, raw=objects),
)
assistants = st.builds(AssistantMessage, parts=st.lists(parts, max_size=4).map(tuple))
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, content=st.lists(blocks, max_size=3).map(tuple)),
    assistants,
    st.builds(
        ToolMessage,
        outcomes=st.lists(st.builds(ToolOutcome, call_id=texts, name=texts, result=results), max_size=2).map(tuple),
    ),
)
usages = st.builds(
    Usage,
    input_tokens=st.integers(0),
    output_tokens=st.integers(0),
    cached_tokens=st.integers(0),
    cost=st.none() | st.floats(0, 10),
)
turns = st.builds(
    Finished,
    message=assistants,
    usage=usages,
    stop_reason=st.sampled_from(["end", "tool_calls", "max_tokens", "refusal", "pause", "other"]),
)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.slow
@pytest.mark.requirement("D17", "D18")
@settings(deadline=None)
@given(conversation=st.lists(messages, max_size=4))
def test_a_conversation_is_read_as_it_was_written(conversation: list[Message]) -> None:
    assert messages_from_json(through_json(messages_to_json(conversation))) == tuple(conversation)


@pytest.mark.slow
@settings(deadline=None)
@given(turn=turns)
def test_a_turn_is_read_as_it_was_written(turn: Finished) -> None:
    assert turn_from_json(through_json(turn_to_json(turn))) == turn


@pytest.mark.slow
@settings(deadline=None)
@given(result=results)
def test_a_result_is_read_as_it_was_written(result: ToolResult) -> None:
    assert result_from_json(through_json(result_to_json(result))) == result


@settings(deadline=None)
@given(usage=usages)
def test_usage_is_read_as_it_was_written(usage: Usage) -> None:
    assert usage_from_json(through_json(usage_to_json(usage))) == usage


def test_a_block_of_an_unknown_type_keeps_all_that_it_held() -> None:
    raw = {"type": "hologram", "rays": [1, 2]}
    read = result_from_json(
        through_json(result_to_json(ToolResult(content=(UnknownContent(type="hologram", raw=raw),))))
    )

    assert read.content[0].type == "hologram"
    assert read.content[0].raw == raw


def test_an_unexpected_error_stays_one_that_a_server_may_mask() -> None:
    failed = ToolResult.failure(ToolError("division by zero", unexpected=True))
    read = result_from_json(through_json(result_to_json(failed)))

    assert read.require_error().unexpected
    assert read == failed


def test_what_has_no_form_in_json_never_makes_a_result_impossible_to_keep() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    odd = ToolResult(structured_content={"nan": float("nan"), 1: {2}, "deep": None}, meta={"deep": deep})
    read = result_from_json(through_json(result_to_json(odd)))

    assert read.structured_content == {"nan": None, "1": "{2}", "deep": None}
    assert str(read.meta["deep"]).count("[") == 100
    assert "nested too deeply" in str(read.meta["deep"])


def test_the_first_form_is_readable_for_good() -> None:
    kept: dict[str, Any] = {
        "role": "tool",
        "outcomes": [
            {
                "call_id": "c1",
                "name": "fs_read",
                "result": {
                    "content": [
                        {"type": "text", "text": "hi"},
                        {"type": "image", "data": "aGk=", "mime_type": "image/png"},
                    ],
                    "structured_content": {"a": 1},
                    "is_error": True,
                    "error": {"kind": "timeout", "code": None, "message": "late", "retryable": False},
                    "later": "members of later versions are passed over",
                },
            }
        ],
    }
    read = message_from_json(kept)

    assert isinstance(read, ToolMessage)
    assert read.outcomes[0].result == ToolResult(
        content=(TextContent(text="hi"), ImageContent(data="aGk=", mime_type="image/png")),
        structured_content={"a": 1},
        is_error=True,
        error=ToolError("late", kind=ErrorKind.TIMEOUT),
    )
    assert message_from_json({"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f"}]}) == (
        AssistantMessage(parts=(ToolCallPart(id="1", name="f"),))
    )


UNREADABLE: list[dict[str, Any]] = [
    {},
    {"role": "oracle"},
    {"role": "assistant", "parts": [{"type": "dream"}]},
    {"role": "user", "content": [{}]},
]


@pytest.mark.parametrize("kept", UNREADABLE)
def test_what_this_version_cannot_read_is_said_and_not_guessed(kept: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="a message in the store cannot be read by this version"):
        message_from_json(kept)
