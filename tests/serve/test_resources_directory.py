"""Files below a directory as resources, and nothing outside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.serve.carriers import EACH_CARRIER, connected
from tests.serve.lines import Peer
from toolweave import ProtocolError
from toolweave.errors import RequestError
from toolweave.serve import McpServer, create_mcp_server, directory

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with files, beside a secret."""
    root = tmp_path / "docs"
    (root / "deep" / "er").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "readme.md").write_text("# Read me", encoding="utf-8")
    (root / "deep" / "er" / "pic.png").write_bytes(PNG)
    (root / "deep" / "50% of é.txt").write_text("half", encoding="utf-8")
    (root / ".env").write_text("TOKEN=hunter2", encoding="utf-8")
    (root / ".git" / "config").write_text("hunter2", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("hunter2", encoding="utf-8")
    (tmp_path / "docs-private").mkdir()
    (tmp_path / "docs-private" / "a.txt").write_text("hunter2", encoding="utf-8")
    return root


def make(root: Path, **options: Any) -> McpServer:
    return create_mcp_server(name="files", version="1", resources=directory(root, uri="docs://", **options))


async def names(server: McpServer) -> Sequence[str]:
    found = await server.endpoint.answer(Peer().request("resources/list"))
    return [one["name"] for one in found["resources"]]


async def read(server: McpServer, uri: str) -> dict[str, Any]:
    found = await server.endpoint.answer(Peer().request("resources/read", uri=uri))
    (content,) = found["contents"]
    return content


async def refused(server: McpServer, uri: str) -> None:
    with pytest.raises(RequestError) as refusal:
        await read(server, uri)
    assert (refusal.value.code, refusal.value.data) == (-32602, {"uri": uri})


@EACH_CARRIER
async def test_the_files_below_a_directory_are_listed_in_order_and_read(root: Path, carrier: str, era: str) -> None:
    async with connected(make(root, description="The papers."), carrier, era) as connection:
        listed = await connection.list_resources()
        (template,) = await connection.list_resource_templates()
        contents = [(await connection.read_resource(one.uri))[0] for one in listed]
        with pytest.raises(ProtocolError):
            await connection.read_resource("docs://../secret.txt")

    assert [(one.uri, one.name, one.mime_type, one.size) for one in listed] == [
        ("docs://deep/50%25%20of%20%C3%A9.txt", "deep/50% of é.txt", "text/plain", 4),
        ("docs://deep/er/pic.png", "deep/er/pic.png", "image/png", 8),
        ("docs://readme.md", "readme.md", "text/markdown", 9),
    ]
    assert all("lastModified" in one.raw["annotations"] for one in listed)
    assert (template.uri_template, template.name, template.description) == ("docs://{+path}", "docs", "The papers.")
    assert [(one.uri, one.text) for one in contents] == [
        (listed[0].uri, "half"),
        (listed[1].uri, None),
        (listed[2].uri, "# Read me"),
    ]
    assert contents[1].decode() == PNG


@pytest.mark.requirement("R101")
@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "deep/../../secret.txt",
        "deep/er/../../../secret.txt",
        "..\\secret.txt",
        "deep\\..\\..\\secret.txt",
        "../docs-private/a.txt",
        "readme.md/../../secret.txt",
        "readme.md\0",
        "readme.md\0.png",
        "..;/secret.txt",
        "C:\\windows\\win.ini",
        "c:/windows/win.ini",
        "\\\\server\\share\\a.txt",
        "//server/share/a.txt",
        "/etc/passwd",
        "~/.ssh/id_rsa",
        "file:///etc/passwd",
        "NUL",
        "none",
        "deep",
        "deep/er/",
        ".",
        "./",
        "x" * 5000,
        "a/" * 3000,
    ],
    ids=lambda path: ascii(path)[:40],
)
@pytest.mark.parametrize("layers", range(4))
async def test_a_uri_that_leads_elsewhere_is_of_no_resource(root: Path, path: str, layers: int) -> None:
    for _ in range(layers):
        path = quote(path, safe="")
    server = make(root)

    await refused(server, f"docs://{path}")
    await refused(server, f"docs://{quote(path)}")


