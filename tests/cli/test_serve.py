"""`toolweave serve`: which object is served, over stdio and over HTTP, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import pytest

from tests.cli.command import Done, on_terminal, toolweave
from tests.cli.served import SERVE, serve_entry, serving
from tests.programs import ran
from toolweave import ProtocolError, connect_mcp
from toolweave.errors import AuthRequiredError

TEST_SECONDS = 60

pytestmark = pytest.mark.slow

Cli = Callable[..., Done]

BOUND = 60

TOOLS = """
    from pathlib import Path
    from other import borrowed
    from toolweave import ToolRegistry, create_mcp_server, tool

    print("printed while it is loaded")

    @tool(annotations={"readOnlyHint": True})
    def add(a: int, b: int = 2) -> int:
        "Add two numbers."
        return a + b

    @tool
    def where() -> str:
        "Say what the current directory is."
        print("printed while it runs")
        return str(Path.cwd())

    def plain(text: str) -> str:
        return text.upper()

    registry = ToolRegistry([plain])
    several = [plain, add]
    named = create_mcp_server(name="own-name", version="3", tools=[plain], instructions="Ask nicely.")

    class Agent:
        name = "helper"

        def as_tool(self):
            def ask(message: str) -> str:
                return f"you said {message}"
            return tool(ask, name="helper")

    helper = Agent()
    both = [helper, plain]
    number = 5

    class Kept:
        inner = registry
