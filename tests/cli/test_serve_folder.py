"""`toolweave serve FOLDER`: its files over stdio, with --reload when they change, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.cli.command import Done, toolweave
from tests.cli.served import SERVE, serve_entry
from toolweave import McpConnection, connect_mcp
from toolweave.cli._serve.reload import Sources

TEST_SECONDS = 90

pytestmark = pytest.mark.slow

Cli = Callable[..., Done]

TOOL = "from toolweave import tool\n\n@tool\ndef {0}() -> str:\n    return '{0}'\n"


@pytest.fixture
def notes(folder: Path) -> Path:
    """A folder with a part of every kind."""
    root = folder / "notes"
    for name, text in {
        "tools/one.py": TOOL.format("one"),
        "prompts/ask.md": "---\ndescription: Ask.\n---\nAsk about {{topic}}.\n",
        "resources/guide.md": "# Guide",
        "skills/tidy/SKILL.md": "---\nname: tidy\ndescription: Tidy up.\n---\nTidy.\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


async def offered(client: McpConnection) -> list[str]:
    return [
        *(await client.list_tools()).names,
        *(prompt.name for prompt in await client.list_prompts(refresh=True)),
        *(one.uri for one in await client.list_resources(refresh=True)),
    ]


@pytest.mark.parametrize("target", ["notes", "./notes/", "."])
async def test_a_folder_is_served_with_its_name(notes: Path, target: str) -> None:
    cwd = notes if target == "." else notes.parent
    async with connect_mcp(serve_entry(target, cwd=str(cwd)), name="s") as client:
        assert client.server_info["name"] == "notes"
        assert await offered(client) == ["one", "ask", "resource://guide.md", "skill://tidy/SKILL.md"]
        (message,) = (await client.get_prompt("ask", {"topic": "plants"})).messages
        assert message.content.render() == "Ask about plants."


async def test_a_file_with_a_fault_is_named_and_the_rest_is_served(notes: Path) -> None:
    (notes / "tools" / "bad.py").write_text("1 / 0\n")
    done = toolweave("tools", "--server", "s", "--json", "--", *SERVE, notes, cwd=notes.parent)
    assert done.code == 0, done.err
    assert "one" in done.out
    printed = toolweave("serve", notes, "--install", "cursor", "--print", cwd=notes.parent)
    assert printed.code == 0
    said = " ".join(printed.err.split())
    assert "file 'tools/bad.py' is left out: line 1 of 'bad.py': ZeroDivisionError" in said


def test_an_editor_is_given_the_whole_path_of_a_folder(cli: Cli, notes: Path) -> None:
    done = cli("serve", "notes", "--install", "cursor", "--print")
    assert json.loads(done.out)["mcpServers"]["notes"]["args"][-2:] == ["serve", str(notes)]


def test_a_module_comes_before_a_folder_of_its_name(notes: Path) -> None:
    (notes.parent / "notes.py").write_text(TOOL.format("of_the_module"))
    for target, tools in (("notes", "of_the_module"), ("./notes", "one")):
        done = toolweave("tools", "--json", "--", *SERVE, target, cwd=notes.parent)
        assert done.code == 0, done.err
        assert tools in done.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["serve", "empty"], "there is nothing to serve in"),
        (["serve", "bad"], "line 1 of 'bad.py': ZeroDivisionError"),
        (["serve", "./notes:server"], "the file './notes' does not exist"),
        (["worker", "./notes", "--backend", "redis://127.0.0.1:1/0"], "is a folder"),
    ],
)
def test_what_cannot_be_served_is_exit_code_2_with_the_reason(notes: Path, words: list[str], says: str) -> None:
    (notes.parent / "empty").mkdir()
    (notes.parent / "bad").mkdir()
    (notes.parent / "bad" / "bad.py").write_text("1 / 0\n")
    done = toolweave(*words, cwd=notes.parent)
    assert done.code == 2
    assert says in " ".join(done.err.split())


async def test_with_reload_a_change_of_the_folder_is_a_change_of_the_lists(notes: Path) -> None:
    async with connect_mcp(serve_entry(notes, "--reload"), name="s") as client:
        assert (await client.list_tools()).names == ("one",)
        (notes / "tools" / "another.py").write_text(TOOL.format("another"))
        (notes / "prompts" / "later.md").write_text("---\ndescription: Later.\n---\nLater.\n")
        while "another" not in (await client.list_tools()).names:
            await anyio.sleep(0.1)
        assert [prompt.name for prompt in await client.list_prompts(refresh=True)] == ["ask", "later"]
        (notes / "tools" / "another.py").write_text("1 / 0  # a mistake\n")
        while "another" in (await client.list_tools()).names:
            await anyio.sleep(0.1)
        assert (await client.call_tool("one")).text == "one"
        assert client.restarts == 0


def test_contents_of_resources_start_nothing_anew(notes: Path) -> None:
    sources = Sources([notes], markdown=[notes / "prompts", notes / "skills"])
    every = [path for path in notes.rglob("*") if path.is_file()]
    assert {path.relative_to(notes).as_posix() for path in every if sources.includes(path)} == {
        "tools/one.py",
        "prompts/ask.md",
        "skills/tidy/SKILL.md",
    }
