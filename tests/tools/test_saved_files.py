"""Binary content of results as files, with links in its place."""

from __future__ import annotations

import base64
import errno
import logging
import os
from pathlib import Path
from urllib.request import url2pathname

import pytest

from toolweave import ImageContent, TextContent, ToolResult, tool
from toolweave.tools import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ResourceLink,
    as_toolset,
    files_saved,
    save_files,
)

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
USER = {"audience": ["user"]}


def everything() -> ToolResult:
    """Return content of every kind."""
    return ToolResult(
        content=(
            TextContent(text="see"),
            ImageContent(data=PNG, mime_type="image/png", annotations=USER),
            AudioContent(data="QUI=", mime_type="../../evil"),
            EmbeddedResource(uri="file:///../../etc/passwd", blob="QUI=", mime_type="application/pdf"),
            EmbeddedResource(uri="file:///a", text="text"),
            ImageContent(data="%%%", mime_type="image/png"),
        ),
        structured_content={"n": 1},
    )


def links(result: ToolResult) -> list[ResourceLink]:
    return [block for block in result.content if isinstance(block, ResourceLink)]


def target(link: ResourceLink) -> Path:
    return Path(url2pathname(link.uri.removeprefix("file://")))


@pytest.mark.parametrize(
    "name", ["shots", "../../up", "/etc/passwd", "a/../b\\c", "CON.", "\x00", "é" * 300, "日本", ""]
)
def test_files_lie_in_the_folder_whatever_a_server_calls_its_tool(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "deep" / "saved"
    saved = save_files(everything(), folder, stem=name)

    assert [block.type for block in saved.content] == ["text", *["resource_link"] * 3, "resource", "image"]
    assert {target(link).parent for link in links(saved)} == {folder}
    assert sorted(folder.iterdir()) == sorted(map(target, links(saved)))
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_saved_files_are_named_by_us_and_typed_by_a_short_list(tmp_path: Path) -> None:
    data = base64.b64encode(b"bytes").decode()
    blocks: list[ContentBlock] = [
        ImageContent(data=data, mime_type="image/PNG; charset=x"),
        ImageContent(data=data, mime_type="application/x-sh"),
        AudioContent(data=data, mime_type="audio/mpeg"),
        EmbeddedResource(uri="file:///../../etc/passwd", mime_type="application/pdf", blob=data),
        EmbeddedResource(uri="u", text="printed, not saved"),
        ImageContent(data="no base64!", mime_type="image/png"),
        TextContent(text="x"),
    ]

    made = save_files(ToolResult(content=tuple(blocks)), tmp_path, stem="../../evil name").content
    saved = [target(one) if isinstance(one, ResourceLink) else None for one in made]

    assert [path.name if path else None for path in saved] == [
        "evil-name-1.png",
        "evil-name-1.bin",
        "evil-name-1.mp3",
        "evil-name-1.pdf",
        *(None, None, None),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in saved if path)


def test_a_link_says_what_it_links_to_and_for_whom(tmp_path: Path) -> None:
    picture, sound, document = links(saved := save_files(everything(), tmp_path, stem="shots"))

    assert (picture.name, picture.mime_type, picture.size, picture.annotations) == (
        "shots-1.png",
        "image/png",
        12,
        USER,
    )
    assert target(picture).read_bytes() == base64.b64decode(PNG)
    assert (sound.name, document.name) == ("shots-1.bin", "shots-1.pdf")
    assert saved.structured_content == {"n": 1}


def test_no_file_is_touched_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "result-1.png").write_text("mine")
    (tmp_path / "result-2.png").symlink_to(tmp_path / "victim")

    (link, *_) = links(save_files(everything(), tmp_path))

    assert link.name == "result-3.png"
    assert (tmp_path / "result-1.png").read_text() == "mine"
    assert not (tmp_path / "victim").exists()


def test_a_file_system_without_hard_links_is_as_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    (tmp_path / "result-1.png").write_text("mine")

    (link, *_) = links(save_files(everything(), tmp_path))

    assert target(link).read_bytes() == base64.b64decode(PNG)
    names = ["result-1.bin", "result-1.pdf", "result-1.png", "result-2.png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_what_is_too_large_stays_as_it_is(tmp_path: Path) -> None:
    result = save_files(everything(), tmp_path, max_bytes=11)

    assert [link.size for link in links(result)] == [2, 2]
    assert isinstance(result.content[1], ImageContent)


async def test_every_result_of_a_toolset_is_saved(tmp_path: Path) -> None:
    tools = files_saved(as_toolset([tool(everything, name="shoot"), tool(lambda: "text", name="say")]), tmp_path)

    assert [link.name for link in links(await tools.execute("shoot"))] == ["shoot-1.png", "shoot-1.bin", "shoot-1.pdf"]
    assert (await tools.execute("say")) == ToolResult.of("text")


async def test_a_folder_that_cannot_be_written_to_does_not_make_the_call_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    tools = files_saved(as_toolset([everything]), tmp_path / "file")

    with caplog.at_level(logging.WARNING, "toolweave.tools"):
        result = await tools.execute("everything")

    assert result == everything()
    assert "is not saved" in caplog.text
