"""What a function returns becomes typed blocks, and nothing binary becomes text."""

from __future__ import annotations

import base64
import dataclasses
import enum
import io
import sys
import types
from pathlib import Path
from typing import Any

import pydantic
import pytest

from toolweave import ErrorKind, ImageContent, TextContent, ToolError, ToolResult, tool
from toolweave.tools import AudioContent, CallContext, EmbeddedResource, ResourceLink, ToolCall
from toolweave.tools.media import LARGEST, File

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
PDF = b"%PDF-1.7 \xff"


def only(value: Any) -> Any:
    """Return the one block of a value's result."""
    (block,) = ToolResult.of(value).content
    return block


@pytest.mark.requirement("C18", "R56")
@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"GIF89a\1\0", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"\0\0\0\x1cftypavif\0\0", "image/avif"),
    ],
)
def test_the_bytes_of_an_image_are_an_image(data: bytes, mime_type: str) -> None:
    block = only(data)

    assert isinstance(block, ImageContent)
    assert (block.decode(), block.mime_type) == (data, mime_type)


@pytest.mark.requirement("C18")
@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"ID3\4\0", "audio/mpeg"),
        (b"\xff\xfb\x90\0", "audio/mpeg"),
        (b"OggS\0", "audio/ogg"),
        (b"fLaC\0", "audio/flac"),
        (b"\0\0\0\x1cftypM4A \0", "audio/mp4"),
    ],
)
def test_the_bytes_of_a_sound_are_audio(data: bytes, mime_type: str) -> None:
    block = only(data)

    assert isinstance(block, AudioContent)
    assert (block.decode(), block.mime_type) == (data, mime_type)


@pytest.mark.requirement("C18")
@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        (PDF, "application/pdf"),
        (b"\0\1\2", "application/octet-stream"),
        (b"RIFF\0\0\0\0AVI ", "application/octet-stream"),
        (b"\0\0\0\x1cftypisom", "application/octet-stream"),
        (b"only text", "application/octet-stream"),
        (b"", "application/octet-stream"),
    ],
)
def test_other_bytes_are_an_embedded_resource_named_by_their_digest(data: bytes, mime_type: str) -> None:
    block, again, other = only(data), only(data), only(data + b"!")

    assert isinstance(block, EmbeddedResource)
    assert (block.decode(), block.mime_type, block.text) == (data, mime_type, None)
    assert block.uri == again.uri != other.uri
    assert block.uri.startswith("ni:///sha-256;")


@pytest.mark.parametrize("data", [bytearray(PNG), memoryview(PNG)], ids=["bytearray", "memoryview"])
def test_every_kind_of_bytes_is_the_same(data: Any) -> None:
    assert only(data) == only(PNG)


@pytest.mark.requirement("C18")
def test_a_path_of_a_file_is_what_is_in_it(tmp_path: Path) -> None:
    picture, page, program = tmp_path / "a.png", tmp_path / "a.md", tmp_path / "tool"
    picture.write_bytes(PNG)
    page.write_text("# Grüße", encoding="utf-8")
    program.write_bytes(b"\x7fELF\0\xff")

    assert only(picture) == ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")
    assert only(page) == EmbeddedResource(uri=page.as_uri(), mime_type="text/markdown", text="# Grüße")
    assert only(program).mime_type == "application/octet-stream"
    assert only(program).decode() == b"\x7fELF\0\xff"


def test_a_file_of_unknown_name_is_known_by_its_first_bytes_or_is_text(tmp_path: Path) -> None:
    picture, note = tmp_path / "picture", tmp_path / "note"
    picture.write_bytes(PNG)
    note.write_text("hello", encoding="utf-8")

    assert only(picture).mime_type == "image/png"
    assert (only(note).mime_type, only(note).text) == ("text/plain", "hello")


