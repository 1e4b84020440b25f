"""Slips on the command line, many of them words of other tools: each has a hint with the right form, and code 2."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import toolweave
from tests.cli.conftest import Cli
from toolweave.cli._variables import VARIABLES

ADD = '{"values": [1]}'
COMMANDS: dict[str, tuple[list[str], str]] = {
    "help as a command": (["help"], "toolweave --help lists the commands"),
    "help of a command": (["help", "tools"], "toolweave COMMAND --help the options of one"),
    "the version as a command": (["version"], "toolweave --version"),
    "list": (["list"], "toolweave tools lists the tools, toolweave config show the servers of the config"),
    "ls": (["ls"], "toolweave tools lists the tools"),
    "run": (["run", "server.py"], "toolweave serve FILE.py, or toolweave gateway --config FILE"),
    "dev": (["dev", "server.py"], "toolweave serve FILE.py"),
    "inspect": (["inspect", "server.py"], "toolweave doctor tries each server"),
    "ping": (["ping"], "toolweave doctor tries each server"),
    "add-json": (["add-json", "x", "{}"], "toolweave init begins a config"),
    "mcp add": (["mcp", "add", "x", "--", "npx", "x"], "toolweave install NAME writes a published server"),
    "remove": (["remove", "github"], "delete the entry of the server in its file"),
    "login": (["login", "github"], "did you mean toolweave auth login?"),
    "logout": (["logout"], "did you mean toolweave auth logout?"),
    "approve": (["approve", "x"], "did you mean toolweave runs approve?"),
    "a URL": (["https://example.org/mcp"], "toolweave tools --url https://example.org/mcp"),
    "a config": (["mcp.json"], "toolweave tools --config mcp.json"),
    "a program": (["npx", "-y", "x"], "toolweave tools -- npx -y x"),
    "a script": (["server.py"], "toolweave serve server.py, or toolweave tools -- python server.py"),
    "only the command of a server": (["--", "npx", "x"], "toolweave tools -- COMMAND ARGS..."),
    "an option before the command": (
        ["--config", "mcp.json", "tools"],
        "options stand after the command: toolweave tools --config",
    ),
    "a flag before the command": (
        ["--verbose", "doctor"],
        "options stand after the command: toolweave doctor --verbose",
    ),
    "a main option, nearly": (["--versoin"], "did you mean --version?"),
    "ls in a group": (["runs", "ls"], "did you mean toolweave runs list?"),
    "rm in a group": (["sessions", "rm", "x"], "did you mean toolweave sessions delete?"),
    "a group of one command": (["config", "mcp.json"], "did you mean toolweave config show?"),
    "an option before the command of a group": (
        ["auth", "--json", "list"],
        "options stand after the command: toolweave auth list --json",
    ),
    "nearly a command of a group that runs without": (["gateway", "stauts"], "did you mean status?"),
    "start of a gateway": (["gateway", "start"], "did you mean toolweave gateway run?"),
    "the status of a group that lists": (["auth", "status"], "did you mean toolweave auth list?"),
    "help in a group": (["runs", "help"], "toolweave runs --help lists all"),
}
OPTIONS: dict[str, tuple[list[str], str]] = {
    "a port": (["serve", "a.py", "--port", "8000"], "did you mean --http [HOST:]PORT?"),
    "a port in short": (["gateway", "-c", "mcp.json", "-p", "8000"], "did you mean --http [HOST:]PORT?"),
    "the port of a worker": (["worker", "a.py", "--port", "8000"], "did you mean --http [HOST:]PORT?"),
    "the port of a server to reach": (["tools", "--port", "8000"], "did you mean --url http://HOST:PORT/mcp?"),
    "a transport to serve by": (["serve", "a.py", "--transport", "stdio"], "without it stdio"),
    "a transport to reach by": (["tools", "--transport", "http"], "did you mean --url URL, or -- COMMAND ARGS...?"),
    "an endpoint": (["tools", "--endpoint", "x"], "did you mean --url http://HOST:PORT/mcp?"),
    "a command as an option": (["tools", "--command", "npx"], "did you mean -- COMMAND ARGS...?"),
    "a variable of a server": (["tools", "-e", "A=B"], "did you mean -- env NAME=VALUE COMMAND ARGS...?"),
    "a token": (["tools", "--token", "s3cr3t"], "did you mean --bearer-env VAR?"),
    "a token to require": (["serve", "a.py", "--token", "s3cr3t"], "did you mean --token-env VAR?"),
    "arguments of a tool": (["call", "add", "--args", ADD], "did you mean --json-args JSON?"),
    "arguments as Inspector has them": (["call", "add", "--tool-arg", "a=1"], "did you mean --json-args JSON?"),
    "a format": (["tools", "--format", "json"], "did you mean --json?"),
    "a file": (["tools", "-f", "mcp.json"], "did you mean --config FILE?"),
    "a level of the log": (["tools", "--log-level", "debug"], "did you mean --verbose?"),
    "the version behind a command": (["tools", "--version"], "toolweave --version"),
    "a client": (["serve", "a.py", "--client", "cursor"], "did you mean --install CLIENT?"),
    "an option without its value": (["tools", "--config"], "-c, --config FILE"),
    "a choice without its value": (["init", "--from"], "--from [claude|cursor|vscode]"),
    "one dash before an argument": (["call", "add", "-values=1"], "arguments of a tool have no dashes: values=VALUE"),
    "an argument behind a flag": (["call", "add", "--json", "--values", "1"], "values=VALUE"),
}
WORDS: dict[str, tuple[list[str], str]] = {
    "a server of the config": (
        ["doctor", "github"],
        "named by its option: --server github; the command of a server stands after --: -- github",
    ),
    "a server of the config to serve": (
        ["gateway", "-c", "mcp.json", "github"],
        "named by its option: --server github",
    ),
    "a config": (["tools", "mcp.json"], "a config file is given by its option: --config mcp.json"),
    "a config in YAML": (["status", "conf/mcp.yaml"], "--config conf/mcp.yaml"),
    "a URL": (["tools", "https://example.org/mcp"], "the URL of a server is given by its option: --url https://"),
    "a path": (["tools", "./server"], "the command of a server stands after --: -- ./server"),
    "help": (["tools", "help"], "toolweave tools --help shows its options"),
    "a URL without a scheme": (["tools", "--url", "127.0.0.1:8000/mcp"], "must start with http:// or https://"),
    "a URL without a scheme to sign in at": (["auth", "login", "--url", "example.org/mcp"], "https://example.org/mcp"),
    "servers in one word": (["tools", "--config", "two.json", "--server", "aye,bee"], "--server aye --server bee"),
    "a server in other letters": (["tools", "--config", "two.json", "-s", "AYE"], "did you mean aye?"),
    "a server that is nearly right": (["doctor", "--config", "two.json", "-s", "beee"], "did you mean bee?"),
    "a folder as config": (["tools", "--config", "folder"], "name a file in the folder: --config folder/mcp.json"),
    "a script as config": (
        ["tools", "--config", "server.py"],
        "stands after --: -- python server.py",
    ),
    "a URL as config": (["tools", "--config", "https://example.org/mcp"], "given by its option: --url URL"),
    "another URL than an address": (["serve", "server.py", "--http", "http://127.0.0.1:8000"], "HOST:PORT"),
    "a value of a list": (["tools", "--timeout", "5s"], "expected a number, got '5s'"),
}
ARGUMENTS: dict[str, tuple[list[str], str]] = {
    "the quotes of Windows": (["call", "add", "'{values:[1]}'"], "some shells take the double quotes out"),
    "quotes that a shell took": (["call", "add", "{values:[1]}"], "names and texts in JSON stand in double quotes"),
    "single quotes": (["call", "add", "{'values': [1]}"], "names and texts in JSON stand in double quotes"),
    "curly quotes": (["call", "add", "{\u201cvalues\u201d: [1]}"], "JSON has straight double quotes"),
    "an object without quotes as option": (["call", "add", "--json-args", "{a:1}"], "stand in double quotes"),
    "YAML": (["call", "add", "values:", "1"], "write values=VALUE, or values:=JSON"),
    "YAML in one word": (["call", "add", "values:1"], "write values=VALUE, or values:=JSON"),
    "a text as JSON": (["call", "add", "name:=ann"], "key=VALUE takes a text as it is"),
    "a list of texts as JSON": (["call", "add", "names:=[ann, bob]"], "stand in double quotes"),
    "a boolean of Python": (["call", "add", "all:=True"], "JSON has true, false and null"),
    "a name and a value": (["call", "add", "values", "1"], "write key=value, key:=JSON"),
}
ALL = [pytest.param(*slip, id=name) for group in (COMMANDS, OPTIONS, WORDS, ARGUMENTS) for name, slip in group.items()]


@pytest.mark.parametrize(("words", "hint"), ALL)
def test_a_slip_has_a_hint_with_the_right_form(cli: Cli, folder: Path, words: list[str], hint: str) -> None:
    (folder / "folder").mkdir()
    (folder / "server.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")

    (folder / "two.json").write_text('{"mcpServers": {"aye": {"command": "x"}, "bee": {"command": "x"}}}')

    done = cli(*words)

    assert done.code == 2
    assert "--json" in words or not done.out
    assert hint in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert "s3cr3t" not in done.err


SECRET = "sk-S3cr3tS3cr3tS3cr3t"


@pytest.mark.parametrize(
    "words",
    [
        ["tools", "python", "server.py", "--api-key", SECRET],
        ["tools", f"https://ann:{SECRET}@example.org/mcp"],
        [f"https://example.org/mcp?token={SECRET}"],
        ["npx", "server", "--token", SECRET],
        ["tools", "--url", "http://x", "--header", f"Authorization Bearer {SECRET}"],
        ["tools", "--url", "http://x", "--header", f"Authorization=Bearer {SECRET}"],
        ["tools", "--url", "http://x", "--bearer-env", SECRET],
        ["serve", "server.py", "--http", "0", "--token-env", SECRET],
        ["gateway", "-c", "mcp.json", "--http", "0", "--state-keys-env", SECRET],
        [f"--token={SECRET}", "tools"],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_a_secret_that_is_typed_at_a_wrong_place_is_not_repeated(cli: Cli, folder: Path, words: list[str]) -> None:
    (folder / "mcp.json").write_text('{"mcpServers": {}}')
    (folder / "server.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")

    done = cli(*words)

    assert done.code == 2
    assert SECRET not in done.err
    assert "error: " in done.err


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TOOLWEAVE_TOKENKEY", "TOOLWEAVE_TOKEN_KEY"),
        ("TOOLWEAVE_TOKEN_KEYS", "TOOLWEAVE_TOKEN_KEY"),
        ("toolweave_backend", "TOOLWEAVE_BACKEND"),
        ("TOOLWEAVE_REGISTERY", "TOOLWEAVE_REGISTRY"),
    ],
)
def test_a_misspelt_variable_is_named(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "word-of-the-owner")

    done = cli("tools")

    assert f"the environment variable {name} is not read; did you mean {meant}?" in done.err
    assert "word-of-the-owner" not in done.err


@pytest.mark.parametrize(
    "name", ["TOOLWEAVE_TOKEN_KEY", "TOOLWEAVE_MODEL", "TOOLWEAVE_API_TOKEN", "TOOLWEAVE_SHARED", "TOOLWEAVE_SHOP"]
)
def test_a_variable_that_is_read_or_the_owners_own_is_not_named(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "0" * 64)

    assert "environment variable" not in cli("tools").err


def test_the_variables_that_a_name_is_compared_with_are_those_of_the_source() -> None:
    package = Path(toolweave.__file__).parent
    source = "".join(path.read_text("utf-8") for path in package.rglob("*.py"))

    assert set(VARIABLES) == set(re.findall(r'"TOOLWEAVE_([A-Z_]+)"', source))
