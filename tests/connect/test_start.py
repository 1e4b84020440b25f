"""How a server process is started, and every way in which that fails; what it inherits and what it does not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.connect.targets import connected, pid_of, steps_of
from tests.servers.fixtures import echo_command, fault_command
from toolweave import CallContext, ConfigError, ConnectError, ToolCall, connect_mcp
from toolweave.connect import register_transport


def target(*options: object, **settings: object) -> dict[str, object]:
    command, *args = echo_command(*options)
    return {"command": command, "args": args, **settings}


@pytest.mark.requirement("R59")
async def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConnectError) as failure:
        await connect_mcp(["no-such-program-anywhere", "--flag"], name="missing")
    assert str(failure.value) == (
        "server 'missing': its command 'no-such-program-anywhere' was not found; "
        "install it, or give its full path in 'command'"
    )


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("npx", "install Node.js"),
        ("uvx", "pip install uv"),
        ("docker", "install Docker"),
        ("python server.py", "'args'"),
    ],
)
async def test_a_missing_command_comes_with_what_to_do(command: str, hint: str) -> None:
    with pytest.raises(ConnectError, match=f"was not found; .*{hint}"):
        await connect_mcp({"command": command, "env": {"PATH": "/nowhere"}})


@pytest.mark.requirement("R59")
async def test_a_file_that_is_not_executable_is_named(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(ConnectError, match=r"server' is not executable; run chmod \+x on it"):
        await connect_mcp([str(program)])


async def test_an_executable_that_is_no_program_is_named(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_bytes(b"\x00\x01 no program")
    program.chmod(0o755)
    with pytest.raises(ConnectError, match=r"could not be started: .*Exec format error"):
        await connect_mcp([str(program)])


@pytest.mark.parametrize("cwd", ["/nowhere/at/all", "/" + "x" * 300])
async def test_a_working_directory_that_does_not_exist_is_named(cwd: str) -> None:
    with pytest.raises(ConnectError, match=f"working directory '{cwd}' does not exist; correct 'cwd'"):
        await connect_mcp(target(cwd=cwd))


async def test_a_command_that_is_too_long_for_a_file_was_not_found() -> None:
    with pytest.raises(ConnectError, match="was not found"):
        await connect_mcp(["./" + "x" * 300])


@pytest.mark.requirement("R59")
async def test_a_server_that_exits_at_once_leaves_its_exit_code_and_last_words() -> None:
    with pytest.raises(ConnectError) as failure:
        await connect_mcp(fault_command("exits_at_once", "--code", 5), name="brief")
    assert failure.value.exit_code == 5
    assert failure.value.stderr == "reading settings\nfatal: no API key in EXAMPLE_TOKEN"
    assert "run.py faults --mode exits_at_once" in str(failure.value)


COMPLAINS = """
import json, os, sys

for number in range(30):
    print("starting", number, file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": -32602, "message": "invalid"}}
    if message["method"] == "server/discover":
        for number in range(40):
            print("Failed to validate request: error", number, file=sys.stderr, flush=True)
    elif message["method"] == "initialize":
        if "initialize" in sys.argv:
            print("cannot initialize", file=sys.stderr, flush=True)
        else:
            del answer["error"]
            answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {}}
    elif message["method"] == "tools/call":
        print("one\\ntwo\\nFATAL: the disk is on fire\\nfour\\n" + "five " * 1000, file=sys.stderr, flush=True)
        os._exit(7)
    if "id" in message:
        print(json.dumps(answer), flush=True)
