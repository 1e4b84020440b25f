"""Content blocks are read from JSON and written as JSON in one form, that of the MCP specification."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.protocol.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    UnknownContent,
    block_json,
    content_block,
)

RAW: Mapping[str, Any] = {"type": "text", "text": "x", "vendor": None}
LINK = ResourceLink(uri="u", name="n", title="T", description="d", mime_type="text/plain", size=3)
LINKED = {"uri": "u", "name": "n", "title": "T", "description": "d", "mimeType": "text/plain", "size": 3}

texts = st.text(max_size=20)
encoded = st.binary(max_size=20).map(lambda data: base64.b64encode(data).decode())
common = {
    "annotations": st.none() | st.dictionaries(texts, texts, max_size=2),
    "meta": st.dictionaries(texts, texts, max_size=2),
}
blocks = st.one_of(
    st.builds(TextContent, text=texts, **common),
    st.builds(ImageContent, data=encoded, mime_type=texts, **common),
    st.builds(AudioContent, data=encoded, mime_type=texts, **common),
    st.builds(
        ResourceLink,
        uri=texts,
        name=st.text(min_size=1, max_size=20),
        title=st.none() | texts,
        size=st.none() | st.integers(0, 2**53),
        **common,
    ),
    st.builds(EmbeddedResource, uri=texts, mime_type=st.none() | texts, text=texts, **common),
    st.builds(EmbeddedResource, uri=texts, mime_type=st.none() | texts, blob=encoded, **common),
)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (TextContent(text="x", raw=RAW), RAW),
        (TextContent(text="x"), {"type": "text", "text": "x"}),
        (
            TextContent(text="x", annotations={"priority": 1}, meta={"a": 1}),
            {"type": "text", "text": "x", "annotations": {"priority": 1}, "_meta": {"a": 1}},
        ),
        (ImageContent(data="eA==", mime_type="a/b"), {"type": "image", "data": "eA==", "mimeType": "a/b"}),
        (AudioContent(data="eA==", mime_type="a/b"), {"type": "audio", "data": "eA==", "mimeType": "a/b"}),
        (ResourceLink(uri="u", name="n"), {"type": "resource_link", "uri": "u", "name": "n"}),
        (LINK, {"type": "resource_link", **LINKED}),
        (EmbeddedResource(uri="u", text="x"), {"type": "resource", "resource": {"uri": "u", "text": "x"}}),
        (UnknownContent(type="video", raw={"type": "video", "x": 1}), {"type": "video", "x": 1}),
    ],
)
def test_a_block_is_json_in_the_specifications_shape(block: ContentBlock, expected: Mapping[str, Any]) -> None:
    assert block_json(block) == expected


def test_a_block_of_an_unknown_type_that_was_made_here_becomes_a_visible_note() -> None:
    assert block_json(UnknownContent(type="hologram")) == {
        "type": "text",
        "text": "[hologram: content this version cannot show]",
    }


@given(blocks)
def test_a_block_survives_being_written_and_read(block: ContentBlock) -> None:
    assert content_block(block_json(block)) == block


@given(
    st.dictionaries(
        st.sampled_from(["annotations", "_meta", "vendor"]),
        st.none() | st.just(1) | st.just({"audience": ["user"]}),
    )
)
def test_a_block_of_text_keeps_its_members_whichever_others_stand_beside_them(members: dict[str, Any]) -> None:
    block = content_block({"type": "text", "text": "x", **members})
    kept = {"audience": ["user"]}

    assert isinstance(block, TextContent)
    assert block.text == "x"
    assert block.annotations == (kept if members.get("annotations") == kept else None)
    assert block.meta == (kept if members.get("_meta") == kept else {})
    assert block.raw == {"type": "text", "text": "x", **members}


@pytest.mark.parametrize("kind", [None, 1, "hologram", ["text"], {}])
def test_a_block_of_no_known_type_is_kept_whole(kind: object) -> None:
    block = content_block({"type": kind, "text": "x"})

    assert isinstance(block, UnknownContent)
    assert (block.type, block.raw) == (str(kind), {"type": kind, "text": "x"})


@pytest.mark.slow
@given(blocks)
def test_a_block_that_was_read_is_written_as_it_came(block: ContentBlock) -> None:
    written = block_json(block) | {"vendor": {"kept": [None]}}

    assert block_json(content_block(written)) == written
