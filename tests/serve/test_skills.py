"""Skills of folders and functions: listed with what verifies them, found, and read; nothing else is."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tests.serve.carriers import EACH_CARRIER, connected
from tests.serve.talking import Talk, talking
from toolweave import CallContext, McpServer, create_mcp_server
from toolweave.errors import RequestError, SchemaError
from toolweave.middleware import AccessRule, AccessRules
from toolweave.protocol.skills import MAX_SKILL_FILES
from toolweave.serve import skill, skills

EXTENSION = "io.modelcontextprotocol/skills"
REFUNDS = "skill://billing/refunds/SKILL.md"


def write(folder: Path, text: str | None = None, /, **files: str | bytes) -> Path:
    """Write a skill of the folder's name, with further files: `a__b` is `a/b`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = f"---\nname: {folder.name}\ndescription: About {folder.name}.\n---\n\n# {folder.name}\n"
    (folder / "SKILL.md").write_bytes((made if text is None else text).encode())
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two skills, one of them with another inside, beside a secret."""
    root = tmp_path / "skills"
    write(root / "git")
    refunds = write(
        root / "billing" / "refunds", None, **{"examples__e mail.md": "Dear", "pic.png": b"\x89PNG\r\n\x1a\n"}
    )
    write(refunds / "late", **{"rules.txt": "none"})
    (root / "billing" / "README.md").write_text("of no skill")
    (refunds / ".secret").write_text("hunter2")
    (tmp_path / "secret.txt").write_text("hunter2")
    return root


def make(root: Path, **options: Any) -> McpServer:
    return create_mcp_server(name="docs", resources=[skills(root, **options)], page_size=2)


async def listed(talk: Talk) -> list[dict[str, Any]]:
    """Return the entries of all pages."""
    entries: list[dict[str, Any]] = []
    params: dict[str, Any] = {}
    while True:
        result = await talk.ask("skills/list", params)
        entries += result["skills"]
        if "nextCursor" not in result:
            return entries
        params = {"cursor": result["nextCursor"]}


async def refused(talk: Talk, method: str, uri: str) -> int:
    with pytest.raises(RequestError) as refusal:
        await talk.ask(method, {"uri": uri})
    return refusal.value.code


@pytest.mark.requirement("R101")
async def test_every_skill_is_listed_with_its_frontmatter_and_all_its_files(root: Path) -> None:
    async with talking(make(root)) as talk:
        discovered = await talk.ask("server/discover")
        entries = await listed(talk)
        page = await talk.ask("skills/list")

    assert discovered["capabilities"]["extensions"] == {EXTENSION: {"directoryRead": True}}
    assert "resources" in discovered["capabilities"]
    assert {"ttlMs", "cacheScope"} <= page.keys()
    assert [one["uri"] for one in entries] == [
        REFUNDS,
        "skill://billing/refunds/late/SKILL.md",
        "skill://git/SKILL.md",
    ]
    assert entries[0]["frontmatter"] == {"name": "refunds", "description": "About refunds."}
    assert [file["uri"].removeprefix("skill://billing/refunds/") for file in entries[0]["resources"]] == [
        "SKILL.md",
        "examples/e%20mail.md",
        "late/SKILL.md",
        "late/rules.txt",
        "pic.png",
    ]
    picture = entries[0]["resources"][-1]
    assert picture["size"] == 8
    assert picture["digest"] == f"sha256:{hashlib.sha256((root / 'billing/refunds/pic.png').read_bytes()).hexdigest()}"


@EACH_CARRIER
async def test_a_client_loads_a_skill_in_every_era(root: Path, carrier: str, era: str) -> None:
    async with connected(make(root), carrier, era) as connection:
        found = {one.uri: one for one in await connection.list_skills()}
        loaded = await connection.load_skill(found[REFUNDS])
        email = await loaded.read("examples/e mail.md")
        picture = await loaded.read("./pic.png")
        children = await connection.list_directory("skill://billing/refunds")
        (manifest, *_) = await connection.list_resources()

    assert loaded.instructions == "\n# refunds\n"
    assert (email.text, picture.decode()) == ("Dear", b"\x89PNG\r\n\x1a\n")
    assert [(one.name, one.mime_type) for one in children] == [
        ("SKILL.md", "text/markdown"),
        ("examples", "inode/directory"),
        ("late", "inode/directory"),
        ("pic.png", "image/png"),
    ]
    assert (manifest.uri, manifest.name, manifest.description) == (REFUNDS, "refunds", "About refunds.")
    assert manifest.mime_type == "text/markdown"


async def test_one_skill_is_found_by_its_uri_and_anything_else_is_refused(root: Path) -> None:
    async with talking(make(root)) as talk:
        entries = await listed(talk)
        found = [(await talk.ask("skills/get", {"uri": one["uri"]}))["skill"] for one in entries]
        unknown = [
            await refused(talk, "skills/get", uri)
            for uri in ("skill://none/SKILL.md", "skill://git", "skill://git/skill.md", "file:///etc/passwd", "x")
        ]
        no_folders = [
            await refused(talk, "resources/directory/read", uri)
            for uri in (REFUNDS, "skill://none", "skill://billing/refunds/", "skill://git/..", "skill://")
        ]
        prefix = await talk.ask("resources/directory/read", {"uri": "skill://billing"})

    assert found == entries
    assert {*unknown, *no_folders} == {-32602}
    assert [one["name"] for one in prefix["resources"]] == ["refunds"]


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "%2e%2e/secret.txt",
        "git/../../secret.txt",
        "git/%2e%2e/%2e%2e/secret.txt",
        "git%2f..%2f..%2fsecret.txt",
        "git/..\\..\\..\\secret.txt",
        "billing/README.md",
        "billing/refunds/.secret",
        "billing/refunds/link.txt",
        "billing/refunds/hidden.md",
        "billing/refunds/examples",
        "billing/refunds/examples/e mail.md",
        "git/SKILL.md%00",
        "git//SKILL.md",
        "git/SKILL.md/",
        "/etc/passwd",
    ],
)
async def test_nothing_but_the_files_of_skills_is_read(root: Path, path: str) -> None:
    refunds = root / "billing" / "refunds"
    (refunds / "link.txt").symlink_to(root.parent / "secret.txt")
    (refunds / "hidden.md").symlink_to(refunds / ".secret")
    server = make(root)
    async with talking(server) as talk:
        assert await refused(talk, "resources/read", f"skill://{path}") == -32602
        assert "link" not in str(await listed(talk))


async def test_what_changes_on_disk_shows_at_once(root: Path) -> None:
    async with talking(make(root)) as talk:
        before = (await talk.ask("skills/get", {"uri": "skill://git/SKILL.md"}))["skill"]
        write(root / "git", **{"new.md": "new"})
        (root / "git" / "SKILL.md").write_bytes(b"---\nname: git\ndescription: Other.\n---\n")
        after = (await talk.ask("skills/get", {"uri": "skill://git/SKILL.md"}))["skill"]
        content = (await talk.ask("resources/read", {"uri": "skill://git/SKILL.md"}))["contents"][0]

    assert len(before["resources"]) + 1 == len(after["resources"])
    assert after["frontmatter"]["description"] == "Other."
    assert after["resources"][0]["digest"] == f"sha256:{hashlib.sha256(content['text'].encode()).hexdigest()}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# no frontmatter", "does not begin with YAML frontmatter"),
        ("---\nname: other\ndescription: d\n---\n", "does not end with 'other/SKILL.md'"),
        ("---\nname: bad\n---\n", "no 'description'"),
        ("---\nname: Bad\ndescription: d\n---\n", "small letters"),
        ("---\nname: bad\ndescription: [\n---\n", "not valid YAML"),
    ],
)
async def test_a_skill_with_a_fault_is_left_out_and_the_log_says_why(
    root: Path, text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(root / "bad", text)
    with caplog.at_level(logging.WARNING, logger="toolweave.serve"):
        source = skills(root)
    async with talking(create_mcp_server(name="docs", resources=[source])) as talk:
        entries = await listed(talk)
        code = await refused(talk, "resources/read", "skill://bad/SKILL.md")

    assert len(entries) == 3
    assert code == -32602
    assert len(caplog.records) == len(source.problems) == 1
    assert reason in caplog.text


@pytest.mark.slow
async def test_a_skill_over_the_limits_is_left_out(root: Path) -> None:
    many = write(root / "many")
    for number in range(MAX_SKILL_FILES):
        (many / f"{number}.txt").touch()
    large = write(root / "large")
    with (large / "data.bin").open("wb") as file:
        os.truncate(file.fileno(), 16 * 1024 * 1024)
    source = skills(root)

    assert len(await source.skills()) == 3
    assert all("more than 512 files and 16 MiB" in one for one in source.problems)
    (many / "0.txt").unlink()
    assert len(await source.skills()) == 4


def test_a_folder_without_a_skill_is_refused_with_the_faults(tmp_path: Path) -> None:
    write(tmp_path / "bad", "nothing")

    with pytest.raises(ValueError, match=r"no skill is below .*\n- skill 'skill://bad/SKILL.md' is left out: it"):
        skills(tmp_path)
    with pytest.raises(NotADirectoryError, match="is not a directory"):
        skills(tmp_path / "none")


async def test_a_folder_that_is_a_skill_itself_is_one_and_a_prefix_stands_before(tmp_path: Path) -> None:
    write(tmp_path / "deploy", **{"a.txt": "a"})
    async with talking(make(tmp_path / "deploy", prefix="ops/eu")) as talk:
        (entry,) = await listed(talk)
        text = (await talk.ask("resources/read", {"uri": "skill://ops/eu/deploy/a.txt"}))["contents"][0]["text"]
        templates = await talk.ask("resources/templates/list")

    assert entry["uri"] == "skill://ops/eu/deploy/SKILL.md"
    assert text == "a"
    assert templates["resourceTemplates"][0]["uriTemplate"] == "skill://ops/eu/deploy/{+path}"


async def test_a_function_writes_the_instructions_of_a_skill() -> None:
    server = create_mcp_server(name="reports", state={"count": 3})

    @server.skill(prefix="reports", frontmatter={"license": "MIT", "metadata": {"version": 1.5}})
    def daily_report(ctx: CallContext) -> str:
        """Use this: for "today's" report, # always."""
        return f"Write about {ctx.state['count']} things."

    async with connected(server) as connection:
        (entry,) = await connection.list_skills()
        loaded = await connection.load_skill(entry)
        children = await connection.list_directory(entry.root)

    assert entry.uri == "skill://reports/daily-report/SKILL.md"
    assert entry.files is None
    assert entry.frontmatter == {
        "name": "daily-report",
        "description": 'Use this: for "today\'s" report, # always.',
        "license": "MIT",
        "metadata": {"version": 1.5},
    }
    assert loaded.instructions == "\nWrite about 3 things."
    assert [one.uri for one in children] == [entry.uri]


