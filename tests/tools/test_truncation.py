"""How one result is cut: its texts together, its binary blocks apart, within the bound whatever it holds."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave import ImageContent, TextContent, ToolError, ToolResult
from toolweave.tools import AudioContent, EmbeddedResource, ResourceLink, ResultPolicy
from toolweave.tools._truncation import fitted

SMALL = ResultPolicy(max_chars=1000)


def test_a_short_result_is_left_as_it_is() -> None:
    result = ToolResult.of({"a": 1})

    assert fitted(result, SMALL)[0] is result


def test_links_texts_and_resources_count_together_and_images_stay_images() -> None:
    image = ImageContent(data=base64.b64encode(b"x" * 3000).decode(), mime_type="image/png")
    result = ToolResult(
        content=(
            TextContent(text="a" * 600),
            image,
            EmbeddedResource(uri="file:///b", text="b" * 600),
            ResourceLink(uri="file:///c", name="c"),
        )
    )

    shown, whole = fitted(result, SMALL, result_id="r")

    assert whole is not None
    assert len(whole) > 1200
    assert [type(block) for block in shown.content] == [TextContent, ImageContent]
    assert shown.content[1] is image
    assert shown.text.count("x") < 10


@pytest.mark.parametrize("kind", ["image", "audio", "blob"])
def test_binary_that_is_too_large_becomes_a_note_and_never_text(kind: str) -> None:
    data = base64.b64encode(bytes(3000)).decode()
    block = {
        "image": ImageContent(data=data, mime_type="image/png"),
        "audio": AudioContent(data=data, mime_type="audio/wav"),
        "blob": EmbeddedResource(uri="file:///b", blob=data),
    }[kind]

    shown, _ = fitted(ToolResult(content=(block,)), ResultPolicy(max_chars=1000, max_binary=2000))
    kept, _ = fitted(ToolResult(content=(block,)), ResultPolicy(max_chars=1000, max_binary=4000))

    assert data[:20] not in shown.text
    assert "left out: larger than 2,000 bytes" in shown.text
    assert kept.content == (block,)


def test_structured_content_alone_is_cut_as_its_text() -> None:
    shown, whole = fitted(ToolResult(structured_content=["word"] * 1000), SMALL)

    assert len(shown.text) <= 1000
    assert whole is not None


def test_an_error_stays_an_error_when_it_is_cut() -> None:
    shown, _ = fitted(ToolResult.failure(ToolError("x" * 5000)), SMALL)

    assert shown.is_error
    assert len(shown.text) <= 1000


@given(text=st.text(max_size=5000), size=st.integers(400, 2000), head=st.floats(0, 1))
def test_whatever_the_text_it_is_within_the_bound_and_begins_and_ends_as_it_did(
    text: str, size: int, head: float
) -> None:
    result = ToolResult(content=(TextContent(text=text),))
    shown, whole = fitted(result, ResultPolicy(max_chars=size, head=head), result_id="call_1")
    text = result.for_model().text

    assert len(shown.text) <= size
    if whole is None:
        assert shown.text == text
    else:
        assert whole == text
        before, _, after = shown.text.partition("\n[... ")
        assert text.startswith(before)
        assert text.endswith(after.partition(" ...]\n")[2])


def test_a_text_that_cannot_be_kept_is_not_promised() -> None:
    shown, whole = fitted(ToolResult.of("x" * 5000), ResultPolicy(max_chars=1000, keep_chars=4000), result_id="r")

    assert whole is not None
    assert "read_tool_result" not in shown.text


def test_a_cut_result_is_measured_as_the_model_is_given_it() -> None:
    result = ToolResult(content=(TextContent(text="\U000e0041" * 900),))

    shown, _ = fitted(result, ResultPolicy(max_chars=1000))

    assert len(shown.for_model().text) <= 1000
