"""Results: nothing is lost, and everything has a text."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from toolweave import ErrorKind, ImageContent, TextContent, ToolError, ToolResult
from toolweave.tools import AudioContent, ContentBlock, EmbeddedResource, ResourceLink, UnknownContent

DATA = base64.b64encode(b"x" * 2048).decode()


@pytest.mark.requirement("R53", "R56", "C16", "C17", "D11")
@pytest.mark.parametrize(
    "block, text",
    [
        (TextContent(text="line"), "line"),
        (ImageContent(data=DATA, mime_type="image/png"), "[image: image/png, 2.0 kB]"),
        (AudioContent(data="QUI=", mime_type="audio/wav"), "[audio: audio/wav, 2 B]"),
        (ResourceLink(uri="file:///a", name="a", title="The A"), "The A (file:///a)"),
        (ResourceLink(uri="file:///a", name="a"), "a (file:///a)"),
        (ResourceLink(uri="file:///a"), "resource (file:///a)"),
        (EmbeddedResource(uri="file:///a", text="inside"), "inside"),
        (
            EmbeddedResource(uri="file:///a", blob=DATA * 1000),
            "[resource: file:///a, application/octet-stream, 2.0 MB]",
        ),
        (EmbeddedResource(uri="file:///a", mime_type="x/y"), "[resource: file:///a, x/y, 0 B]"),
        (UnknownContent(type="hologram", raw={"type": "hologram"}), '[hologram] {"type": "hologram"}'),
    ],
)
def test_every_block_has_a_text_that_never_is_its_binary(block: ContentBlock, text: str) -> None:
    assert ToolResult(content=(block,)).text == text


@pytest.mark.requirement("R55")
def test_blocks_are_joined_by_lines() -> None:
    result = ToolResult(content=(TextContent(text="line 1"), TextContent(text="line 2")))

    assert result.text == "line 1\nline 2"


@pytest.mark.requirement("C17", "D11")
def test_structured_content_stands_in_when_there_are_no_blocks() -> None:
    assert ToolResult(structured_content={"a": [1]}).text == '{"a": [1]}'
    assert ToolResult().text == ""


def test_an_error_without_blocks_shows_its_message() -> None:
    assert ToolResult(is_error=True, error=ToolError("gone")).text == "gone"


@pytest.mark.requirement("D6")
def test_an_error_result_always_has_an_error() -> None:
    spoken = ToolResult(content=(TextContent(text="no such file"),), is_error=True)

    assert spoken.require_error() == ToolError("no such file")
    assert ToolResult(is_error=True).require_error().message == "MCP tool execution error"


@pytest.mark.requirement("R68", "R92")
def test_a_failure_can_be_made_of_a_text_or_an_error() -> None:
    plain = ToolResult.failure("no")
    kind = ToolResult.failure("no", kind=ErrorKind.TIMEOUT)
    error = ToolError("no", retryable=True)

    assert (plain.is_error, plain.text) == (True, "no")
    assert plain.require_error().kind is ErrorKind.EXECUTION_FAILED
    assert kind.require_error().kind is ErrorKind.TIMEOUT
    assert ToolResult.failure(error).error is error


@pytest.mark.parametrize(
    "block, content",
    [
        (ImageContent(data="QUI=", mime_type="image/png"), b"AB"),
        (AudioContent(data="QUI=", mime_type="audio/wav"), b"AB"),
        (EmbeddedResource(uri="a:b", blob="QUI="), b"AB"),
        (EmbeddedResource(uri="a:b", text="Ä"), "Ä".encode()),
        (EmbeddedResource(uri="a:b"), b""),
    ],
)
def test_binary_can_be_decoded(block: Any, content: bytes) -> None:
    assert block.decode() == content


def test_other_blocks_can_take_the_place_of_a_results_blocks() -> None:
    result = ToolResult(content=(), structured_content=1, meta={"a": 1}, raw={"r": 1})

    changed = result.replace_content([TextContent(text="x")])

    assert (changed.text, changed.structured_content, changed.meta, changed.raw) == ("x", 1, {"a": 1}, {"r": 1})


def test_what_json_does_not_know_goes_through_the_fallback() -> None:
    assert ToolResult.of({"a": object}, fallback=lambda item: "?").structured_content == {"a": "?"}
