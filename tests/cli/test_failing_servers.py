"""The ways in which a server really fails: each error says which thing, what failed, and what to do next."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.command import Done, toolweave
from tests.openapi.mock_api import MockApi, MockResponse, Received, serving

pytestmark = pytest.mark.slow

NPM_404 = """npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/@none%2fno-such-mcp
npm error 404
npm error 404  The requested resource '@none/no-such-mcp@*' could not be found or you do not have permission.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git url.
npm error A complete log of this run can be found in: /home/ann/.npm/_logs/1-debug-0.log
"""
UV_MISSING = """  x No solution found when resolving tool dependencies:
  `-> Because no-such-mcp was not found in the package registry and you require
      no-such-mcp, we can conclude that your requirements are unsatisfiable.
"""
NODE_FILE = """node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module '/srv/missing.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.20.2
"""
NODE_PACKAGE = NODE_FILE.replace("'/srv/missing.js'", "'@modelcontextprotocol/sdk'")


@dataclass(frozen=True)
class Way:
    """A way to fail.

    Attributes:
        words: What is given to a command, with `{folder}`, `{url}`, `{port}` in it.
        says: What the error says: the thing, and what failed.
        next: What it says to do.
        files: Programs in the folder: a text that is printed to standard error before exit code 1, by name.
    """

    words: Sequence[str]
    says: Sequence[str]
    next: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])


def prints(name: str, text: str) -> dict[str, str]:
    return {name: f"#!{sys.executable}\nimport sys\nsys.stderr.write({text!r})\nsys.exit(1)\n"}


PY = sys.executable
WAYS: dict[str, Way] = {
    "a package that npm does not have": Way(
        ["--", "{folder}/npx", "-y", "@none/no-such-mcp"],
        ["'no-such-mcp'", "The requested resource '@none/no-such-mcp@*' could not be found"],
        "the npm registry has no package '@none/no-such-mcp': check its name in `args`",
        prints("npx", NPM_404),
    ),
    "a package that PyPI does not have": Way(
        ["--", "{folder}/uvx", "no-such-mcp"],
        ["'no-such-mcp'", "no-such-mcp was not found in the package registry"],
        "the package registry does not have it: check the package's name in `args`",
        prints("uvx", UV_MISSING),
    ),
    "a module that its Python does not have": Way(
        ["--", PY, "-m", "no_such_module"],
        ["'no_such_module'", "exit code 1", "No module named no_such_module"],
        "its Python has no module 'no_such_module': install the package that has it into that Python",
    ),
    "a module that its program imports": Way(
        ["--", PY, "{folder}/server.py"],
        ["'server'", "ModuleNotFoundError: No module named 'no_such_dependency'"],
        "its Python has no module 'no_such_dependency': install",
        {"server.py": "import no_such_dependency\n"},
    ),
    "a script that is not there": Way(
        ["--", PY, "{folder}/missing.py"],
        ["'missing'", "can't open file '{folder}/missing.py'"],
        "there is no file '{folder}/missing.py': give its full path in `args`, or its folder as `cwd`",
    ),
    "a script that Node.js does not find": Way(
        ["--", "{folder}/node", "missing.js"],
        ["'missing'", "Error: Cannot find module '/srv/missing.js'"],
        "there is no file '/srv/missing.js': give its full path in `args`",
        prints("node", NODE_FILE),
    ),
    "a package that Node.js does not find": Way(
        ["--", "{folder}/node", "server.js"],
        ["'server'", "Error: Cannot find module '@modelcontextprotocol/sdk'"],
        "Node.js finds no package '@modelcontextprotocol/sdk': run `npm install` in the server's folder",
        prints("node", NODE_PACKAGE),
    ),
    "a variable that is not set": Way(
        ["--", "{folder}/server.py"],
        ["'server'", "Error: API_TOKEN is required"],
        "it needs the variable API_TOKEN: set it in `env` of its entry in a config",
        prints("server.py", "Error: API_TOKEN is required\n"),
    ),
    "a variable that a program reads": Way(
        ["--", PY, "{folder}/server.py"],
        ["'server'", "KeyError: 'SECRET_KEY'"],
        "it needs the variable SECRET_KEY: set it in `env`",
        {"server.py": "import os\nos.environ['SECRET_KEY']\n"},
    ),
    "a command that is not on the PATH": Way(
        ["--", "no-such-command", "serve"],
        ["'no-such-command'", "its command 'no-such-command' was not found"],
        "install it, or give its full path in 'command'",
    ),
    "a folder in place of a program": Way(
        ["--", "{folder}"], ["its command '{folder}' is a folder"], "name the program in it"
    ),
    "a program that its shell does not find": Way(
        ["--", "sh", "-c", "no-such-program serve"],
        ["no-such-program", "exit code 127"],
        "it starts 'no-such-program', which is not on its PATH: install it, give its full path, or set PATH in `env`",
    ),
    "a program that env does not find": Way(
        ["--", "env", "A=B", "no-such-program"],
        ["'no-such-program'", "exit code 127"],
        "it starts 'no-such-program', which is not on its PATH",
    ),
    "an interpreter that its script names": Way(
        ["--", "{folder}/server.js"],
        ["'server'", "exit code 127"],
        "it starts 'no-such-node', which is not on its PATH",
        {"server.js": "#!/usr/bin/env no-such-node\n"},
    ),
    "https to a port of http": Way(
        ["--url", "https://127.0.0.1:{port}/mcp"],
        ["no answer from https://127.0.0.1:{port}/mcp", "wrong version number"],
        "that port answers without TLS: write http:// in place of https://",
    ),
    "a web page in place of MCP": Way(
        ["--url", "{url}/page"],
        ["HTTP 200", "a web page 'Welcome & hello'", "where JSON or an event stream was expected"],
        "the URL leads to a web page: check its path",
    ),
    "a web server that takes no POST": Way(
        ["--url", "{url}/form"],
        ["HTTP 501", "a web page 'Error response'"],
        "the URL leads to a web page: check its path",
    ),
    "a path that is not there": Way(
        ["--url", "{url}/nothing"], ["HTTP 404"], "check the path of the URL: most servers answer at /mcp"
    ),
    "a server that runs and answers nothing": Way(
        ["--timeout", "2", "--", PY, "{folder}/server.py"],
        ["'server'", "it did not finish connecting within 2 s"],
        "it runs and answers nothing: it may wait for arguments, speak HTTP only, or not be an MCP server; start it by "
        "hand:",
        {"server.py": "import sys\nsys.stdin.read()\n"},
    ),
    "a port where nothing listens": Way(
        ["--url", "http://127.0.0.1:1/mcp"],
        ["no answer from http://127.0.0.1:1/mcp"],
        "check that the server runs, and its host and port",
    ),
    "a host that has no address": Way(
        ["--url", "http://no-such-host.invalid/mcp"],
        ["no answer from http://no-such-host.invalid/mcp"],
        "the host's name leads nowhere from this machine",
    ),
    "a program that speaks no MCP": Way(
        ["--", "echo", "hello"], ["'echo'", "1 line of its output was not MCP, the last 'hello'"], "run echo hello"
    ),
    "arguments that it does not know": Way(
        ["--", "{folder}/server.py"],
        ["'server'", "error: the following arguments are required: --root"],
        "it expects other arguments: compare `args` with the usage that it prints",
        prints("server.py", "usage: server.py [-h] --root ROOT\nerror: the following arguments are required: --root\n"),
    ),
}


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    """The URL of a web server that knows no MCP."""

    def page(request: Received) -> MockResponse:
        body = b"<!doctype html><html><head><title>Welcome & hello</title></head><body>" + b"x" * 900
        return MockResponse(body, headers={"content-type": "text/html; charset=utf-8"})

    api = MockApi({"paths": {}})

    def form(request: Received) -> MockResponse:
        body = b"<!DOCTYPE HTML><html><head><title>Error response</title></head><body>Unsupported method</body></html>"
        return MockResponse(body, 501, headers={"content-type": "text/html;charset=utf-8"})

    api.answers["/page"] = page
    api.answers["/form"] = form
    with serving(api) as url:
        yield url


def tried(command: str, way: Way, folder: Path, web: str) -> tuple[Done, dict[str, str]]:
    for name, text in way.files.items():
        file = folder / name
        file.write_text(text)
        file.chmod(0o755)
    names = {"folder": str(folder), "url": web, "port": web.rpartition(":")[2]}
    words = [word.format(**names) for word in way.words]
    return toolweave(command, *words, cwd=folder), names


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_the_command_names_what_failed_and_what_to_do_next(folder: Path, web: str, way: Way) -> None:
    done, names = tried("tools", way, folder, web)

    text = " ".join(done.err.split())
    assert done.code == 3
    for words in way.says:
        assert words.format(**names) in text
    assert way.next.format(**names) in text
    assert "Traceback" not in done.err.partition("last words")[0]
    assert "plain http, where anyone" not in text


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_doctor_has_the_whole_output_and_the_next_step(folder: Path, web: str, way: Way) -> None:
    done, names = tried("doctor", way, folder, web)

    text = " ".join(done.out.split())
    assert done.code == 3
    for words in way.says:
        assert words.format(**names).strip("'") in text
    assert way.next.format(**names) in text


def test_a_call_to_a_server_that_does_not_start_says_the_same(folder: Path, web: str) -> None:
    way = WAYS["a variable that is not set"]
    for name, text in way.files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    done = toolweave("call", "search", "text=x", "--", folder / "server.py")

    assert done.code == 3
    assert "API_TOKEN is required" in done.err
    assert "it needs the variable API_TOKEN: set it in `env`" in " ".join(done.err.split())


@pytest.mark.parametrize("command", [("serve",), ("gateway",), ("gateway", "--http", "127.0.0.1:0")], ids=" ".join)
def test_the_log_of_a_served_config_has_the_next_step_for_each_server_that_fails(
    folder: Path, web: str, command: tuple[str, ...]
) -> None:
    ways = [way for way in WAYS.values() if way.words[0] in ("--", "--url")]
    entries: dict[str, Mapping[str, object]] = {}
    missing: set[str] = set()
    for number, way in enumerate(ways):
        place = folder / str(number)
        place.mkdir()
        for name, text in way.files.items():
            (place / name).write_text(text)
            (place / name).chmod(0o755)
        names = {"folder": str(place), "url": web, "port": web.rpartition(":")[2]}
        kind, first, *rest = (word.format(**names) for word in way.words)
        entries[f"s{number}"] = {"url": first} if kind == "--url" else {"command": first, "args": rest}
        missing.add(way.next.format(**names))
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": entries}))

    program = [sys.executable, "-m", "toolweave", *command, "--config", str(config)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            text = " ".join("".join(lines).split())
            missing = {one for one in missing if one not in text}
            if not missing:
                break
        process.terminate()
        process.communicate(timeout=60)

    assert not missing


TYPED: dict[str, tuple[list[str], str, str]] = {
    "a command without the dashes before it": (
        ["tools", PY, "-m", "server"],
        "unknown option -m",
        f"the command of a server stands after --: -- {PY} -m server",
    ),
    "a command of one word without the dashes": (
        ["tools", "server.py"],
        "unexpected argument 'server.py'",
        "the command of a server stands after --: -- server.py",
    ),
    "an argument of a tool as an option": (
        ["call", "add", "--values", "1", "--", "x"],
        "unknown option --values",
        "arguments of a tool have no dashes: values=VALUE",
    ),
    "an option that is nearly right": (
        ["tools", "--serve", "a"],
        "unknown option --serve",
        "did you mean --server?",
    ),
    "a config without its option": (
        ["gateway", "my servers.json"],
        "unexpected argument 'my servers.json'",
        "a config file is given by its option: --config 'my servers.json'",
    ),
    "a port as other tools take it": (
        ["gateway", "--config", "mcp.json", "--port", "8000"],
        "unknown option --port",
        "did you mean --http [HOST:]PORT?",
    ),
    "a transport as other tools take it": (
        ["serve", "server.py", "--transport", "http"],
        "unknown option --transport",
        "did you mean --http [HOST:]PORT for HTTP, and without it stdio?",
    ),
    "a key that is nearly right": (
        ["tools", "--config", "mcp.json"],
        "server 'a': has neither 'command' nor 'url', but 'comand'",
        "write 'command'",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("words", "says", "next_step"), TYPED.values(), ids=list(TYPED))
def test_what_people_type_has_a_hint_with_the_right_form(
    folder: Path, words: list[str], says: str, next_step: str
) -> None:
    (folder / "mcp.json").write_text('{"mcpServers": {"a": {"comand": "python"}}}')

    done = toolweave(*words, cwd=folder)

    assert done.code == 2
    text = " ".join(done.err.split())
    assert says in text
    assert next_step in text


def test_a_server_by_name_where_no_config_is_has_a_next_step(folder: Path) -> None:
    done = toolweave("auth", "login", "notes", cwd=folder)

    assert done.code == 2
    assert "hint: no config with servers was found; name one: --config FILE" in " ".join(done.err.split())


def test_all_arguments_of_a_tool_are_given_as_one_object() -> None:
    demo = ["--", sys.executable, "-m", "toolweave.cli.demo.numbers"]

    done = toolweave("call", "add", '{"values": [1, 41]}', *demo)

    assert (done.code, done.out) == (0, '{"sum": 42}\n')
    twice = toolweave("call", "add", '{"values": [1]}', "--json-args", '{"values": [2]}', *demo)
    assert twice.code == 2
    assert "given twice, by --json-args and the argument in braces" in twice.err


def test_the_help_of_a_gateway_has_the_options_of_the_one_that_it_runs() -> None:
    done = toolweave("gateway", "--help")

    assert done.code == 0
    for option in ("--config FILE", "--http", "--token-env VAR"):
        assert option in done.out
    assert "Commands:" in done.out


def test_a_command_behind_env_has_its_own_name() -> None:
    env = shutil.which("env")
    assert env is not None
    done = toolweave("tools", "--", env, "A=B", sys.executable, "-m", "toolweave.cli.demo.numbers")

    assert done.code == 0
    assert done.out.split()[0] == "numbers"


def test_a_failed_server_has_no_time_in_which_it_started() -> None:
    done = toolweave("status", "--", sys.executable, "-c", "raise SystemExit(1)")

    assert " ms" not in done.out


def test_a_server_run_by_a_program_writes_where_it_runs(folder: Path) -> None:
    program = "from toolweave import create_mcp_server\ncreate_mcp_server('geo').run('http', port=0, path='/tools')\n"
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.terminate()
        process.communicate(timeout=60)

    assert line.startswith("server 'geo' runs at http://127.0.0.1:")
    assert line.endswith("/tools; Ctrl-C stops it\n")
