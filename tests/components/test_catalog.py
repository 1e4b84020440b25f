"""What the components are: short, typed, on public names only, and running as they were copied."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from tests.cli.command import on_terminal
from tests.programs import ran
from toolweave import connect_mcp
from toolweave.components import Component, Project, component, component_names

TEST_SECONDS = 60

LONGEST = {"mcp-server": 200, "mcp-client": 150, "agent": 185}
KNOWN = {*sys.stdlib_module_names, "anyio", "pydantic"}
"""What a copied file may import beside our public names: what is installed wherever we are."""
FILES = [pytest.param(component(name), path, id=f"{name}/{path}") for name in LONGEST for path in component(name).files]


def copied(root: Path, name: str) -> Component:
    """Copy a component into a project, under its usual name."""
    project = Project(root)
    project.carry_out(project.add(name))
    return component(name)


def run(root: Path, *words: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run a copied package as its user does, with warnings as errors."""
    return ran([sys.executable, "-W", "error", "-m", *words], cwd=root, env={**os.environ, **env}, given=stdin)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config with two servers."""
    servers = {
        name: {"command": sys.executable, "args": ["-m", f"toolweave.cli.demo.{name}"]} for name in ("notes", "numbers")
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def test_there_are_these_components() -> None:
    assert component_names() == sorted(LONGEST)


@pytest.mark.requirement("R107")
@pytest.mark.parametrize("name", LONGEST)
def test_a_component_is_short(name: str) -> None:
    texts = component(name).files.values()

    assert sum(len(text.splitlines()) for text in texts) <= LONGEST[name]


@pytest.mark.parametrize("name", LONGEST)
def test_a_component_names_each_of_its_files(name: str) -> None:
    folder = files("toolweave.components") / "catalog" / name.replace("-", "_")

    there = {entry.name for entry in folder.iterdir() if entry.name.endswith(".py")}
    assert set(component(name).files) == there


@pytest.mark.requirement("R107")
@pytest.mark.parametrize("component, path", FILES)
def test_a_copied_file_imports_only_what_is_public(component: Component, path: str) -> None:
    for node in ast.walk(ast.parse(component.files[path])):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "toolweave":
            module = node.module or ""
            assert module.count(".") <= 1, f"{module} is inside a room"
            public = importlib.import_module(module).__all__
            assert {alias.name for alias in node.names} <= set(public), ast.unparse(node)
        elif isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= KNOWN, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            assert (node.module or "").split(".")[0] in KNOWN, ast.unparse(node)


@pytest.mark.parametrize("component, path", FILES)
def test_every_function_of_a_copied_file_is_typed_and_every_module_says_its_job(
    component: Component, path: str
) -> None:
    tree = ast.parse(component.files[path])

    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.returns is not None, f"{path}: {node.name}"
            parameters = [one for one in (*node.args.args, *node.args.kwonlyargs) if one.arg != "self"]
            assert all(one.annotation for one in parameters), f"{path}: {node.name}"


# the server


@pytest.mark.slow
@pytest.mark.requirement("R107")
async def test_the_server_runs_as_copied_over_stdio(tmp_path: Path) -> None:
    copied(tmp_path, "mcp-server")
    entry = {"command": sys.executable, "args": ["-m", "mcp_server"], "cwd": str(tmp_path)}

    async with connect_mcp(entry) as client:
        tools = await client.list_tools()
        assert list(tools.names) == ["count_stock", "check_all"]
        assert (await client.call_tool("count_stock", {"item": "apple"})).structured_content == {"count": 12}
        refused = await client.call_tool("count_stock", {"item": "plum"})
        assert refused.is_error
        assert "there are apple, pear" in refused.text
        assert (await client.call_tool("check_all")).structured_content == {"missing": ["pear"]}


@pytest.fixture
def http_server(tmp_path: Path) -> Iterator[str]:
    """The copied server over HTTP; its address."""
    copied(tmp_path, "mcp-server")
    command = [sys.executable, "-m", "mcp_server", "--http", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().removeprefix("serving on ").strip()
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.requirement("R107")
async def test_the_server_runs_as_copied_over_http(http_server: str) -> None:
    async with connect_mcp(f"{http_server}/mcp") as client:
        assert (await client.call_tool("count_stock", {"item": "pear"})).structured_content == {"count": 0}


@pytest.mark.slow
def test_the_server_offers_only_the_tools_and_the_agents_that_its_settings_name(tmp_path: Path) -> None:
    copied(tmp_path, "mcp-server")
    (tmp_path / "check.py").write_text(
        "from mcp_server import Settings, create_server\n"
        "from toolweave import tool\n"
        "@tool\n"
        "def ask(message: str) -> str: return message\n"
        "class Helper:\n"
        "    def __init__(self, name): self.name = name\n"
        "    def as_tool(self): return ask\n"
        "def names(**settings):\n"
        "    server = create_server(Settings(**settings), agents=[Helper('ask'), Helper('other')])\n"
        "    print(*[spec.name for spec in server.tools.snapshot()])\n"
        "names()\n"
        "names(tools=('check_all',))\n"
        "names(agents=('ask',))\n"
        "names(tools=('check_all',), agents=('ask',))\n"
    )

    done = run(tmp_path, "check")

    assert done.stderr == ""
    assert [set(line.split()) for line in done.stdout.splitlines()] == [
        {"count_stock", "check_all"},
        {"check_all"},
        {"agent_ask", "count_stock", "check_all"},
        {"agent_ask", "check_all"},
    ]


@pytest.mark.slow
@pytest.mark.requirement("R107")
def test_a_long_result_is_shortened_where_the_user_can_read_how(tmp_path: Path) -> None:
    copied(tmp_path, "mcp-server")
    (tmp_path / "check.py").write_text(
        "from mcp_server.bridge import LONGEST, for_clients\n"
        "from toolweave import TextContent, ToolResult, ToolSpec\n"
        "spec = ToolSpec(name='t', input_schema={'type': 'object'})\n"
        "short = ToolResult(content=[TextContent(text='x')])\n"
        "long = ToolResult(content=[TextContent(text='x' * (LONGEST + 5))])\n"
        "print(for_clients(short, spec).text, for_clients(long, spec).text[LONGEST:].strip())\n"
    )

    done = run(tmp_path, "check")

    assert (done.stdout, done.stderr) == ("x [5 characters left out]\n", "")


# the client


@pytest.mark.slow
@pytest.mark.requirement("R107")
def test_the_client_runs_as_copied_and_lists_and_calls_tools(tmp_path: Path, config: Path) -> None:
    copied(tmp_path, "mcp-client")

    listed = run(tmp_path, "mcp_client")
    called = run(tmp_path, "mcp_client", "numbers_add", '{"values": [1, 2]}')
    failed = run(tmp_path, "mcp_client", "numbers_divide", '{"value": 1, "by": 0}')
    wrong = [run(tmp_path, "mcp_client", "numbers_add", text) for text in ("values=1", "[1]")]

    assert [done.returncode for done in wrong] == [2, 2]
    assert all("Traceback" not in done.stderr for done in wrong)
    assert listed.stderr == ""
    assert {"notes_search_notes", "numbers_add"} <= {line.split("\t")[0] for line in listed.stdout.splitlines()}
    assert (called.returncode, json.loads(called.stdout)) == (0, {"sum": 3})
    assert failed.returncode == 1
    assert "zero" in failed.stdout


@pytest.mark.slow
def test_the_client_says_what_is_missing(tmp_path: Path) -> None:
    copied(tmp_path, "mcp-client")

    done = run(tmp_path, "mcp_client")

    assert done.returncode == 2
    assert "mcp.json" in done.stderr
    assert "`toolweave init`" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.requirement("R107")
def test_the_copied_client_puts_functions_beside_the_servers_tools(tmp_path: Path, config: Path) -> None:
    copied(tmp_path, "mcp-client")
    (tmp_path / "check.py").write_text(
        "import asyncio\n"
        "from mcp_client import Settings, connect_servers\n"
        "def greet(name: str) -> str: return name\n"
        "async def main():\n"
        "    async with connect_servers(Settings(exclude=('numbers/add',)), [greet]) as clients:\n"
        "        print(*[spec.name for spec in clients.tools.snapshot()])\n"
        "        print(sorted(clients.hub.clients), (await clients.refresh()).added)\n"
        "asyncio.run(main())\n"
    )

    done = run(tmp_path, "check")

    assert done.stderr == ""
    names, rest = done.stdout.splitlines()
    assert names.split()[0] == "greet"
    assert "numbers_add" not in names.split()
    assert "numbers_divide" in names.split()
    assert rest.startswith("['notes', 'numbers']")


@pytest.mark.slow
@pytest.mark.requirement("R107")
async def test_the_copied_client_uses_the_copied_server(tmp_path: Path) -> None:
    copied(tmp_path, "mcp-server")
    copied(tmp_path, "mcp-client")
    entry = {"command": sys.executable, "args": ["-m", "mcp_server"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": entry}}))

    done = run(tmp_path, "mcp_client", "shop_count_stock", '{"item": "apple"}')

    assert (done.returncode, json.loads(done.stdout)) == (0, {"count": 12})


# the agent


@pytest.mark.slow
@pytest.mark.requirement("R107")
def test_the_agent_runs_as_copied_without_a_model_and_calls_its_functions(tmp_path: Path) -> None:
    copied(tmp_path, "agent")

    listed = run(tmp_path, "agent", "/tools")
    called = run(tmp_path, "agent", "/call current_time")

    assert listed.stderr == ""
    assert [line.split(":")[0] for line in listed.stdout.splitlines()] == ["current_time", "write_note"]
    assert called.stderr == "[current_time {}]\n"
    assert called.stdout.strip()[:2] == "20"


@pytest.mark.slow
@pytest.mark.requirement("R107")
def test_the_agent_uses_the_servers_of_the_projects_config(tmp_path: Path, config: Path) -> None:
    copied(tmp_path, "agent")

    done = run(tmp_path, "agent", stdin="/tools")

    assert done.stderr == ""
    assert "numbers_add: " in done.stdout
    asked = run(tmp_path, "agent", stdin='/call numbers_add {"values": [1]}')
    assert "nobody can be asked" in asked.stdout


@pytest.mark.slow
def test_a_call_that_somebody_has_to_allow_is_refused_where_nobody_is(tmp_path: Path) -> None:
    copied(tmp_path, "agent")

    done = run(tmp_path, "agent", stdin='/call write_note {"text": "x"}')

    assert done.returncode == 0
    assert "nobody can be asked" in done.stderr
    assert not (tmp_path / "notes.txt").exists()


@pytest.mark.slow
@pytest.mark.requirement("R107")
def test_in_a_conversation_the_agent_asks_before_it_changes_something(tmp_path: Path) -> None:
    copied(tmp_path, "agent")
    program = [sys.executable, "-W", "error", "-m", "agent"]

    with on_terminal(cwd=tmp_path, program=program) as terminal:
        terminal.wait_for(r"> $")
        terminal.type("\n")
        assert "/call" not in terminal.wait_for(r"> \s+> $")  # no message, so no answer
        for line, reply in (("milk", "n"), ("eggs", "y")):
            terminal.type(f'/call write_note {{"text": "{line}"}}\n')
            terminal.wait_for(rf"run write_note .*{line}.*\[y/N\] $")
            terminal.type(f"{reply}\n")
            terminal.wait_for(rf"{line}[\s\S]*\n> $")
        terminal.type("\x04")
        assert terminal.end() == 0

    assert (tmp_path / "notes.txt").read_text() == "eggs\n"


@pytest.mark.slow
def test_the_agent_asks_the_model_that_the_environment_names(tmp_path: Path) -> None:
    copied(tmp_path, "agent")

    done = run(tmp_path, "agent", "hello", TOOLWEAVE_MODEL="test:hello yourself")
    wrong = run(tmp_path, "agent", "hello", TOOLWEAVE_MODEL="openai:x", OPENAI_API_KEY="")

    assert (done.stdout, done.stderr) == ("hello yourself\n", "")
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: model 'openai:x' needs an API key: set OPENAI_API_KEY")


@pytest.mark.slow
@pytest.mark.requirement("R107", "R85")
def test_the_copied_server_offers_the_copied_agent(tmp_path: Path) -> None:
    copied(tmp_path, "mcp-server")
    copied(tmp_path, "agent")
    (tmp_path / "check.py").write_text(
        "import anyio\n"
        "from agent import create_agent, Settings as Agents\n"
        "from mcp_server import create_server, Settings\n"
        "from toolweave import connect_mcp\n"
        "async def main():\n"
        "    async with create_agent(Agents(model='test:well')) as agent:\n"
        "        server = create_server(Settings(agents=('helper',)), [agent])\n"
        "        async with connect_mcp(server) as client:\n"
        "            print((await client.call_tool('agent_helper', {'message': 'how are you?'})).text)\n"
        "anyio.run(main)\n"
    )

    done = run(tmp_path, "check")

    assert (done.stdout, done.stderr) == ("well\n", "")
