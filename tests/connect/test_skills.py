"""A client lists skills without reading them, and uses no file that is not what the skill's entry says."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolweave import CallContext, McpConnection, ProtocolError, connect_mcp, create_mcp_server
from toolweave.connect import Skill
from toolweave.errors import SkillError
from toolweave.protocol.skills import MAX_SKILL_BYTES, content_digest
from toolweave.serve import ResourcesChanged, SkillSource

ROOT = "skill://pdf/"
URI = f"{ROOT}SKILL.md"
MANIFEST = "---\nname: pdf\ndescription: Reads PDF files.\n---\nSee [forms](references/FORMS.md).\n"
FILES: Mapping[str, str | bytes] = {"SKILL.md": MANIFEST, "references/FORMS.md": "Forms.", "logo.png": b"\x89PNG\xff"}


def as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def entry(**changes: Any) -> dict[str, Any]:
    """Return the entry of the skill as its server has it."""
    listed = [
        {"uri": ROOT + name, "digest": content_digest(as_bytes(content)), "size": len(as_bytes(content))}
        for name, content in FILES.items()
    ]
    frontmatter = {"name": "pdf", "description": "Reads PDF files."}
    return {"uri": URI, "frontmatter": frontmatter, "resources": listed, **changes}


class Shelf:
    """A source of skills that says what it is told to, true or not.

    Attributes:
        entries: What it lists.
        files: What it has, by the path behind the skill's folder.
        reads: The URIs that were read.
    """

    def __init__(self, *entries: dict[str, Any], **files: str | bytes) -> None:
        self.entries = list(entries) or [entry()]
        self.files: dict[str, str | bytes] = {**FILES, **files}
        self.reads: list[str] = []

    async def skills(self) -> Sequence[dict[str, Any]]:
        return self.entries

    async def skill(self, uri: str) -> dict[str, Any] | None:
        return self.entries[0]

    async def children(self, uri: str) -> Sequence[dict[str, Any]] | None:
        return [{"uri": ROOT + name, "name": name} for name in self.files] if f"{uri}/" == ROOT else None

    async def resources(self) -> Sequence[dict[str, Any]]:
        return []

    async def templates(self) -> Sequence[dict[str, Any]]:
        return []

    async def read(self, uri: str, ctx: CallContext) -> dict[str, Any] | None:
        self.reads.append(uri)
        content = self.files.get(uri.removeprefix(ROOT))
        if content is None:
            return None
        text = {"text": content} if isinstance(content, str) else {"blob": base64.b64encode(content).decode()}
        return {"contents": [{"uri": uri, **text}]}

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Callable[[], None]:
        return lambda: None


@asynccontextmanager
async def connected(shelf: Shelf, **settings: Any) -> AsyncGenerator[McpConnection]:
    assert isinstance(shelf, SkillSource)
    server = create_mcp_server(name="docs", resources=[shelf], page_size=2)
    async with connect_mcp({"server": server, **settings}, name="docs") as connection:
        yield connection


async def test_listing_and_finding_skills_reads_no_file() -> None:
    shelf = Shelf()
    async with connected(shelf) as connection:
        (listed,) = await connection.list_skills()
        found = await connection.get_skill(URI)

    assert (listed.server, listed.uri, listed.name, listed.description) == ("docs", URI, "pdf", "Reads PDF files.")
    assert found == listed
    assert shelf.reads == []


async def test_a_file_is_read_when_it_is_wanted_and_once() -> None:
    shelf = Shelf()
    async with connected(shelf) as connection:
        loaded = await connection.load_skill(URI)
        before = list(shelf.reads)
        texts = [(await loaded.read(path)).text for path in ("references/FORMS.md", "./references/../SKILL.md", URI)]
        picture = (await loaded.read("logo.png")).decode()

    assert before == [URI]
    assert loaded.instructions == "See [forms](references/FORMS.md).\n"
    assert loaded.files == tuple(FILES)
    assert (texts, picture) == (["Forms.", MANIFEST, MANIFEST], b"\x89PNG\xff")
    assert shelf.reads == [URI, f"{ROOT}references/FORMS.md", f"{ROOT}logo.png"]


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("SKILL.md", MANIFEST.replace("See", "Bee"), "not that of the digest in its entry"),
        ("SKILL.md", f"{MANIFEST}more", f"has {len(MANIFEST) + 4} bytes, but its entry declares {len(MANIFEST)}"),
        ("references/FORMS.md", "Worms.", "not that of the digest in its entry"),
        ("references/FORMS.md", "", "has 0 bytes, but its entry declares 6"),
        ("logo.png", b"\x89PNG\xfe", "not that of the digest in its entry"),
    ],
)
async def test_a_file_that_is_not_what_the_entry_says_is_not_used(path: str, content: str | bytes, reason: str) -> None:
    async with connected(Shelf(**{path: content})) as connection:
        with pytest.raises(SkillError, match=reason) as refusal:
            loaded = await connection.load_skill(URI)
            await loaded.read(path)

    assert (refusal.value.server, refusal.value.uri) == ("docs", ROOT + path)


@pytest.mark.parametrize("resources", [None, "dynamic"])
async def test_a_skill_whose_frontmatter_is_another_is_not_loaded(resources: str | None) -> None:
    text = MANIFEST.replace("Reads PDF files.", "Reads your mail.")
    listed = entry()["resources"]
    listed[0] |= {"digest": content_digest(text.encode()), "size": len(text)}
    shelf = Shelf(entry(resources=resources or listed), **{"SKILL.md": text})
    async with connected(shelf) as connection:
        (skill,) = await connection.list_skills()
        with pytest.raises(SkillError, match="its frontmatter is not that of its entry: 'description' differ"):
            await connection.load_skill(skill)


async def test_a_skill_without_frontmatter_is_not_loaded() -> None:
    async with connected(Shelf(entry(resources="dynamic"), **{"SKILL.md": "See."})) as connection:
        with pytest.raises(SkillError, match="does not begin with YAML frontmatter"):
            await connection.load_skill(URI)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("new.md", "not in the entry by which the skill was loaded"),
        (f"{ROOT}new.md", "not in the entry by which the skill was loaded"),
        ("../other/SKILL.md", "not a file in the folder of the skill"),
        ("references/../../x", "not a file in the folder of the skill"),
        ("/etc/passwd", "not a file in the folder of the skill"),
        ("file:///etc/passwd", "not a file in the folder of the skill"),
        (f"{ROOT}%2e%2e/other/SKILL.md", "not a file in the folder of the skill"),
        ("", "not a file in the folder of the skill"),
        (".", "not a file in the folder of the skill"),
    ],
)
@pytest.mark.parametrize("resources", [None, "dynamic"])
async def test_only_the_files_of_the_entry_are_read(path: str, reason: str, resources: str | None) -> None:
    shelf = Shelf(entry(**({} if resources is None else {"resources": resources})), **{"new.md": "new"})
    async with connected(shelf) as connection:
        loaded = await connection.load_skill(URI)
        if resources is not None and "new" in path:  # there is no list of them
            assert (await loaded.read(path)).text == "new"
            return
        with pytest.raises(SkillError, match=reason):
            await loaded.read(path)

    assert shelf.reads == [URI]


async def test_a_skill_without_a_list_of_files_ends_at_the_limit_of_all() -> None:
    half = "x" * (MAX_SKILL_BYTES // 2)
    shelf = Shelf(entry(resources="dynamic"), **{"a.txt": half, "b.txt": half})
    async with connected(shelf) as connection:
        loaded = await connection.load_skill(URI)
        await loaded.read("a.txt")
        with pytest.raises(SkillError, match="more than 16 MiB"):
            await loaded.read("b.txt")


async def test_entries_that_nobody_may_load_are_left_out_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = entry(uri="skill://other/SKILL.md", resources=None)
    async with connected(Shelf(bad, entry(), entry(uri="skill://x/y/SKILL.md"))) as connection:
        with caplog.at_level(logging.WARNING, logger="toolweave.connect"):
            skills = await connection.list_skills()
        with pytest.raises(SkillError, match="its entry cannot be used: its URI does not end with"):
            await connection.get_skill("skill://other/SKILL.md")

    assert [one.uri for one in skills] == [URI]
    assert len(caplog.records) == 2


async def test_the_answer_to_another_question_is_refused() -> None:
    async with connected(Shelf()) as connection:
        with pytest.raises(SkillError, match=f"the answer is the entry of '{URI}'"):
            await connection.get_skill("skill://elsewhere/pdf/SKILL.md")


async def test_a_skill_of_another_server_is_not_loaded_here() -> None:
    async with connected(Shelf()) as connection:
        skill = (await connection.get_skill(URI)).replace(server="evil")
        with pytest.raises(SkillError, match="it is a skill of server 'evil'"):
            await connection.load_skill(skill)

    assert isinstance(skill, Skill)


async def test_a_server_without_skills_is_not_asked() -> None:
    async with connect_mcp(create_mcp_server(name="plain")) as connection:
        assert await connection.list_skills() == ()
        with pytest.raises(ProtocolError, match="does not offer skills/get") as refusal:
            await connection.load_skill(URI)
        with pytest.raises(ProtocolError, match="does not offer resources/directory/read"):
            await connection.list_directory("skill://pdf")

    assert refusal.value.code == -32601


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_folder_is_listed_over_all_pages(era: str) -> None:
    async with connected(Shelf(), protocol=era) as connection:
        children = await connection.list_directory("skill://pdf")
        with pytest.raises(ProtocolError, match="is not a directory resource"):
            await connection.list_directory("skill://none")

    assert [one.name for one in children] == list(FILES)