def test_a_path_of_no_file_and_paths_in_a_list_are_paths(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("secret", encoding="utf-8")

    assert ToolResult.of(tmp_path).structured_content == str(tmp_path)
    assert ToolResult.of(tmp_path / "none").structured_content == str(tmp_path / "none")
    assert ToolResult.of(tmp_path / ("x" * 300)).structured_content == str(tmp_path / ("x" * 300))
    assert ToolResult.of([tmp_path / "a.txt"]).structured_content == [str(tmp_path / "a.txt")]
    assert ToolResult.of([tmp_path / "a.txt", PNG]).content[0] == TextContent(text=str(tmp_path / "a.txt"))


@pytest.mark.requirement("C18")
def test_a_file_says_what_bytes_or_a_path_do_not_say(tmp_path: Path) -> None:
    odd = tmp_path / "data.bin"
    odd.write_bytes(b'{"a": 1}')

    assert only(File(b"\0\1", mime_type="audio/L16")) == AudioContent(data="AAE=", mime_type="audio/L16")
    assert only(File(str(odd), mime_type="application/json", uri="data://a")) == EmbeddedResource(
        uri="data://a", mime_type="application/json", text='{"a": 1}'
    )
    assert only(File(b"<svg/>", mime_type="image/svg+xml", uri="x:y")).text == "<svg/>"
    assert only(File(b"\xff", mime_type="text/plain", uri="x:y")).blob == "/w=="


def test_a_file_that_is_not_there_or_too_large_is_an_error_that_names_it(tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(LARGEST + 1)

    with pytest.raises(FileNotFoundError):
        ToolResult.of(File(tmp_path / "none"))
    with pytest.raises(ToolError, match=r"large\.bin") as refused:
        ToolResult.of(large)
    assert refused.value.kind is ErrorKind.TOO_LARGE


class _Image:
    """What Pillow's `Image` shows to those who save it."""

    def __init__(self, mode: str = "RGB", format: str | None = None) -> None:
        self.mode = mode
        self.format = format

    def convert(self, mode: str) -> _Image:
        return type(self)(mode, self.format)

    def save(self, file: io.BytesIO, format: str) -> None:
        head = {"PNG": b"\x89PNG\r\n\x1a\n", "JPEG": b"\xff\xd8\xff"}[format]
        file.write(head + self.mode.encode())


@pytest.fixture
def image_type() -> type[_Image]:
    """Pillow's class by its name, without Pillow."""
    return types.new_class("Image", (_Image,), exec_body=lambda body: body.update(__module__="PIL.Image"))


@pytest.mark.requirement("C18")
@pytest.mark.parametrize(
    ("mode", "format", "mime_type", "saved"),
    [
        ("RGB", None, "image/png", b"RGB"),
        ("RGB", "JPEG", "image/jpeg", b"RGB"),
        ("RGBA", "JPEG", "image/png", b"RGBA"),
        ("CMYK", None, "image/png", b"RGB"),
        ("La", None, "image/png", b"LA"),
        ("I", "TIFF", "image/png", b"I;16"),
    ],
)
def test_an_image_of_pillows_is_an_image(
    image_type: type[_Image], mode: str, format: str | None, mime_type: str, saved: bytes
) -> None:
    drawn = types.new_class("PngImageFile", (image_type,))(mode, format)

    block = only(drawn)

    assert isinstance(block, ImageContent)
    assert block.mime_type == mime_type
    assert block.decode().endswith(saved)
    assert only([drawn]) == block


def test_something_else_called_image_is_not_a_picture_and_has_no_json() -> None:
    with pytest.raises(ToolError, match="the type '_Image' has no form in JSON"):
        ToolResult.of(_Image())


def test_nothing_is_imported_for_images() -> None:
    only(PNG)

    assert "PIL" not in sys.modules


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Model(pydantic.BaseModel):
    point: int = 1


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.requirement("R54", "R84", "C18")
@pytest.mark.parametrize(
    ("value", "structured", "text"),
    [
        (None, None, "null"),
        (True, True, "true"),
        (1.5, 1.5, "1.5"),
        ([], [], "[]"),
        ([1, "a", None], [1, "a", None], '[1, "a", null]'),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, '{"a": {"b": 1}}'),
        (Point(1, 2), {"x": 1, "y": 2}, '{"x": 1, "y": 2}'),
        ([Point(1, 2)], [{"x": 1, "y": 2}], '[{"x": 1, "y": 2}]'),
        (Model(), {"point": 1}, '{"point": 1}'),
        (Colour.RED, "red", "red"),
        ({"data": b"AB"}, {"data": "QUI="}, '{"data": "QUI="}'),
    ],
)
def test_every_other_value_is_data_with_its_json_as_text(value: Any, structured: Any, text: str) -> None:
    result = ToolResult.of(value)

    assert (result.structured_content, result.text) == (structured, text)


@pytest.mark.requirement("C16")
def test_a_list_with_content_in_it_is_content_from_its_first_item_to_its_last() -> None:
    link = ResourceLink(uri="file:///a", name="a")

    result = ToolResult.of(["look:", PNG, link, {"n": 1}, [b"\0"], ToolResult.of("and"), Model()])

    assert [block.type for block in result.content] == [
        "text",
        "image",
        "resource_link",
        "text",
        "resource",
        "text",
        "text",
    ]
    assert result.text.splitlines()[3] == '{"n": 1}'
    assert result.structured_content is None


@pytest.mark.requirement("R84")
async def test_a_tool_may_say_that_it_returns_bytes_a_path_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")

    @tool
    def raw() -> bytes:
        return PNG

    @tool
    def path() -> Path:
        return tmp_path / "a.txt"

    @tool
    def file() -> File:
        return File(b"a", mime_type="text/plain")

    assert [one.spec.output_schema for one in (raw, path, file)] == [None, None, None]
    results = [await one.toolset.call(ToolCall(name=one.name), CallContext()) for one in (raw, path, file)]
    assert [result.content[0].type for result in results] == ["image", "resource", "resource"]
