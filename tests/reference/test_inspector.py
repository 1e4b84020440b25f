"""The official Inspector's command line lists and uses a server of ours, over stdio and HTTP, in both eras."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.server_process import SERVER, serving
from tests.conformance.suite import node
from tests.programs import ran
from tests.reference.servers import INSTALLED
from tests.reference.test_foreign_clients import NOTES

pytestmark = [pytest.mark.reference, pytest.mark.slow]

LAUNCHER = INSTALLED / "npm" / "node_modules" / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build"
SECONDS = 120
ERAS = ["legacy", "auto", "modern"]

Inspect = Callable[..., subprocess.CompletedProcess[str]]
"""Runs the Inspector with these arguments, the server's own before them."""


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server over HTTP."""
    with serving(tmp_path_factory.mktemp("notes") / "log", command=NOTES) as url:
        yield url


@pytest.fixture(scope="module", params=["stdio", "http"])
def inspect(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Inspect:
    """The Inspector on the server, over each transport."""
    home = tmp_path_factory.mktemp("inspector")
    if request.param == "stdio":
        return lambda *arguments: inspector(home, *NOTES, "--", *arguments)
    url = request.getfixturevalue("notes")
    return lambda *arguments: inspector(home, url, "--transport", "http", *arguments)


@pytest.mark.requirement("R83", "R88", "R109")
@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_lists_and_finds_nothing_to_say_against_the_tools(inspect: Inspect, era: str) -> None:
    listed = told(inspect("--protocol-era", era, "--method", "tools/list", "--strict", "--format", "json"))

    assert [tool["name"] for tool in listed["tools"]] == ["add", "count", "greet", "fail"]


@pytest.mark.requirement("R109")
@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_calls_a_tool(inspect: Inspect, era: str) -> None:
    given = json.dumps({"a": 2, "b": 3})
    result = told(
        inspect(
            *("--protocol-era", era, "--method", "tools/call", "--tool-name", "add"),
            *("--tool-args-json", given, "--format", "json"),
        )
    )

    assert [block["text"] for block in result["content"]] == ["5"]


@pytest.mark.requirement("R109")
@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_calls_a_tool_that_reports_progress_before_it_answers(inspect: Inspect, era: str) -> None:
    result = told(
        inspect(
            *("--protocol-era", era, "--method", "tools/call", "--tool-name", "count"),
            *("--tool-args-json", '{"to": 5}', "--format", "json"),
        )
    )

    assert [block["text"] for block in result["content"]] == ["counted to 5"]


@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_reads_a_resource_and_gets_a_prompt(inspect: Inspect, era: str) -> None:
    ask = ("--protocol-era", era, "--format", "json")
    read = told(inspect(*ask, "--method", "resources/read", "--uri", "notes://notes/loom"))
    templates = told(inspect(*ask, "--method", "resources/templates/list"))
    prompt = told(inspect(*ask, "--method", "prompts/get", "--prompt-name", "explain", "--prompt-args", "topic=weft"))

    assert read["contents"][0]["text"] == "A loom weaves cloth."
    assert [each["uriTemplate"] for each in templates["resourceTemplates"]] == ["notes://notes/{name}"]
    assert prompt["messages"][0]["content"]["text"] == "Explain weft to a weaver."


@pytest.mark.requirement("R109")
def test_the_inspector_learns_that_there_is_no_such_tool(inspect: Inspect) -> None:
    done = inspect("--method", "tools/call", "--tool-name", "divide", "--format", "json")

    assert done.returncode == 5, done.stderr


@pytest.mark.parametrize("era", ERAS)
def test_the_server_of_the_conformance_suite_serves_stdio_too(era: str, tmp_path: Path) -> None:
    command = (*SERVER, "--stdio", "--", "--protocol-era", era, "--format", "json")
    tools = told(inspector(tmp_path, *command, "--method", "tools/list"))
    resources = told(inspector(tmp_path, *command, "--method", "resources/list"))
    prompts = told(inspector(tmp_path, *command, "--method", "prompts/list"))
    result = told(inspector(tmp_path, *command, "--method", "tools/call", "--tool-name", "test_multiple_content_types"))

    assert len(tools["tools"]) >= 28
    assert len(resources["resources"]) >= 3
    assert len(prompts["prompts"]) >= 5
    assert [block["type"] for block in result["content"]] == ["text", "image", "resource"]


def inspector(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the Inspector's command line; what it remembers stays in `home`."""
    return ran(
        [node(), str(LAUNCHER / "index.js"), "--cli", *arguments],
        env={**os.environ, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        seconds=SECONDS,
    )


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return what a successful run printed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["result"]