@pytest.mark.requirement("R101")
async def test_an_absolute_path_to_a_file_that_is_there_is_of_no_resource(root: Path) -> None:
    secret = str(root.parent / "secret.txt")
    inside = str(root / "readme.md")
    server = create_mcp_server(name="a", version="1", resources=directory(root))

    for path in (secret, inside):
        await refused(make(root), f"docs://{path}")
        await refused(make(root), f"docs://{quote(path, safe='')}")
    assert (await read(server, (root / "readme.md").as_uri()))["text"] == "# Read me"  # file: is the default
    await refused(server, (root.parent / "secret.txt").as_uri())
    await refused(server, root.as_uri() + "/../secret.txt")
    await refused(server, (root.parent / "docs-private" / "a.txt").as_uri())


async def test_hidden_files_are_offered_only_where_it_is_wanted(root: Path) -> None:
    closed = make(root)
    opened = make(root, hidden=True)

    assert not [name for name in await names(closed) if "hunter2" in name or name.startswith(".")]
    for path in (".env", ".git/config", "deep/./.hidden"):
        await refused(closed, f"docs://{path}")
    assert [name for name in await names(opened) if name.startswith(".")] == [".env", ".git/config"]
    assert (await read(opened, "docs://.env"))["text"] == "TOKEN=hunter2"


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege there")
@pytest.mark.requirement("R101")
async def test_a_link_out_of_the_directory_is_of_no_resource_and_one_within_is(root: Path) -> None:
    (root / "out.txt").symlink_to(root.parent / "secret.txt")
    (root / "outside").symlink_to(root.parent, target_is_directory=True)
    (root / "private").symlink_to(root.parent / "docs-private", target_is_directory=True)
    (root / "circle").symlink_to(root / "circle")
    (root / "within.md").symlink_to(root / "readme.md")
    (root / "also").symlink_to(root / "deep", target_is_directory=True)
    server = make(root)

    for path in ("out.txt", "outside/secret.txt", "outside/docs/readme.md/../../secret.txt", "private/a.txt", "circle"):
        await refused(server, f"docs://{path}")
    assert (await read(server, "docs://within.md"))["text"] == "# Read me"
    assert (await read(server, "docs://also/er/pic.png"))["mimeType"] == "image/png"
    assert [name for name in await names(server) if name not in await names(make(root))] == []
    assert {"within.md", "out.txt", "circle"} & set(await names(server)) == {"within.md"}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files there")
async def test_only_regular_files_with_a_name_that_travels_are_files(root: Path) -> None:
    os.mkfifo(root / "pipe")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff.txt")).write_text("odd", encoding="utf-8")
    (root / "line\nbreak").write_text("odd", encoding="utf-8")
    server = make(root)

    assert list(await names(server)) == ["deep/50% of é.txt", "deep/er/pic.png", "readme.md"]
    await refused(server, "docs://pipe")  # and nobody waits for its writer


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="platform: root reads everything")
async def test_what_may_not_be_read_is_an_error_without_the_path_and_costs_the_list_nothing(root: Path) -> None:
    (root / "readme.md").chmod(0)
    (root / "deep").chmod(0)
    server = make(root)

    try:
        assert list(await names(server)) == ["readme.md"]
        with pytest.raises(RequestError, match="cannot be read") as refusal:
            await read(server, "docs://readme.md")
    finally:
        (root / "deep").chmod(0o700)
    assert str(root) not in refusal.value.message


async def test_a_directory_with_too_many_files_lists_some_and_reads_all(root: Path) -> None:
    server = make(root, max_files=2)

    assert len(await names(server)) == 2
    assert (await read(server, "docs://readme.md"))["text"] == "# Read me"


def test_what_is_no_directory_is_refused_where_it_is_given(root: Path) -> None:
    with pytest.raises(NotADirectoryError, match="not a directory"):
        directory(root / "readme.md")
    with pytest.raises(NotADirectoryError):
        directory(root / "none")
