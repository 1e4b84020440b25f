"""Results and blocks in the form of OpenAI's APIs, whatever a server calls an image."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from toolweave import ImageContent, TextContent, ToolResult
from toolweave.providers._media_parts import Media, shown
from toolweave.providers._openai_content import chat_parts, chat_text, responses_content, responses_parts
from toolweave.tools import AudioContent, ContentBlock, EmbeddedResource, ResourceLink


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


PNG = coded(b"\x89PNG\r\n\x1a\n....")
JPEG = coded(b"\xff\xd8\xff....")
PDF = coded(b"%PDF-1.7 ...")
WAV = coded(b"RIFF....WAVE....")


@pytest.mark.requirement("C17", "R56")
def test_media_that_an_api_takes_is_shown_under_the_type_of_its_bytes() -> None:
    blocks: list[ContentBlock] = [
        TextContent(text="see"),
        ImageContent(data=JPEG, mime_type="image/png"),
        EmbeddedResource(uri="file:///a/b/paper", blob=PDF),
        EmbeddedResource(uri="file:///pic", mime_type="application/octet-stream", blob=PNG),
    ]

    assert responses_parts(blocks) == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": f"data:image/jpeg;base64,{JPEG}", "detail": "auto"},
        {"type": "input_file", "filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
    ]
    assert chat_parts(blocks)[1:3] == [
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{JPEG}"}},
        {"type": "file", "file": {"filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
    ]


def test_a_sound_is_heard_where_it_can_be_and_a_note_elsewhere() -> None:
    sound = AudioContent(data=WAV, mime_type="audio/wav; codecs=1")

    assert chat_parts([sound]) == [{"type": "input_audio", "input_audio": {"data": WAV, "format": "wav"}}]
    assert responses_parts([sound]) == [{"type": "input_text", "text": "[audio: audio/wav; codecs=1, 16 B]"}]


@pytest.mark.requirement("C17", "D11")
@pytest.mark.parametrize(
    ("block", "note"),
    [
        (ImageContent(data="%%%", mime_type="image/png"), "[image: image/png, 2 B]"),
        (ImageContent(data="", mime_type="image/png"), "[image: image/png, 0 B]"),
        (ImageContent(data=coded(b"<svg/>"), mime_type="image/svg+xml"), "[image: image/svg+xml, 6 B]"),
        (AudioContent(data=coded(b"OggS"), mime_type="audio/ogg"), "[audio: audio/ogg, 4 B]"),
        (AudioContent(data="", mime_type="audio/wav"), "[audio: audio/wav, 0 B]"),
        (EmbeddedResource(uri="x:y", blob=coded(b"\0")), "[resource: x:y, application/octet-stream, 1 B]"),
        (EmbeddedResource(uri="x:y", text="the text"), "the text"),
        (ResourceLink(uri="x:y", name="paper"), "paper (x:y)"),
    ],
)
def test_what_an_api_would_refuse_is_a_visible_note(block: ContentBlock, note: str) -> None:
    assert list(shown([block])) == [note]
    assert chat_parts([block]) == [{"type": "text", "text": note}]


def test_blank_text_and_halves_of_surrogate_pairs_never_reach_a_request() -> None:
    assert responses_parts([TextContent(text=" \n"), TextContent(text="")]) == []
    assert responses_parts([TextContent(text="a\ud800b")]) == [{"type": "input_text", "text": "a\ufffdb"}]
    assert chat_text(ToolResult.of("name-\udcff")) == r"name-\udcff"


@pytest.mark.requirement("D18", "R55")
@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult.of("fine"), "fine"),
        (ToolResult.of(""), "(no output)"),
        (ToolResult(), "(no output)"),
        (ToolResult(structured_content={"x": "ü"}), '{"x": "ü"}'),
        (ToolResult.failure("it broke"), "Error: it broke"),
        (ToolResult.failure("error 3: it broke"), "error 3: it broke"),
        (ToolResult.failure("MCP error: gone"), "MCP error: gone"),
        (ToolResult(is_error=True), "Error: MCP tool execution error"),
        (ToolResult(is_error=True, content=(TextContent(text=" "),)), "Error: the tool failed and did not say why"),
    ],
)
def test_a_result_of_text_is_never_blank_and_an_error_says_that_it_is_one(result: ToolResult, text: str) -> None:
    assert chat_text(result) == text
    assert responses_content(result) == text


def test_an_error_with_an_image_says_that_it_is_one_before_it() -> None:
    image = ImageContent(data=PNG, mime_type="image/png")
    silent: Any = responses_content(ToolResult(is_error=True, content=(image,)))
    speaking: Any = responses_content(ToolResult(is_error=True, content=(TextContent(text="Error 5"), image)))

    assert [part["type"] for part in silent] == ["input_text", "input_image"]
    assert silent[0]["text"] == "Error:"
    assert [part.get("text") for part in speaking] == ["Error 5", None]


def test_media_gives_its_bytes_back() -> None:
    (media,) = shown([ImageContent(data=PNG, mime_type="image/png")])

    assert isinstance(media, Media)
    assert coded(media.decode()) == PNG
