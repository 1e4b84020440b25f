"""Every bad server and bad file, seen from the terminal: a clear error, in time, and the others untouched."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Done, write_config
from tests.servers.fixtures import echo_command, fault_command

pytestmark = pytest.mark.slow

Cli = Callable[..., Done]

BAD_SERVERS: dict[str, tuple[Sequence[str] | Mapping[str, Any], str]] = {
    "unknown transport": ({"transport": "carrier-pigeon", "command": "x"}, "carrier-pigeon"),
    "missing command": ({"transport": "stdio"}, "command"),
    "missing url": ({"transport": "http"}, "url"),
    "wrong type": ({"command": ["x"], "args": "y"}, "args"),
    "unset variable": ({"command": "x", "env": {"A": "${TOOLWEAVE_TEST_UNSET}"}}, "TOOLWEAVE_TEST_UNSET"),
    "command not found": (["toolweave-test-no-such-command"], "was not found"),
    "not executable": ({"command": __file__}, "is not executable"),
    "exits at once": (fault_command("exits_at_once"), "exit code 3"),
    "never answers": (fault_command("never_answers"), "within 1 s"),
    "hangs in the handshake": (fault_command("hang_initialize"), "within 1 s"),
    "refuses": (fault_command("refuses_initialize"), "licence expired"),
    "no MCP at all": ([sys.executable, "-c", "print('hello'); input(); input()"], "server "),
    "nobody listens": ({"url": "http://127.0.0.1:9/mcp", "timeout": 20}, "http://127.0.0.1:9/mcp"),
}


@pytest.mark.requirement("R59", "R64", "R67", "R69", "R70")
@pytest.mark.parametrize("case", BAD_SERVERS)
def test_a_bad_server_is_named_with_its_reason_and_costs_the_good_one_nothing(
    cli: Cli, folder: Path, case: str
) -> None:
    entry, expected = BAD_SERVERS[case]
    timed = dict(entry) if isinstance(entry, Mapping) else {"command": entry[0], "args": list(entry[1:])}
    config = write_config(folder, {"bad one": {"timeout": 1, **timed}, "good": echo_command()})

    done = cli("tools", "--config", config)

    assert done.code == 0
    assert "good_add" in done.out
    assert "server 'bad one'" in done.err
    assert expected in done.err
    assert "\nTraceback" not in f"\n{done.err}"  # what a server said of itself stands within its error


def test_what_a_dying_server_said_is_shown_indented_below_its_error(cli: Cli, folder: Path) -> None:
    program = "import sys; sys.stderr.write('first\\nhint: pay here\\n'); sys.exit(7)"
    config = write_config(folder, {"dies": [sys.executable, "-c", program]})

    done = cli("tools", "--config", config)

    assert done.code == 3
    assert "exit code 7" in done.err
    assert "its last words on standard error: hint: pay here" in done.err
    assert "\nhint: pay here" not in done.err


def test_of_a_long_farewell_only_the_end_is_shown_outside_of_doctor(cli: Cli, folder: Path) -> None:
    program = "import sys; sys.stderr.write(''.join(f'line {n}\\n' for n in range(12))); sys.exit(7)"
    config = write_config(folder, {"dies": [sys.executable, "-c", program]})

    brief, whole = cli("tools", "--config", config), cli("doctor", "--config", config)

    assert "line 11" in brief.err
    assert "line 6" not in brief.err
    assert "    line 0\n" in whole.out


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("broken.json", '{"mcpServers": {\n  "a": {"command": }\n}}', "broken.json:2"),
        ("broken.yaml", "mcpServers:\n  a: [1,\n", "broken.yaml:"),
        ("broken.toml", '[tool.toolweave]\n"x\n', "broken.toml:2"),
        ("other.json", '{"hello": 1}', "no place for servers"),
        ("list.json", "5", "list.json"),
        ("wrong.json", '{"mcpServers": 5}', "wrong.json"),
    ],
)
def test_a_file_that_cannot_be_read_is_exit_code_2_with_its_line(
    cli: Cli, folder: Path, name: str, text: str, expected: str
) -> None:
    (folder / name).write_text(text)

    for command in (["tools"], ["call", "x"], ["status"], ["doctor"], ["resources"], ["prompts"]):
        done = cli(*command, "--config", folder / name)

        assert (done.code, done.out) == (2, ""), command
        assert expected in done.err


@pytest.mark.parametrize(
    "mode",
    [
        "garbage_stdout",
        "bom",
        "non_object_schema",
        "invalid_schema",
        "tool_not_object",
        "tool_without_name",
        "duplicate_tool_names",
        "schema_ref_network",
        "dies_at_probe",
    ],
)
def test_an_odd_server_still_offers_its_good_tools(cli: Cli, folder: Path, mode: str) -> None:
    config = write_config(folder, {"odd": fault_command(mode)})

    done = cli("tools", "--config", config, "--json")
    assert done.code == 0, done.err
    assert {"odd_echo", "odd_add"} <= {tool["name"] for tool in done.json["tools"]}

    called = cli("call", "--config", config, "odd_echo", "text=still here")
    assert (called.code, called.out) == (0, "still here\n")


def test_invalid_utf8_from_a_server_is_shown_as_replacement_characters(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"odd": fault_command("invalid_utf8")})

    done = cli("call", "--config", config, "odd_echo", "text=x", "--timeout", "5")

    assert "Traceback" not in done.err
    assert done.code in (0, 1, 3)


def test_nothing_a_server_says_reaches_the_terminal_raw(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"evil": fault_command("ansi_and_bidi")})
    commands = [
        ["tools"],
        ["tools", "--schema"],
        ["tools", "--json"],
        ["status"],
        ["doctor"],
        ["doctor", "--json"],
        ["resources"],
        ["resources", "--json"],
        ["prompts"],
        ["call", "evil_echo", "text=x"],
        ["call", "evil_echo", "text=x", "--json"],
        ["call", "evil_fail"],
        ["call", "evil_rpc_error"],
        ["call", "evil_crash"],
        ["call", "evil_nope"],
        ["call", "evil_echo"],
    ]
    for command in commands:
        done = cli(*command, "--config", config, "--verbose")

        hidden = [c for c in done.out + done.err if c != "\n" and (c < " " or "\x7f" <= c <= "\x9f" or c in BIDI)]
        assert hidden == [], command


BIDI = "\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\u2028\u2029\U000e0041"


def test_a_secret_of_the_config_is_never_shown(cli: Cli, folder: Path) -> None:
    program = "import os, sys; sys.stderr.write(os.environ['API_TOKEN']); sys.exit(1)"
    entry = {"command": sys.executable, "args": ["-c", program], "env": {"API_TOKEN": "hunter2-secret"}}
    config = write_config(folder, {"leaks": entry})

    for command in (["tools"], ["tools", "--json"], ["doctor"], ["doctor", "--json"], ["call", "leaks_x"]):
        done = cli(*command, "--config", config, "--verbose")

        assert "hunter2" not in done.out + done.err, command


def test_unknown_keys_warn_and_do_no_harm(cli: Cli, folder: Path) -> None:
    command, *args = echo_command()
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"a": {"command": command, "args": args, "colour": "red"}}}))

    done = cli("tools", "--config", config)

    assert done.code == 0
    assert "warning: " in done.err
    assert "'colour'" in done.err


READERS = [
    ("runs", "list"),
    ("runs", "show", "abc"),
    ("runs", "resume", "abc"),
    ("runs", "cancel", "abc"),
    ("runs", "approve", "abc", "call"),
    ("runs", "delete", "abc", "--yes"),
    ("sessions", "list"),
    ("sessions", "delete", "holiday", "--yes"),
    ("users", "erase", "ann", "--yes"),
]


@pytest.mark.parametrize("words", READERS, ids=" ".join)
@pytest.mark.parametrize("place", ["typo.db", "sqlite:///typo.db", "nowhere/typo.db"])
def test_a_command_that_uses_what_a_store_has_creates_none(
    words: tuple[str, ...], place: str, cli: Cli, folder: Path
) -> None:
    done = cli(*words, "--store", place)

    assert done.code == 2
    assert "there is no store at" in done.err
    assert "typo.db" in done.err
    assert "check the path of --store" in done.err
    assert list(folder.iterdir()) == []


def test_a_folder_in_place_of_a_store_is_called_one(cli: Cli, folder: Path) -> None:
    done = cli("runs", "list", "--store", str(folder))

    assert done.code == 2
    assert "is a folder" in done.err
    assert "give --store the file in it" in done.err


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_store_in_memory_has_nothing_to_use(words: tuple[str, ...], cli: Cli) -> None:
    done = cli(*words, "--store", "memory://")

    assert done.code == 2
    assert "which has nothing in it yet" in done.err


def test_nothing_is_kept_yet_where_the_default_store_does_not_exist(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    assert cli("runs", "list", "--json").json == {"runs": []}
    assert cli("sessions", "list", "--json").json == {"sessions": []}
    assert not (tmp_path / "data" / "toolweave" / "store.db").exists()
