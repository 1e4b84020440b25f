"""`toolweave tools`: every tool of every server that answers, whatever is broken beside it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Done, toolweave, trust, write_config
from tests.servers.fixtures import echo_command, fault_command, http_server

Cli = Callable[..., Done]

ABSENT = ["toolweave-test-no-such-command"]
SERVER_KEYS = {"state", "protocol_version", "server_info", "tools", "error", "seconds"}
TOOL_KEYS = {
    *("name", "server", "tool", "title", "description", "input_schema", "output_schema", "annotations"),
    *("icons", "execution", "_meta"),
}


def test_json_has_the_documented_shape(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"old": echo_command(), "new": echo_command("--era", "modern")})

    done = cli("tools", "--config", config, "--json")

    assert done.code == 0
    assert done.json.keys() == {"servers", "tools"}
    assert {name: server.keys() for name, server in done.json["servers"].items()} == {
        "old": SERVER_KEYS,
        "new": SERVER_KEYS,
    }
    old, new = done.json["servers"]["old"], done.json["servers"]["new"]
    assert (old["state"], old["protocol_version"], old["error"]) == ("ready", "2025-11-25", None)
    assert (new["state"], new["protocol_version"], new["error"]) == ("ready", "2026-07-28", None)
    assert old["server_info"]["version"] == "1.2.3"
    assert old["seconds"] > 0
    assert all(tool.keys() == TOOL_KEYS for tool in done.json["tools"])
    add = next(tool for tool in done.json["tools"] if tool["name"] == "old_add")
    assert (add["server"], add["tool"]) == ("old", "add")
    assert add["input_schema"]["required"] == ["a", "b"]
    assert old["tools"] == sum(tool["server"] == "old" for tool in done.json["tools"])


@pytest.mark.requirement("R64", "C3")
def test_a_server_that_fails_costs_the_others_nothing(cli: Cli, folder: Path) -> None:
    servers = {
        "absent": ABSENT,
        "dies": fault_command("exits_at_once"),
        "good": echo_command(),
        "wrong": {"comand": "python"},
    }
    config = write_config(folder, servers)

    done = cli("tools", "--config", config, "--json")

    assert done.code == 0
    states = {name: server["state"] for name, server in done.json["servers"].items()}
    assert states == {"absent": "failed", "dies": "failed", "good": "ready", "wrong": "failed"}
    assert {tool["server"] for tool in done.json["tools"]} == {"good"}
    assert "was not found" in done.json["servers"]["absent"]["error"]
    assert "exit code 3" in done.json["servers"]["dies"]["error"]
    assert "'wrong'" in done.json["servers"]["wrong"]["error"]


def test_with_strict_any_failed_server_is_exit_code_3(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"absent": ABSENT, "good": echo_command()})

    assert cli("tools", "--config", config, "--strict", "--json").code == 3
    assert cli("tools", "--config", config, "--strict", "--server", "good", "--json").code == 0


def test_when_no_server_answers_the_exit_code_is_3(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"absent": ABSENT, "wrong": {"url": 5}})

    done = cli("tools", "--config", config)

    assert done.code == 3
    assert done.out == ""
    assert done.err.count("failed: ") == 2


def test_when_every_entry_is_wrong_the_exit_code_is_2(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"wrong": {"url": 5}})

    assert cli("tools", "--config", config).code == 2


def test_the_view_shows_each_server_its_tools_and_their_cost(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"one": echo_command(), "two": echo_command("--era", "modern"), "absent": ABSENT})

    done = cli("tools", "--config", config)

    assert done.code == 0
    assert "one  2025-11-25  26 tools  ~" in done.out
    assert "two_add" in done.out
    assert "Add two numbers." in done.out
    assert "total  2 servers  52 tools  ~" in done.out
    assert "absent" not in done.out
    assert "failed: server 'absent': its command 'toolweave-test-no-such-command' was not found" in done.err


def test_the_cost_is_a_quarter_of_the_definitions_bytes(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"one": fault_command("no_tools"), "two": echo_command("--tools", "400")})

    done = cli("tools", "--config", config)

    assert "one  2025-11-25  0 tools  " in done.out
    tokens = int(done.out.split("two  ")[1].split("~")[1].split(" ")[0].replace(",", ""))
    assert 400 * 20 < tokens < 400 * 80


def test_schemas_are_shown_on_request(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"one": echo_command()})

    done = cli("tools", "--config", config, "--schema")

    assert '"required": [' in done.out


def test_only_the_named_servers_are_started(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"one": echo_command(), "two": echo_command()})

    done = cli("tools", "--config", config, "--server", "two", "--json")

    assert list(done.json["servers"]) == ["two"]


def test_a_later_config_adds_servers_and_the_first_to_name_one_wins(cli: Cli, folder: Path) -> None:
    first = write_config(folder, {"one": echo_command("--name", "first")}, "first.json")
    second = write_config(folder, {"one": echo_command("--name", "second"), "two": echo_command()}, "second.json")

    done = cli("tools", "--config", first, "--config", second, "--json")

    assert done.json["servers"]["one"]["server_info"]["name"] == "first"
    assert list(done.json["servers"]) == ["one", "two"]


@pytest.mark.parametrize("place", ["mcp.json", ".mcp.json", ".vscode/mcp.json"])
def test_without_a_config_the_projects_own_is_found(cli: Cli, folder: Path, place: str) -> None:
    (folder / place).parent.mkdir(exist_ok=True)
    section = "servers" if "vscode" in place else "mcpServers"
    command, *args = echo_command()
    (folder / place).write_text(json.dumps({section: {"here": {"command": command, "args": args}}}))
    trust(folder / place)

    assert list(cli("tools", "--json").json["servers"]) == ["here"]


def test_the_projects_pyproject_and_then_the_users_editor_are_looked_at(cli: Cli, folder: Path, home: Path) -> None:
    command, *args = echo_command()
    entry = {"command": command, "args": args}
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"editor": entry}}))

    assert list(cli("tools", "--json").json["servers"]) == ["editor"]

    (folder / "pyproject.toml").write_text(
        f"[tool.toolweave.mcpServers.project]\ncommand = {command!r}\nargs = {args!r}"
    )

    assert list(cli("tools", "--json", "--trust").json["servers"]) == ["project"]


def test_a_disabled_server_is_not_started_and_no_failure(cli: Cli, folder: Path) -> None:
    entry = {"command": "none", "disabled": True}
    config = write_config(folder, {"off": entry, "on": echo_command()})

    done = cli("tools", "--config", config, "--json", "--strict")

    assert done.code == 0
    assert list(done.json["servers"]) == ["on"]


def test_one_server_may_be_given_on_the_spot(cli: Cli) -> None:
    by_command = cli("tools", "--json", "--", *echo_command())
    named = cli("tools", "--json", "--server", "mine", "--", *echo_command())
    with http_server("--era", "modern") as url:
        by_url = cli("tools", "--json", "--url", url)

    assert list(by_command.json["servers"]) == ["run"]  # by the script of the command
    assert list(named.json["servers"]) == ["mine"]
    assert by_url.json["servers"]["127.0.0.1"]["protocol_version"] == "2026-07-28"


@pytest.mark.parametrize("options", [(), ("--server", "mine")])
def test_the_tools_of_one_server_on_the_spot_have_no_prefix(cli: Cli, options: tuple[str, ...]) -> None:
    by_command = cli("tools", "--json", *options, "--", *echo_command())
    with http_server("--era", "modern") as url:
        by_url = cli("tools", "--json", *options, "--url", url)
        shown = cli("tools", *options, "--url", url)

    assert {tool["name"] for tool in by_command.json["tools"]} == {tool["tool"] for tool in by_command.json["tools"]}
    assert {tool["name"] for tool in by_url.json["tools"]} == {tool["tool"] for tool in by_url.json["tools"]}
    heading = shown.out.splitlines()[1]
    assert heading.startswith("mine  2026-07-28" if options else "127.0.0.1  echo 1")  # a host says little


def test_a_tool_on_the_spot_is_called_by_each_of_its_names(cli: Cli) -> None:
    numbers = ("--", sys.executable, "-m", "toolweave.cli.demo.numbers")

    for name in ("add", "numbers:add", "numbers/add", "numbers_add"):
        assert cli("call", name, "values:=[1, 2]", *numbers).json == {"sum": 3}, name
    assert cli("explain", "add", *numbers).out.split()[:2] == ["add", "offered"]


@pytest.mark.requirement("R25")
def test_a_url_may_want_headers_and_a_token_that_never_shows(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2-secret")
    with http_server("--era", "modern", "--require-bearer", "hunter2-secret") as url:
        refused = cli("tools", "--url", url)
        by_variable = cli("tools", "--url", url, "--bearer-env", "MY_TOKEN", "--json", "--verbose")
        by_header = cli("tools", "--url", url, "--header", "Authorization: Bearer hunter2-secret", "--json")

    assert refused.code == 3
    assert f"hint: sign in: toolweave auth login {url};" in refused.err
    assert by_variable.code == by_header.code == 0
    assert "hunter2" not in by_variable.out + by_variable.err + by_header.out + by_header.err


@pytest.mark.parametrize(
    "args, expected",
    [
        (["--url", "http://x", "--", "y"], "--url, --openapi and -- COMMAND exclude each other"),
        (["--config", "a.json", "--url", "http://x"], "--config does not go with --url, --openapi or -- COMMAND"),
        (["--header", "a: b"], "--header and --bearer-env go with --url"),
        (["--header", "a: b", "--", "y"], "--header and --bearer-env go with --url"),
        (["--url", "http://x", "--header", "nothing"], "--header: expected 'Name: value'"),
        (["--url", "http://x", "--bearer-env", "UNSET_VARIABLE"], "environment variable 'UNSET_VARIABLE' is not set"),
        (["--url", "http://x", "--server", "a", "--server", "b"], "give --server once"),
        (["--url", "no-url at all"], "'url'"),
        (["--"], "after -- the command of a stdio server is expected"),
        (["--timeout", "0"], "--timeout"),
        (["--timeout", "soon"], "--timeout"),
        (["--nonsense"], "--nonsense"),
        ([], "no config was found"),
        (["--config", "absent.json"], "absent.json: the file does not exist"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_message_on_standard_error(cli: Cli, args: list[str], expected: str) -> None:
    done = cli("tools", *args)

    assert done.code == 2
    assert expected in done.err
    assert done.out == ""


@pytest.mark.slow
def test_a_config_without_servers_says_so(cli: Cli, folder: Path) -> None:
    empty = write_config(folder, {}, "empty.json")
    off = write_config(folder, {"a": {"command": "x", "disabled": True}}, "off.json")

    assert "empty.json: no server to start" in cli("tools", "--config", empty).err
    assert "off.json: no server to start\n  a: it is switched off in the config" in cli("tools", "--config", off).err
    assert cli("tools", "--config", empty).code == 2


@pytest.mark.parametrize("name", ["absent", "off"])
def test_an_unknown_or_disabled_server_is_exit_code_2(cli: Cli, folder: Path, name: str) -> None:
    config = write_config(folder, {"on": echo_command(), "off": {"command": "x", "disabled": True}})

    done = cli("tools", "--config", config, "--server", name)

    assert done.code == 2
    assert f"server {name!r}" in done.err


def test_an_error_is_a_document_where_json_was_asked_for(cli: Cli, folder: Path) -> None:
    commands = ("tools", "status", "doctor", "resources", "prompts", "call x", "config show", "runs show nothing")
    for command in commands:
        words = [*command.split(), "--json"]
        done = cli(*words) if command.startswith("runs") else cli(*words, "--config", "nofile.json")

        assert done.json["error"]["exit_code"] == done.code, command
        assert done.code in (1, 2)
        assert done.json["error"]["message"] in done.err.replace("\n  ", " ")
    wrong = cli("tools", "--json", "--bogus")
    assert (wrong.code, wrong.json["error"]["kind"]) == (2, "invalid_input")
    assert cli("tools", "--config", "nofile.json").out == ""


def test_only_options_that_look_alike_are_named(cli: Cli, folder: Path) -> None:
    assert "Possible options" not in cli("tools", "--bogus").err
    assert "--config" in cli("tools", "--confg").err


DECORATED = """
import json, sys
BESIDE = {"_meta": {"k": 1}, "icons": [{"src": "https://e.example/i.png"}], "execution": {"taskSupport": "optional"}}
ABOUT = {"capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
ANSWERS = {
    "initialize": {"protocolVersion": "2025-11-25", **ABOUT},
    "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}, **BESIDE}]},
}
for line in sys.stdin:
    message = json.loads(line)
    answer = ANSWERS.get(message["method"])
    said = {"result": answer} if answer else {"error": {"code": -32601, "message": "Method not found"}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"""


def test_a_tools_json_has_what_its_server_said_beside_the_schemas(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"s": [sys.executable, "-c", DECORATED]})

    tool = cli("tools", "--config", config, "--json").json["tools"][0]

    assert {name: tool[name] for name in ("icons", "execution", "_meta")} == {
        "icons": [{"src": "https://e.example/i.png"}],
        "execution": {"taskSupport": "optional"},
        "_meta": {"k": 1},
    }


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "tools", "doctor"])
def test_no_word_is_broken_on_a_narrow_terminal(command: str, folder: Path) -> None:
    config = write_config(folder, {"numbers": echo_command(), "absent": {"command": "toolweave-no-such-program"}})

    done = toolweave(command, "--config", config, cwd=folder, env={"COLUMNS": "44"})
    words = {word.strip("':;,.") for word in (done.out + done.err).split()}

    for whole in ("numbers", "toolweave-no-such-program", "command", *(["failed"] if command != "doctor" else [])):
        assert whole in words
    lines = [line for line in (done.out + done.err).splitlines() if len(line) > 44]
    assert all(len(line.split()) <= 2 or "/" in line for line in lines), lines


@pytest.mark.slow
def test_an_argument_is_utf8_whatever_the_locale(folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command()})
    plain = {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}

    done = toolweave("call", "--config", config, "echo_echo", "text=naïve", "--json", cwd=folder, env=plain)
    whole = toolweave(
        "call", "--config", config, "echo_echo", "--json-args", '{"text": "naïve"}', cwd=folder, env=plain
    )
    latin = toolweave("call", "--config", config, "echo_echo", os.fsdecode(b"text=na\xefve"), cwd=folder, env=plain)

    assert (done.code, whole.code, latin.code) == (0, 0, 2)
    assert "naïve" in json.dumps(done.json, ensure_ascii=False)
    assert "is not UTF-8: arguments are read as UTF-8 in every locale" in latin.err
