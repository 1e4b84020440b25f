"""Histories of LlamaIndex and Haystack are sent as they are."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.agent.test_parted_messages import read, shown
from toolweave.models import ToolMessage, UserMessage

DATA = b"\x89PNG\r\n\x1a\n" + bytes(20)
PNG = base64.b64encode(DATA).decode()


def llama_index(role: str, *blocks: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Return a message as `ChatMessage.model_dump` of LlamaIndex 0.14 writes it."""
    return {"role": role, "additional_kwargs": options, "blocks": list(blocks)}


def text(value: str) -> dict[str, Any]:
    return {"block_type": "text", "text": value}


def called(key: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"block_type": "tool_call", "tool_call_id": key, "tool_name": name, "tool_kwargs": arguments}


def image(data: Any, url: str | None = None) -> dict[str, Any]:
    return {
        "block_type": "image",
        "image": data,
        "path": None,
        "url": url,
        "image_mimetype": "image/png",
        "detail": None,
    }


@pytest.mark.parametrize("picture", [image(PNG), image(PNG.encode()), image(None, f"data:image/png;base64,{PNG}")])
async def test_messages_of_llama_index_are_messages(picture: dict[str, Any]) -> None:
    document = {"block_type": "document", "data": PNG, "path": None, "title": "t", "document_mimetype": "text/csv"}
    sound = {"block_type": "audio", "audio": PNG, "path": None, "url": None, "format": "mp3"}
    cache = {"block_type": "cache", "cache_control": {"type": "ephemeral", "ttl": "5m"}}
    thinking = {"block_type": "thinking", "content": "hm", "num_tokens": None}
    history: list[Any] = [
        llama_index("user", text("look"), picture, document, sound, cache),
        llama_index("assistant", thinking, text("I look."), called("a", "f", {"n": 1}), called("b", "g", "{}")),
        llama_index("tool", text("sun"), picture, tool_call_id="a", name="f"),
        llama_index("tool", text("rain"), tool_call_id="b"),
        llama_index("assistant", text("done")),
    ]

    messages = await read(history)

    first = messages[0]
    results = messages[2]
    assert isinstance(first, UserMessage)
    assert [getattr(block, "mime_type", None) for block in first.content] == [
        None,
        "image/png",
        "text/csv",
        "audio/mpeg",
    ]
    assert isinstance(results, ToolMessage)
    assert [block.type for block in results.outcomes[0].result.content] == ["text", "image"]
    assert shown(messages) == [
        ("user", ["text", "image", "resource", "audio"]),
        ("thought", "hm"),
        ("text", "I look."),
        ("call", "a", "f", {"n": 1}),
        ("call", "b", "g", {}),
        ("result", "a", "f", results.outcomes[0].result.text, False),
        ("result", "b", "g", "rain", False),
        ("text", "done"),
    ]


CHAT_CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"n":1}'}}
TOOL_USE = {"id": "a", "type": "tool_use", "name": "f", "input": {"n": 1}}


@pytest.mark.parametrize("call", [CHAT_CALL, TOOL_USE])
@pytest.mark.parametrize("blocks", [(), (called("a", "f", {"n": 1}),)])
async def test_a_call_of_llama_index_in_both_places_is_one_call(
    call: dict[str, Any], blocks: tuple[dict[str, Any], ...]
) -> None:
    history: list[Any] = [
        "weather?",
        llama_index("assistant", *blocks, tool_calls=[call]),
        llama_index("tool", text("sun"), tool_call_id="a"),
    ]

    assert shown(await read(history))[1:] == [("call", "a", "f", {"n": 1}), ("result", "a", "f", "sun", False)]


async def test_messages_of_llama_index_before_0_12_have_one_text() -> None:
    history: list[Any] = [
        {"role": "user", "content": "weather?", "additional_kwargs": {}},
        {"role": "chatbot", "content": "", "additional_kwargs": {"tool_calls": [CHAT_CALL]}},
        {"role": "function", "content": "sun", "additional_kwargs": {"name": "f", "tool_call_id": "a"}},
        {"role": "model", "content": "It is sunny.", "additional_kwargs": {}},
    ]

    assert shown(await read(history)) == [
        ("user", ["text"]),
        ("call", "a", "f", {"n": 1}),
        ("result", "a", "f", "sun", False),
        ("text", "It is sunny."),
    ]


async def test_quotations_of_llama_index_are_the_texts_that_they_quote() -> None:
    citable = {"block_type": "citable", "title": "t", "source": "s", "content": [text("one"), text("two")]}
    citation = {"block_type": "citation", "cited_content": text("one"), "source": "s", "title": "t"}
    history: list[Any] = [llama_index("user", citable), llama_index("assistant", citation, text(" is first"))]

    assert shown(await read(history)) == [("user", ["text", "text"]), ("text", "one"), ("text", " is first")]