def test_a_function_that_makes_no_skill_is_refused() -> None:
    def Upper() -> str:
        """Do."""
        return ""

    def silent() -> str:
        return ""

    def asking(what: str) -> str:
        """Do."""
        return what

    for function, reason in ((Upper, "small letters"), (silent, "no description"), (asking, "parameter 'what'")):
        with pytest.raises(SchemaError, match=reason):
            skill(function)


async def test_a_server_without_skills_knows_no_method_of_them() -> None:
    async with talking(create_mcp_server(name="plain")) as talk:
        assert "extensions" not in (await talk.ask("server/discover"))["capabilities"]
        assert await refused(talk, "skills/get", REFUNDS) == -32601
        assert await refused(talk, "resources/directory/read", "skill://git") == -32601


async def test_a_caller_sees_and_gets_the_skills_that_rules_allow(root: Path) -> None:
    rules = AccessRules(rules=[AccessRule(effect="allow", kinds=("resources",), names=("skill://git*",))])
    server = create_mcp_server(name="docs", resources=[skills(root)], middleware=[rules])
    async with talking(server) as talk:
        entries = await listed(talk)
        with pytest.raises(RequestError):
            await talk.ask("skills/get", {"uri": REFUNDS})
        with pytest.raises(RequestError):
            await talk.ask("resources/directory/read", {"uri": "skill://billing"})
        (await talk.ask("skills/get", {"uri": "skill://git/SKILL.md"}))

    assert [one["uri"] for one in entries] == ["skill://git/SKILL.md"]