"""


@pytest.fixture
def code(folder: Path) -> Path:
    """A file with everything that can be served, and a module that it imports from its own folder."""
    inside = folder / "code"
    inside.mkdir()
    (inside / "other.py").write_text("from toolweave import tool\n\n@tool\ndef borrowed() -> str:\n    return 'x'\n")
    file = inside / "things.py"
    file.write_text(dedent(TOOLS))
    return file


def small(folder: Path, text: str, name: str = "small.py") -> Path:
    file = folder / name
    file.write_text("from toolweave import create_mcp_server, tool\n" + dedent(text))
    return file


@pytest.mark.requirement("R83", "R84")
@pytest.mark.parametrize(
    "what, name, tools",
    [
        (":named", "own-name", ("plain",)),
        (":registry", "registry", ("plain",)),
        (":several", "several", ("plain", "add")),
        (":plain", "plain", ("plain",)),
        (":add", "add", ("add",)),
        (":Kept.inner", "inner", ("plain",)),
        ("", "own-name", ("plain",)),
    ],
)
async def test_every_kind_of_object_is_served_over_stdio(
    code: Path, what: str, name: str, tools: tuple[str, ...]
) -> None:
    async with connect_mcp(serve_entry(f"{code}{what}"), name="s") as connection:
        assert connection.server_info["name"] == name
        assert (await connection.list_tools()).names == tools


async def test_a_gateway_of_a_file_is_served_like_any_server(folder: Path) -> None:
    file = small(
        folder,
        """
        from toolweave.gateway import create_gateway

        @tool
        def add(a: int, b: int) -> int:
            return a + b

        gateway = create_gateway({"numbers": {"server": create_mcp_server("numbers", tools=[add])}}, name="everything")
        """,
    )
    async with connect_mcp(serve_entry(str(file)), name="s") as connection:
        assert connection.server_info["name"] == "everything"
        assert (await connection.call_tool("numbers_add", {"a": 1, "b": 2})).text == "3"


@pytest.mark.requirement("R85", "C22")
@pytest.mark.parametrize("target", [True, False])
async def test_the_skills_of_folders_are_served_beside_tools_or_alone(folder: Path, code: Path, target: bool) -> None:
    for name in ("one", "two"):
        skill = folder / f"{name}-skills" / name
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: The {name}.\n---\nDo {name}.\n")
    words = ["--skills", folder / "one-skills", "--skills", folder / "two-skills"]
    async with connect_mcp(serve_entry(*([f"{code}:plain"] if target else []), *words), name="s") as connection:
        skills = await connection.list_skills()
        loaded = [(await connection.load_skill(one)).instructions for one in skills]
        tools = (await connection.list_tools()).names

    assert loaded == ["Do one.\n", "Do two.\n"]
    assert tools == (("plain",) if target else ())
    assert connection.server_info["name"] == ("plain" if target else "one-skills")


async def test_an_agent_is_served_as_a_tool_beside_functions(code: Path) -> None:
    async with connect_mcp(serve_entry(f"{code}:both"), name="s") as connection:
        assert set((await connection.list_tools()).names) == {"agent_helper", "plain"}
        assert (await connection.call_tool("agent_helper", {"message": "hello"})).text == "you said hello"


async def test_a_module_is_found_from_the_current_directory(code: Path) -> None:
    entry = serve_entry("things:several", cwd=str(code.parent))
    async with connect_mcp(entry, name="s") as connection:
        assert (await connection.list_tools()).names == ("plain", "add")


@pytest.mark.parametrize(
    "text, tools",
    [
        ("@tool\ndef one() -> int:\n    return 1\n@tool\ndef two() -> int:\n    return 2\n", ("one", "two")),
        ("def f() -> int:\n    return 1\napp = [f]\n", ("f",)),
        ("def f() -> int:\n    return 1\ndef g() -> int:\n    return 1\nmcp = f\nserver = g\n", ("g",)),
        (
            "@tool\ndef f() -> int:\n    return 1\na = b = create_mcp_server(name='x', version='1', tools=[f])\n",
            ("f",),
        ),
        (
            "a, mcp = (create_mcp_server(name=x, version='1') for x in 'ab')\nmcp.tool(tool(lambda: 1, name='f'))\n",
            ("f",),
        ),
    ],
)
async def test_without_a_name_the_usual_object_is_served(folder: Path, text: str, tools: tuple[str, ...]) -> None:
    async with connect_mcp(serve_entry(small(folder, text)), name="s") as connection:
        assert (await connection.list_tools()).names == tools


async def test_tools_that_a_module_imported_are_not_its_own(folder: Path, code: Path) -> None:
    text = "from things import add\n@tool\ndef mine() -> int:\n    return 1\n"
    file = small(code.parent, text)
    async with connect_mcp(serve_entry(file), name="s") as connection:
        assert (await connection.list_tools()).names == ("mine",)


async def test_tools_are_named_and_versioned_by_their_module_or_by_an_option(folder: Path) -> None:
    file = small(folder, "__version__ = '1.2'\n@tool\ndef f() -> int:\n    return 1\n")
    async with connect_mcp(serve_entry(file), name="s") as connection:
        assert (connection.server_info["name"], connection.server_info["version"]) == ("small", "1.2")
    async with connect_mcp(serve_entry(file, "--name", "mine"), name="s") as connection:
        assert connection.server_info["name"] == "mine"


@pytest.mark.parametrize("name", ["json.py", "my-server.py", "zipapp.py"])
async def test_a_file_may_have_any_name(folder: Path, name: str) -> None:
    file = small(folder, "@tool\ndef name() -> str:\n    return __name__\n", name)
    async with connect_mcp(serve_entry(file), name="s") as connection:
        assert (await connection.call_tool("name")).text.startswith("toolweave_served_")


def test_nothing_but_protocol_comes_to_standard_output(code: Path) -> None:
    file = code.with_name("printing.py")
    file.write_text(
        "import os\nfrom things import where\n"
        "os.write(1, b'written below Python\\n')\nos.system('echo from a child')\nserver = [where]\n"
    )
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "where", "arguments": {}}},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)

    done = toolweave("serve", file, stdin=lines)

    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [1, 2]
    for words in ("while it is loaded", "written below Python", "from a child", "while it runs"):
        assert words in done.err
    assert done.code == 0


@pytest.mark.requirement("D26")
async def test_what_is_served_does_not_depend_on_the_directory_it_is_started_in(folder: Path, code: Path) -> None:
    for cwd in ("/", str(code.parent)):
        async with connect_mcp(serve_entry(f"{code}:where", cwd=cwd), name="s") as connection:
            assert (await connection.call_tool("where")).text == cwd


WRONG = [
    ("nowhere.py", "the file 'nowhere.py' does not exist"),
    ("x" * 300 + ".py", "xxx.py' does not exist"),
    ("mcp.json", "the file 'mcp.json' does not exist"),
    ("config.json", "a config is served with --config config.json"),
    ("no_such_module_here", "the module 'no_such_module_here' was not found"),
    ("not-a-name", "neither a Python file nor the name of a module"),
    ("things.py:nothing", "it has no 'nothing', but"),
    ("things.py:number", "'number' cannot be served: an object of type int offers no tools"),
    ("things.py:Kept", "'Kept' is the class Kept"),
    ("things.py:empty", "'empty' is empty"),
    ("two.py", "it has several servers"),
    ("none.py", "nothing in it can be served"),
    ("broken.py", "NameError: name 'undefined' is not defined"),
    ("lacking.py", "ModuleNotFoundError: No module named 'no_such_package'"),
    ("leaves.py", "it ended the program (exit 3) while loading"),
    ("badly.py", "no place"),
]


@pytest.mark.parametrize("target, says", WRONG, ids=[target for target, _ in WRONG])
def test_what_cannot_be_served_is_exit_code_2_with_the_reason(code: Path, target: str, says: str) -> None:
    folder = code.parent
    with code.open("a") as file:
        file.write("empty = []\n")
    (folder / "config.json").write_text("{}")
    small(
        folder, "a = create_mcp_server(name='a', version='1')\nb = create_mcp_server(name='b', version='1')", "two.py"
    )
    small(folder, "x = 1\n", "none.py")
    small(folder, "def f():\n    undefined\nf()\n", "broken.py")
    small(folder, "import no_such_package\n", "lacking.py")
    small(folder, "raise SystemExit(3)\n", "leaves.py")
    small(folder, "def f(*args: int) -> int:\n    return 1\nserver = f\n", "badly.py")

    done = toolweave("serve", target, cwd=folder)

    assert (done.code, done.out) == (2, "")
    if says == "no place":
        assert "badly.py: 'server' cannot be served" in done.err
    else:
        assert says in done.err
    assert "site-packages/typer" not in done.err
    assert ("Traceback" in done.err) == (target in ("broken.py", "lacking.py"))


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["x.py", "--config", "mcp.json"],
        ["x.py", "--server", "a"],
        ["--skills", "none"],
        ["things.py:several", "--skills", "."],
        ["x.py", "--skills", "skills", "--reload"],
        ["--config", "empty.json", "--skills", "skills"],
        ["x.py", "--stateless"],
        ["x.py", "--token-env", "X"],
        ["x.py", "--state-keys-env", "X"],
        ["things.py:several", "--http", "0", "--state-keys-env", "TOOLWEAVE_NO_SUCH_VARIABLE"],
        ["x.py", "--allow-host", "X"],
        ["x.py", "--print"],
        ["x.py", "--json"],
        ["x.py", "--install", "cursor", "--http", "1"],
        ["x.py", "--install", "cursor", "--reload"],
        ["x.py", "--install", "emacs"],
        ["--", "server"],
        ["things.py:several", "--http", "port"],
        ["things.py:several", "--http", "70000"],
        ["things.py:several", "--http", "0", "--path", "mcp"],
        ["things.py:several", "--http", "0", "--token-env", "TOOLWEAVE_NO_SUCH_VARIABLE"],
        ["things.py:named", "--name", "other"],
        ["--config", "absent.json"],
        ["--config", "empty.json"],
    ],
    ids=" ".join,
)
def test_options_that_cannot_be_right_are_exit_code_2(code: Path, words: list[str]) -> None:
    (code.parent / "empty.json").write_text("{}")

    done = toolweave("serve", *words, cwd=code.parent)

    assert done.code == 2
    if "--json" in words:
        assert json.loads(done.out)["error"]["kind"] == "invalid_input"
    else:
        assert done.out == ""
        assert done.err.splitlines()[-1]
    assert "Traceback" not in done.err


# HTTP


@pytest.mark.requirement("R83", "C21")
async def test_over_http_a_json_line_tells_where(code: Path) -> None:
    with serving(f"{code}:several") as (said, _):
        assert said.keys() == {"url", "name", "tools"}
        assert (said["name"], said["tools"]) == ("several", 2)
        async with connect_mcp(said["url"], name="s") as connection:
            assert (await connection.call_tool("add", {"a": 1})).text == "3"


def test_over_http_a_line_for_people_comes_to_standard_error(code: Path) -> None:
    with on_terminal("serve", f"{code}:several", "--http", "localhost:0", "--path", "/tools") as terminal:
        shown = terminal.wait_for("Ctrl-C stops it")
        assert "several  http://localhost:" in shown
        assert "/tools  2 tools" in shown
        terminal.type("\x03")
        assert terminal.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_over_http_a_signal_ends_it_in_good_order(code: Path, number: signal.Signals) -> None:
    with serving(f"{code}:several") as (_, process):
        process.send_signal(number)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (0, "")
    assert err.splitlines() == ["printed while it is loaded"]


async def test_a_token_from_the_environment_is_asked_for(code: Path) -> None:
    secret = "a-token-of-some-length"
    with serving(f"{code}:several", "--token-env", "SECRET", env={"SECRET": secret}) as (said, process):
        async with connect_mcp(said["url"], name="s", auth=secret) as connection:
            assert (await connection.list_tools()).names == ("plain", "add")
        with pytest.raises(AuthRequiredError):
            await connect_mcp(said["url"], name="s", auth="another-token-of-some-length")
    assert process.returncode == 0


@pytest.mark.requirement("C21")
@pytest.mark.parametrize("revision", ["legacy", "2026-07-28"])
async def test_without_sessions_clients_of_both_eras_are_served(code: Path, revision: str) -> None:
    with serving(f"{code}:several", "--stateless") as (said, _), anyio.fail_after(BOUND):
        entry = {"url": said["url"], "protocol": revision}
        async with connect_mcp(entry, name="s") as one, connect_mcp(entry, name="s") as two:
            for connection in (one, two, one):
                assert (await connection.call_tool("plain", {"text": "x"})).text == "X"


def test_replicas_without_keys_that_they_share_are_warned_of(code: Path) -> None:
    with subprocess.Popen(
        [*SERVE, f"{code}:several", "--http", "0", "--stateless"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        process.terminate()
        process.communicate(timeout=60)

    assert "--state-keys-env VAR" in "".join(lines)


@pytest.mark.requirement("C14")
async def test_over_http_an_unknown_tool_is_a_protocol_error(code: Path) -> None:
    with serving(f"{code}:several") as (said, _), anyio.fail_after(BOUND):
        async with connect_mcp(said["url"], name="s") as connection:
            with pytest.raises(ProtocolError) as caught:
                await connection.call_tool("nobody")
            assert caught.value.code == -32602


def test_a_port_that_is_taken_is_one_line(code: Path) -> None:
    with serving(f"{code}:several") as (said, _):
        port = said["url"].split(":")[2].partition("/")[0]
        done = toolweave("serve", f"{code}:several", "--http", port)

    assert done.code == 2
    assert f"cannot listen on {port}: Address already in use" in done.err
    assert "hint: another program has this port: end it, give another port" in done.err
    assert "Traceback" not in done.err


def test_a_port_that_strangers_reach_is_warned_of(code: Path) -> None:
    with subprocess.Popen(
        [*SERVE, f"{code}:several", "--http", "0.0.0.0:0"], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        process.terminate()
        process.communicate(timeout=60)

    assert "warning: anyone who reaches this port can call the tools; --token-env VAR" in lines[1]


def test_a_server_over_stdio_loads_neither_the_sdk_nor_an_http_library(code: Path) -> None:
    program = (
        "import sys\n"
        "from toolweave.cli.main import main\n"
        f"code = main(['serve', {str(code)!r} + ':several'])\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(code, sorted(loaded & {'mcp', 'starlette', 'uvicorn', 'httptools', 'rich'}))\n"
    )
    done = ran([sys.executable, "-c", program], check=True)

    assert done.stdout.splitlines()[-1] == "0 []"
