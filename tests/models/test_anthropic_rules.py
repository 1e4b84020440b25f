"""The fake endpoint refuses what the real one refuses, and whatever a conversation is like, ours is taken."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.models.anthropic_rules import Refused, check, signature
from toolweave.models import AnthropicModel
from toolweave.models._anthropic_messages import wire_messages
from toolweave.models._messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.protocol.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from toolweave.tools import ToolResult

TOOL: dict[str, Any] = {"name": "add", "input_schema": {"type": "object", "properties": {}}}
CALL: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
RESULT: dict[str, Any] = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "2"}]}
IMAGE: dict[str, Any] = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}
GOOD: dict[str, Any] = {
    "model": "m",
    "max_tokens": 4096,
    "tools": [TOOL],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "hi"}, CALL]},
        {"role": "user", "content": [RESULT, {"type": "text", "text": "and?"}]},
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the good body with one member set, or taken out where the value is None."""
    body = copy.deepcopy(GOOD)
    *way, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    node: Any = body
    for step in way:
        node = node[step]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return body


def test_a_good_request_is_taken() -> None:
    check(GOOD)


REFUSALS: list[tuple[str, Any, str]] = [
    ("max_tokens", None, "max_tokens: Field required"),
    ("seed", 1, "Extra inputs"),
    ("temperature", 1.5, "temperature"),
    ("stop_sequences", [" "], "non-whitespace"),
    ("system", [{"type": "text", "text": ""}], "non-empty"),
    ("messages", [], "at least one message"),
    ("messages/0", None, 'must use the "user" role'),
    ("messages/1/role", "user", "roles must alternate"),
    ("messages/0/content", [], "non-empty content"),
    ("messages/0/content/0/text", "\n", "non-whitespace"),
    ("messages/2", None, "without `tool_result` blocks"),
    ("messages/2/content/0", None, "without `tool_result` blocks"),
    ("messages/2/content", [{"type": "text", "text": "and?"}, RESULT], "without `tool_result` blocks"),
    ("messages/2/content/0/tool_use_id", "toolu_9", "unexpected `tool_use_id`"),
    ("messages/1/content", [CALL, CALL], "without `tool_result`|must be unique"),
    ("messages/1/content/1/id", "a b", "pattern|unexpected"),
    ("messages/1/content/1/name", "a.b", "pattern"),
    ("messages/1/content/1/input", "{}", "dictionary"),
    ("messages/1/content/0", IMAGE, "does not match any of the expected tags"),
    ("messages/1/content/0", {"type": "thinking", "thinking": "a", "signature": "b"}, "Invalid `signature`"),
    ("messages/2/content/0", {**RESULT, "is_error": True, "content": []}, "cannot be empty"),
    ("messages/2/content/0", {**RESULT, "is_error": True, "content": [IMAGE]}, "must be type `text`"),
    ("messages/2/content/1", {**IMAGE, "source": {**IMAGE["source"], "media_type": "image/svg+xml"}}, "media_type"),
    ("messages/2/content/1", {**IMAGE, "source": {**IMAGE["source"], "media_type": "image/gif"}}, "does not match"),
    ("messages/2/content/1", {**IMAGE, "source": {**IMAGE["source"], "data": "?"}}, "invalid base64"),
    ("tools", None, "must define tools"),
    ("tools", [TOOL, TOOL], "names must be unique"),
    ("tools/0/name", "math.add", "pattern"),
    ("tools/0/name", "a" * 129, "pattern"),
    ("tools/0/input_schema", {}, "Input should be 'object'"),
    ("tools/0/input_schema", {"type": "object", "properties": {"a": {"type": "text"}}}, "draft 2020-12"),
    ("tools/0/input_schema", {"type": "object", "anyOf": [{}]}, "at the top level"),
    ("tools/0/input_schema", {"type": "object", "properties": {"a b": {}}}, "Property keys"),
    ("tools/0/defer_loading", True, "At least one tool"),
    ("tool_choice", {"type": "tool", "name": "gone"}, "not found"),
    ("thinking", {"type": "enabled", "budget_tokens": 5000}, "budget_tokens"),
    ("thinking", {"type": "enabled", "budget_tokens": 2000}, "Expected `thinking`"),
]


@pytest.mark.parametrize(("path", "value", "words"), REFUSALS)
def test_the_fake_refuses_what_the_real_api_refuses(path: str, value: Any, words: str) -> None:
    with pytest.raises(Refused, match=words):
        check(changed(path, value))


names = st.sampled_from(["add", "math.add", "gehört", "a" * 200, "web_search"])
ids = st.sampled_from(["toolu_1", "toolu_2", "call 3", "ü", "x" * 90])
media = st.sampled_from(["iVBORw0KGgo=", base64.b64encode(b"%PDF-1.7").decode(), "R0lGODlh", "broken", ""])
mime_types = st.sampled_from(["image/png", "image/svg+xml", "application/pdf", "audio/wav", ""])
content: st.SearchStrategy[ContentBlock] = st.one_of(
    st.builds(TextContent, text=st.text(max_size=5)),
    st.builds(ImageContent, data=media, mime_type=mime_types),
    st.builds(AudioContent, data=media, mime_type=mime_types),
    st.builds(ResourceLink, uri=st.just("x:/y"), name=st.text(max_size=3)),
    st.builds(EmbeddedResource, uri=st.sampled_from(["", "x:/y"]), mime_type=mime_types, blob=media),
    st.builds(EmbeddedResource, uri=st.just("x:/y"), text=st.text(max_size=5)),
)
results = st.builds(
    ToolResult,
    content=st.lists(content, max_size=3).map(tuple),
    is_error=st.booleans(),
    structured_content=st.sampled_from([None, {"a": 1}]),
)
OWN = ThinkingPart(
    text="hm", raw={"type": "thinking", "thinking": "hm", "signature": signature("hm")}, provider="anthropic"
)
STEP = ProviderPart(
    provider="anthropic", raw={"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
)
FOREIGN = ThinkingPart(text="hm", raw={"type": "reasoning"}, provider="openai")
other_parts: st.SearchStrategy[AssistantPart] = st.one_of(
    st.builds(TextPart, text=st.text(max_size=5)), st.sampled_from([OWN, STEP, FOREIGN])
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Messages of any kind in any order; the ids of calls are unique, as the conversation's contract says."""
    unused = set(draw(st.lists(ids, unique=True)))
    messages: list[Message] = []
    for kind in draw(st.lists(st.sampled_from("uat"), min_size=1, max_size=8)):
        if kind == "u":
            messages.append(UserMessage(content=tuple(draw(st.lists(content, max_size=3)))))
        elif kind == "t":
            outcomes = st.builds(ToolOutcome, call_id=ids, name=names, result=results)
            messages.append(ToolMessage(outcomes=tuple(draw(st.lists(outcomes, max_size=3)))))
        else:
            parts = draw(st.lists(other_parts, max_size=2))
            calls = sorted(unused)[: draw(st.integers(0, 2))]
            unused -= set(calls)
            parts += [ToolCallPart(id=one, name=draw(names), arguments={"a": 1}) for one in calls]
            messages.append(AssistantMessage(parts=tuple(parts)))
    return messages


# what a conversation is drawn from is large, and how fast that goes is the machine's affair
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(conversations())
def test_every_conversation_is_written_as_the_api_insists_on_it(messages: list[Message]) -> None:
    wire = wire_messages([*messages, UserMessage.of("and?")], AnthropicModel("m", "key").wire_tools(()))

    check({"model": "m", "max_tokens": 1, "messages": wire, "tools": [TOOL]})
