"""Every line of code in the documentation is code that a test runs."""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import trust
from tests.docs.pages import CHECKOUT, SNIPPETS, Block, blocks, command_lines, pages, printed_by, source_of
from tests.install.bundles import made_bundle
from tests.install.served import serve_registry
from toolweave.cli._command import CommandGroup
from toolweave.cli._commands import COMMANDS, load_command
from toolweave.cli._parse import parse

CONSOLE = [
    pytest.param(block, command, output, id=f"{block.where} {command}")
    for block in blocks("console")
    for command, output in command_lines(block)
]
TYPED = [
    pytest.param(line, id=f"{block.where} {line}")
    for block in blocks("sh")
    for line in block.text.replace("\\\n", " ").splitlines()
    if re.match(r"(\w+=\S+ )*toolweave ", line)
]
PARTS = [block for block in blocks("python") if ": " in (block.source or "")]
"""Blocks that show a part of a file; test_snippets.py runs the whole files."""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """The URL of a registry on the loopback, for `toolweave search` and `install`."""
    with serve_registry() as served:
        yield served.url


def without_times(text: str) -> str:
    """Return a command's output with every duration replaced, the one thing that differs from run to run."""
    return re.sub(r"\b\d+(\.\d+)? m?s\b", "_ ms", text)


@pytest.mark.parametrize(
    "block",
    [*blocks("python"), *blocks("json"), *(block for block in blocks("text") if block.source)],
    ids=lambda block: block.where,
)
def test_a_block_is_the_file_it_names(block: Block) -> None:
    assert block.source is not None, f"{block.where} names no file of docs_src in a comment before it"
    assert block.text == source_of(block.source), f"{block.where} and {block.source} differ"


@pytest.mark.slow
@pytest.mark.parametrize("block", [one for one in PARTS if "def test_" not in one.text], ids=lambda block: block.where)
def test_a_block_that_shows_a_part_runs_alone_as_pasted(block: Block, tmp_path: Path) -> None:
    shutil.copy(SNIPPETS / "mcp.json", tmp_path)
    pasted = tmp_path / "pasted.py"
    pasted.write_text(block.text, encoding="utf-8")

    printed_by(pasted, tmp_path)


@pytest.mark.slow
def test_a_block_with_tests_passes_as_a_module_of_its_own(tmp_path: Path) -> None:
    for number, block in enumerate(one for one in PARTS if "def test_" in one.text):
        (tmp_path / f"test_pasted_{number}.py").write_text(block.text, encoding="utf-8")

    options = ("-q", "-c", os.devnull, "-p", "no:cacheprovider", "-p", "no:langsmith_plugin", "--mcp-record=once")
    assert " passed" in printed_by(tmp_path, tmp_path, *options)


@pytest.mark.parametrize("block", list(blocks("json")), ids=lambda block: block.where)
def test_a_json_block_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.slow
@pytest.mark.parametrize(("block", "command", "output"), CONSOLE)
def test_a_command_prints_what_the_page_shows(
    block: Block, command: str, output: str, tmp_path: Path, registry: str
) -> None:
    for example in (*SNIPPETS.glob("*.json"), *SNIPPETS.glob("serve*.py"), SNIPPETS / "tutorial" / "desk_server.py"):
        shutil.copy(example, tmp_path)
    trust(tmp_path / "mcp.json")
    (tmp_path / "notes.mcpb").write_bytes(made_bundle())
    assert re.match(r"(\w+=\S+ )*toolweave ", command), f"{block.where}: only `toolweave` is run here"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TOOLWEAVE_REGISTRY": registry},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )

    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert checker.check_output(without_times(output), without_times(done.stdout), flags), (
        f"{block.where} shows\n{output}\nbut the command printed\n{done.stdout}"
    )


@pytest.mark.parametrize("line", TYPED)
def test_a_command_of_a_shell_block_is_one_of_the_real_command_line(line: str) -> None:
    words = shlex.split(line, comments=True)
    name, *words = words[words.index("toolweave") + 1 :]
    assert name in COMMANDS
    command = load_command(name)
    while isinstance(command, CommandGroup):
        if words and words[0] in command.commands:
            command, words = command.commands[words[0]], words[1:]
        else:
            assert command.default is not None, f"toolweave {name} has no command {words[:1]}"
            command = command.commands[command.default]

    parse(command, words)  # raises what the command would say


def test_every_shell_block_names_scripts_that_exist() -> None:
    named = {
        (block.where, script)
        for kind in ("sh", "console")
        for block in blocks(kind)
        for script in re.findall(r"(?<![\w/.])(?:scripts|\.ci)/[\w-]+", block.text)
    }

    assert not [(where, script) for where, script in named if not os.access(CHECKOUT / script, os.X_OK)]


def test_every_link_between_pages_leads_to_a_file() -> None:
    dead = [
        f"{page.relative_to(CHECKOUT)}: {target}"
        for page in pages()
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]

    assert not dead