def haystack(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """Return a message as `ChatMessage.to_dict` of Haystack writes it."""
    return {"role": role, "meta": {}, "name": None, "content": list(parts)}


def private(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """Return a message as versions 2.9 to 2.11 of Haystack write it."""
    return {"_role": role, "_meta": {}, "_name": None, "_content": list(parts)}


def haystack_call(key: str | None, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"tool_name": name, "arguments": arguments, "id": key, "extra": None}


@dataclass
class HaystackMessage:
    """A message as the objects of Haystack are: a dataclass that can be converted to a dict."""

    message: dict[str, Any] = field(default_factory=dict[str, Any])

    def to_dict(self) -> dict[str, Any]:
        return self.message


def haystack_object(role: str, *parts: dict[str, Any]) -> HaystackMessage:
    return HaystackMessage(haystack(role, *parts))


@pytest.mark.parametrize("make", [haystack, private, haystack_object])
@pytest.mark.parametrize("keys", [("a", "b"), (None, None)])
async def test_messages_of_haystack_are_messages(make: Any, keys: tuple[str | None, str | None]) -> None:
    picture = {"image": {"base64_image": PNG, "mime_type": "image/png", "detail": None, "validation": True}}
    file = {"file": {"base64_data": PNG, "mime_type": "application/pdf", "filename": "a.pdf"}}
    one = haystack_call(keys[0], "f", {"n": 1})
    other = haystack_call(keys[1], "g", {})
    history: list[Any] = [
        make("user", {"text": "look"}, picture, file),
        make(
            "assistant",
            {"reasoning": {"reasoning_text": "hm", "extra": {}}},
            {"text": "I look."},
            {"tool_call": one},
            {"tool_call": other},
        ),
        make("tool", {"tool_call_result": {"result": "no", "origin": one, "error": True}}),
        make("tool", {"tool_call_result": {"result": [{"text": "sun"}, picture], "origin": other, "error": False}}),
        make("assistant", {"text": "done"}),
    ]

    messages = await read(history)

    results = messages[2]
    assert isinstance(results, ToolMessage)
    first, second = [outcome.call_id for outcome in results.outcomes]
    assert [block.type for block in results.outcomes[1].result.content] == ["text", "image"]
    assert shown(messages) == [
        ("user", ["text", "image", "resource"]),
        ("thought", "hm"),
        ("text", "I look."),
        ("call", first, "f", {"n": 1}),
        ("call", second, "g", {}),
        ("result", first, "f", "no", True),
        ("result", second, "g", results.outcomes[1].result.text, False),
        ("text", "done"),
    ]
    assert first != second
    if keys[0]:
        assert (first, second) == keys


async def test_a_message_of_haystack_with_one_text_is_a_message() -> None:
    history: list[Any] = [
        {"role": "user", "content": "hi", "name": None, "meta": {}},
        haystack("assistant", {"text": "hello"}),
    ]

    assert shown(await read(history)) == [("user", ["text"]), ("text", "hello")]


UNKNOWN: list[tuple[Any, str]] = [
    (llama_index("system", text("obey")), "'role' is 'system'"),
    (llama_index("developer", text("obey")), "'role' is 'developer'"),
    (llama_index("critic", text("hm")), "'role' is 'critic'"),
    (llama_index("user", image(None, "https://example.com/a.png")), r"'blocks\[0\]' is a file at a URL or a path"),
    (llama_index("user", {"block_type": "hologram"}), r"'blocks\[0\]' has the block type 'hologram'"),
    (llama_index("assistant", called("a", "", {}) | {"tool_name": None}), r"'name' of 'blocks\[0\]' is None"),
    (llama_index("tool", text("sun"), tool_call_id="z"), "have no call 'z'"),
    (haystack("system", {"text": "obey"}), "'role' is 'system'"),
    (private("system", {"text": "obey"}), "'role' is 'system'"),
    (haystack("assistant", {"tool_call": {"id": "a"}}), r"'name' of 'content\[0\]' is None"),
    (haystack("user", {"file": {"base64_data": PNG}}), r"'content\[0\]' is a file without a media type or data"),
    (haystack("tool", {"tool_call_result": {"result": [{"odd": 1}], "origin": {"tool_name": "f"}}}), "has 'odd'"),
]


@pytest.mark.parametrize(("entry", "words"), UNKNOWN)
async def test_an_unknown_form_is_an_error_that_names_the_part(entry: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        await read(["hi", entry])
