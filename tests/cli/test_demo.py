"""`toolweave demo` and the three servers behind it."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import toolweave as toolweave_package
from tests.cli.command import Done, on_terminal, toolweave
from tests.programs import ran
from tests.serve.raw import LEGACY, MODERN, Raw, raw_client
from tests.servers.raw import post
from toolweave.cli.demo.notes import notes_server
from toolweave.cli.demo.numbers import numbers_server
from toolweave.cli.demo.serving import serving_http
from toolweave.cli.demo.words import words_server
from toolweave.connect import McpConnection, connect_mcp
from toolweave.tools import Progress

Cli = Callable[..., Done]


@pytest.mark.slow
def test_the_demo_shows_tools_calls_errors_and_what_to_type_next(folder: Path) -> None:
    done = toolweave("demo", cwd=folder)

    assert (done.code, done.err) == (0, "")
    for server, version in (("notes", "2025-11-25"), ("numbers", "2026-07-28"), ("words", "2026-07-28")):
        assert any(line.split()[:3] == [server, "ready", version] for line in done.out.splitlines())
    assert "'no-such-program'" in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    assert '{"count": 669, "largest": 4999}' in done.out
    assert "T-O-O-L-W-E-A-V-E" in done.out
    assert "division by zero" in done.out
    assert "invalid_input" in done.out
    assert "toolweave demo --config > mcp.json" in done.out


@pytest.mark.slow
def test_the_demo_breaks_no_word_in_60_columns(folder: Path) -> None:
    done = toolweave("demo", cwd=folder, env={"COLUMNS": "60"})

    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 60
    assert "\n  toolweave call notes_search_notes query=plants\n" in done.out
    text = " ".join(done.out.split())
    assert "message: server 'missing': its command 'no-such-program' was not found; install it" in text
    place = lines.index("  message: server 'missing': its command 'no-such-program'")
    assert lines[place + 1] == "  was not found; install it, or give its full path in"


@pytest.mark.slow
def test_on_a_terminal_the_demo_shows_bars(folder: Path) -> None:
    with on_terminal("demo", cwd=folder) as terminal:
        terminal.wait_for("numbers_primes .*up to")
        assert terminal.end() == 0
        assert "What to type next" in terminal.text


@pytest.mark.slow
def test_the_demos_config_works_with_every_example_it_names(cli: Cli, folder: Path) -> None:
    (folder / "mcp.json").write_text(cli("demo", "--config").out)

    assert list(cli("tools", "--json").json["servers"]) == ["notes", "numbers"]
    assert "water the plants" in cli("call", "notes_search_notes", "query=plants").out
    assert json.loads(cli("call", "numbers_primes", "limit=9999").out) == {"count": 1229, "largest": 9973}
    assert cli("doctor").code == 0
    assert "water the plants" in cli("resources", "--read", "notes://all").out
    assert cli("prompts", "--get", "review", "topic=plants").out == "user: Review my notes about plants.\n"


@asynccontextmanager
async def numbers() -> AsyncGenerator[McpConnection]:
    with serving_http(numbers_server(pause=0)) as url:
        async with connect_mcp(url, name="numbers") as connection:
            yield connection


@asynccontextmanager
async def words() -> AsyncGenerator[McpConnection]:
    async with connect_mcp(words_server(pause=0), name="words") as connection:
        yield connection


@pytest.mark.parametrize(
    "server, name, arguments, steps, text",
    [
        (numbers, "primes", {"limit": 100}, 20, '{"count": 25, "largest": 97}'),
        (words, "spell", {"word": "abc"}, 3, "A-B-C"),
    ],
)
async def test_progress_comes_before_the_answer_over_http_and_in_process(
    server: Callable[[], Any], name: str, arguments: dict[str, Any], steps: int, text: str
) -> None:
    seen: list[Progress] = []
    async with server() as connection:
        result = await connection.call_tool(name, arguments, on_progress=seen.append)

    assert result.text == text
    assert [one.progress for one in seen] == list(range(1, steps + 1))
    assert seen[-1].total == steps


async def test_the_notebook_remembers_what_is_added() -> None:
    async with connect_mcp(notes_server(pause=0)) as notes:
        assert (await notes.call_tool("add_note", {"text": "new"})).structured_content == {"number": 4, "text": "new"}
        assert (await notes.call_tool("read_note", {"number": 4})).text == "new"
        assert (await notes.call_tool("index_notes")).structured_content == {"words": 14, "different": 10}


@pytest.mark.parametrize(
    "name, arguments, expected",
    [
        ("read_note", {"number": 99}, "there is no note 99; there are 3"),
        ("read_note", {"number": "x"}, "expected integer"),
        ("read_note", {}, 'missing required property "number"'),
    ],
)
async def test_a_demo_tools_fault_is_an_error_result(name: str, arguments: dict[str, Any], expected: str) -> None:
    async with raw_client(notes_server(), LEGACY) as raw:
        result = (await raw.call(name, **arguments))["result"]

    assert result["isError"] is True
    assert expected in result["content"][0]["text"]


async def test_a_demo_server_knows_its_own_era_only_and_answers_wrong_requests_with_the_protocols_codes() -> None:
    async def code(raw: Raw, method: str, **params: Any) -> int:
        return (await raw.ask(raw.request(method, params)))["error"]["code"]

    async with raw_client(notes_server(), LEGACY) as legacy:
        assert await code(legacy, "server/discover") == -32601
        assert await code(legacy, "tools/call", name="nope") == -32602
        assert await code(legacy, "resources/read", uri="nope") == -32002
        assert await code(legacy, "prompts/get", name="nope") == -32602
        listed = await legacy.ask(legacy.request("resources/templates/list"))
        assert listed["result"] == {"resourceTemplates": []}
    async with raw_client(numbers_server(pause=0), MODERN) as modern:
        assert await code(modern, "initialize") == -32022
        assert await code(modern, "ping") == -32601
        assert (await modern.call("primes", limit=1))["result"]["isError"] is True


@pytest.mark.slow
@pytest.mark.parametrize("name", ["notes", "numbers", "words"])
async def test_a_demo_server_over_stdio_starts_without_the_sdk_and_pydantic(name: str) -> None:
    program = f"import runpy, sys; runpy.run_module('toolweave.cli.demo.{name}', run_name='__main__')"
    check = "print(sorted({'mcp', 'pydantic', 'httpx', 'uvicorn'} & set(sys.modules)), file=sys.stderr)"

    done = await anyio.run_process([sys.executable, "-c", f"{program}; {check}"], input=b"")

    assert done.stderr.decode().strip() == "[]"


async def test_a_demo_server_reports_progress_only_when_asked() -> None:
    async with raw_client(notes_server(pause=0), LEGACY) as raw:
        for meta in ({}, {"_meta": {"progressToken": "t"}}):
            await raw.ask(raw.request("tools/call", {"name": "index_notes", "arguments": {}, **meta}))
        told = raw.take_early()

    assert len(told) == 13
    assert {message["params"]["progressToken"] for message in told} == {"t"}


def test_the_demos_http_server_refuses_browsers_and_garbage() -> None:
    import urllib.error
    import urllib.request

    def status(data: bytes | None, **headers: str) -> int:
        request = urllib.request.Request(url, data, {name.replace("_", "-"): value for name, value in headers.items()})
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return response.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    with serving_http(numbers_server(pause=0)) as url:
        assert post(url, "tools/list", modern=True)[0] == 200
        assert status(b"{}", Origin="https://example.org") == 403
        assert status(b"{}", Host="example.org") == 421
        assert status(b"{") == 415  # no JSON, as a form is sent
        assert status(b"[]", Content_Type="application/json") == 400
        assert post(url, "nope", modern=True)[0] == 404


@pytest.mark.slow
def test_the_demo_fails_when_its_own_servers_do(folder: Path) -> None:
    """A server does not inherit PYTHONPATH: it is not found where the package is reached by that alone."""
    bare = Path(sys.base_prefix) / "bin" / "python3"
    found = [str(Path(toolweave_package.__file__).parent.parent), sysconfig.get_path("purelib")]

    done = ran([bare, "-m", "toolweave", "demo"], cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(found)})

    assert done.returncode == 3
    assert "This is not what you should see: notes failed." in done.stdout
    assert "\\n" not in done.stdout
    assert "failed: server 'notes'" in done.stderr