"""


@pytest.mark.requirement("R24", "R59", "R60")
async def test_the_last_words_of_a_server_are_few_and_none_that_the_probe_caused() -> None:
    async with connect_mcp([sys.executable, "-c", COMPLAINS], name="old", restart="never") as connection:
        assert "Failed to validate" in connection.stderr_tail
        result = await connection.call(ToolCall(name="die", arguments={}), CallContext())
    first, *others = (line.removeprefix("  ") for line in result.text.splitlines())
    assert first == (
        "MCP error: server 'old': its process ended while the call ran (exit code 7); "
        "its last words on standard error: FATAL: the disk is on fire"
    )
    assert others[0] == "four"
    assert others[1].startswith("five five")
    assert (len(others), len(others[1])) == (2, 300)
    assert result.error is not None
    assert result.error.data["exit_code"] == 7
    assert "one\ntwo\nFATAL" in result.error.data["stderr"]
    assert "validate" not in str(result.error.to_dict())


async def test_a_failed_handshake_does_not_blame_the_probe() -> None:
    with pytest.raises(ConnectError) as failure:
        await connect_mcp([sys.executable, "-c", COMPLAINS, "initialize"], name="old")
    assert "validate" not in str(failure.value)


async def test_a_secret_that_a_dying_server_prints_is_masked() -> None:
    secret = "hunter2-hunter2-hunter2"
    program = "import os, sys; sys.exit('bad key ' + os.environ['API_TOKEN'])"
    with pytest.raises(ConnectError) as failure:
        await connect_mcp({"command": sys.executable, "args": ["-c", program], "env": {"API_TOKEN": secret}})
    assert "bad key" in str(failure.value)
    assert secret not in str(failure.value) + failure.value.stderr


async def test_control_characters_of_a_dying_server_do_not_reach_the_error() -> None:
    program = r"import sys; sys.exit('\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b1m back\x08\x08 done')"
    with pytest.raises(ConnectError) as failure:
        await connect_mcp([sys.executable, "-c", program])
    assert "red" in failure.value.stderr
    assert not [char for char in failure.value.stderr if ord(char) < 32 or 127 <= ord(char) < 160]


@pytest.mark.requirement("R9", "C27", "D3")
async def test_variables_of_the_config_are_merged_over_a_safe_part_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ours")
    monkeypatch.setenv("UV_PUBLISH_TOKEN", "ours")
    monkeypatch.setenv("UV_CACHE_DIR", "/cache")
    monkeypatch.setenv("LC_ALL", "C")
    async with connected(target(env={"EXAMPLE_KEY": "given", "LC_ALL": "C.UTF-8"})) as connection:
        result = await connection.call_tool("env")
        names = result.structured_content["names"]
        values = (await connection.call_tool("env", {"names": ["EXAMPLE_KEY", "LC_ALL", "PATH"]})).structured_content

    assert {"PATH", "HOME", "UV_CACHE_DIR"} <= set(names)
    assert "GITHUB_TOKEN" not in names
    assert "UV_PUBLISH_TOKEN" not in names
    assert values == {"EXAMPLE_KEY": "given", "LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}


@pytest.mark.requirement("R26")
async def test_secrets_travel_by_the_environment_and_not_on_the_command_line() -> None:
    async with connected(target("--", "plain", env={"API_TOKEN": "hunter2-hunter2"})) as connection:
        args = await connection.call_tool("args", {"a": 1})
        command_line = Path(f"/proc/{pid_of(connection)}/cmdline")
        shown = command_line.read_text() if command_line.exists() else ""
    assert args.structured_content == {"arguments": {"a": 1}, "argv": ["--", "plain"]}
    assert "hunter2" not in shown + args.text


@pytest.mark.requirement("R9")
async def test_the_working_directory_of_the_config_is_that_of_the_server(tmp_path: Path) -> None:
    async with connected(target(cwd=str(tmp_path))) as connection:
        assert (await connection.call_tool("cwd")).text == str(tmp_path)


async def test_a_command_with_a_directory_is_found_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "server"
    program.write_text(f"#!/bin/sh\nexec {' '.join(echo_command())}\n")
    program.chmod(0o755)
    async with connected({"command": "bin/server", "cwd": str(tmp_path)}) as connection:
        assert (await connection.call_tool("echo", {"text": "found"})).text == "found"


async def test_a_command_is_looked_up_on_the_path_of_the_config(tmp_path: Path) -> None:
    program = tmp_path / "only-here"
    program.write_text(f"#!/bin/sh\nexec {' '.join(echo_command())}\n")
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    async with connected({"command": "only-here", "env": {"PATH": path}}) as connection:
        assert connection.report.steps[0].detail == str(program)


async def test_the_report_tells_each_step_and_how_it_went() -> None:
    async with connected(echo_command()) as connection:
        assert steps_of(connection) == [
            "find the command",
            "start the process",
            "discover",
            "initialize",
            "list tools",
        ]
        assert [step.outcome for step in connection.report.steps] == ["ok", "ok", "skipped", "ok", "ok"]
        assert connection.report.seconds == sum(step.seconds for step in connection.report.steps)
        assert connection.report.steps[-1].detail == "26 tools on 1 page"


async def test_the_report_of_a_failure_ends_with_the_step_that_failed() -> None:
    connection = await connect_mcp(["no-such-program-anywhere"], lazy=True)
    with pytest.raises(ConnectError):
        await connection.list_tools()
    (step,) = connection.report.steps
    assert (step.name, step.outcome) == ("find the command", "failed")
    assert "was not found" in step.detail
    await connection.close()


async def test_what_a_server_writes_to_standard_error_is_kept_at_its_end() -> None:
    async with connected(fault_command("stderr_flood", "--size", 500_000)) as connection:
        await connection.call_tool("echo", {"text": "x"})
        lines = connection.stderr_tail.splitlines()
    assert 1 <= len(lines) <= 21
    assert {line.strip() for line in lines[1:]} == {" ".join(["noise"] * 12)}


@pytest.mark.requirement("R67", "R70")
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"transport": "carrier-snail", "url": "http://x/"}, "carrier-snail"),
        ({"transport": "stdio"}, "command"),
        ({"transport": "http"}, "url"),
        ({}, "command"),
        ("", "empty"),
        (7, "a server is a config, a URL, a command or a server object"),
        (None, "a server is a config, a URL, a command or a server object"),
        ("ws://localhost/mcp", "ws"),
    ],
)
def test_a_target_that_cannot_be_right_is_refused_before_anything_happens(config: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        connect_mcp(config)


def test_a_built_in_transport_is_not_replaced() -> None:
    with pytest.raises(ValueError, match="http"):
        register_transport("http", lambda config: None)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
