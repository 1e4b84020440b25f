"""`toolweave call`: finding the tool, fitting the arguments, printing the answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli import odd_server
from tests.cli.command import Done, toolweave, write_config
from tests.servers.fixtures import echo_command, fault_command

Cli = Callable[..., Done]

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def config(folder: Path) -> Path:
    return write_config(folder, {"echo": echo_command(), "new": echo_command("--era", "modern")})


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("name", ["echo_add", "echo:add", "echo/add", "new_add"])
def test_a_tool_is_found_by_each_of_its_names(cli: Cli, config: Path, name: str) -> None:
    done = cli("call", "--config", config, name, "a=1", "b=2.5")

    assert (done.code, done.out, done.err) == (0, '{"sum": 3.5}\n', "")


def test_a_bare_name_is_enough_when_only_one_server_has_it(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command(), "none": fault_command("no_tools")})

    assert cli("call", "--config", config, "add", "a=1", "b=2").out == '{"sum": 3}\n'


def test_a_bare_name_of_two_servers_lists_the_choices(cli: Cli, config: Path) -> None:
    done = cli("call", "--config", config, "add", "a=1", "b=2")

    assert done.code == 2
    assert done.err == "error: tool 'add' is offered by 2 servers\nhint: say which: echo_add, new_add\n"


def test_only_the_server_that_the_name_says_is_started(cli: Cli, folder: Path) -> None:
    started = folder / "started"
    tell = f"open({str(started)!r}, 'w')"
    config = write_config(folder, {"echo": echo_command(), "other": [sys.executable, "-c", tell]})

    assert cli("call", "--config", config, "echo:add", "a=1", "b=2").code == 0
    assert cli("call", "--config", config, "echo_add", "a=1", "b=2").code == 0
    assert not started.exists()


def test_a_name_that_only_looks_like_a_servers_is_found_on_the_others(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"rpc": fault_command("no_tools"), "echo": echo_command()})

    done = cli("call", "--config", config, "rpc_error")

    assert done.code == 1
    assert "refused on purpose" in done.err


def test_a_literal_tool_prefix_names_its_server_too(cli: Cli, folder: Path) -> None:
    command, *args = echo_command()
    entry = {"command": command, "args": args, "tool_prefix": "my."}
    config = write_config(folder, {"echo": entry, "absent": ["toolweave-test-no-such-command"]})

    done = cli("call", "--config", config, "my.add", "a=1", "b=2")

    assert (done.code, done.err) == (0, "")


def test_an_unknown_tool_is_exit_code_2_with_the_nearest_names(cli: Cli, config: Path) -> None:
    done = cli("call", "--config", config, "echo_ad")

    assert done.code == 2
    assert "error: no tool 'echo_ad'; did you mean 'echo_add'" in done.err
    assert done.out == ""


def test_a_tool_of_a_server_that_cannot_start_is_exit_code_3_and_told_once(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"absent": ["toolweave-test-no-such-command"], "echo": echo_command()})

    done = cli("call", "--config", config, "absent_tool")

    assert done.code == 3
    assert done.err.count("was not found") == 1


def test_when_no_server_can_be_reached_the_exit_code_is_3(cli: Cli, folder: Path) -> None:
    absent = ["toolweave-test-no-such-command"]
    config = write_config(folder, {"a": absent, "b": absent})

    done = cli("call", "--config", config, "tool")

    assert done.code == 3
    assert done.err.count("failed: ") == 2
    assert "error: no server could be reached" in done.err
    assert "hint: toolweave doctor finds out why" in done.err


def test_json_has_the_documented_shape(cli: Cli, config: Path) -> None:
    done = cli("call", "--config", config, "echo_mixed", "--json")

    assert done.code == 0
    assert done.json.keys() == {"content", "structured_content", "is_error", "error", "seconds"}
    assert [block["type"] for block in done.json["content"]] == ["text", "image", "audio", "resource_link", "resource"]
    assert (done.json["is_error"], done.json["error"], done.json["structured_content"]) == (False, None, None)
    assert done.json["seconds"] > 0


def test_a_tools_error_is_exit_code_1_and_still_the_answer(cli: Cli, config: Path) -> None:
    done = cli("call", "--config", config, "echo_fail")
    as_json = cli("call", "--config", config, "echo_fail", "--json")

    assert (done.code, done.out, done.err) == (1, "failed on purpose\n", "error: the tool answered with an error\n")
    assert as_json.code == 1
    assert as_json.json["is_error"] is True
    assert as_json.json["error"]["kind"] == "execution_failed"


@pytest.mark.parametrize(
    "args, code, kind",
    [
        (["echo_add", "a=x", "b=1"], 1, "invalid_input"),
        (["echo_add", "a=1"], 1, "invalid_input"),
        (["echo_add", "a=1", "b:=[]"], 1, "invalid_input"),
        (["echo_rpc_error"], 1, "protocol"),
        (["echo_nope"], 2, "not_found"),
        (["add", "a=1", "b=1"], 2, "not_found"),
        (["echo_crash"], 3, "outcome_unknown"),
        (["echo_hang", "--timeout", "0.5"], 3, "timeout"),
        (["absent_tool"], 3, "not_sent"),
    ],
)
def test_with_json_every_failure_of_a_call_is_an_answer_too(
    cli: Cli, folder: Path, args: list[str], code: int, kind: str
) -> None:
    servers = {"echo": echo_command(), "new": echo_command(), "absent": ["toolweave-test-no-such-command"]}
    config = write_config(folder, servers)

    done = cli("call", "--config", config, *args, "--json")

    assert done.code == code
    assert done.json["error"]["kind"] == kind
    assert done.json["is_error"] is True


def test_structured_content_alone_is_printed_as_json(cli: Cli, config: Path) -> None:
    done = cli("call", "--config", config, "echo_structured_only")

    assert json.loads(done.out)["rows"][0] == {"id": 1, "name": "one"}


def readers(*named: tuple[str, str]) -> list[str]:
    """The command of a server whose one tool answers with texts, each for one reader."""
    blocks = [{"type": "text", "text": text, "annotations": {"audience": [reader]}} for text, reader in named]
    tool = {"name": "report", "inputSchema": {"type": "object"}}
    script = {"tools": [tool], "calls": {"report": {"content": blocks}}}
    return [sys.executable, odd_server.__file__, json.dumps(script)]


def test_a_person_reads_what_is_for_people_and_is_told_that_there_is_more(cli: Cli, folder: Path) -> None:
    both = write_config(folder, {"odd": readers(("raw figures", "assistant"), ("a table", "user"))})
    done = cli("call", "--config", both, "odd_report")
    assert (done.code, done.out) == (0, "a table\n")
    assert "1 part of the result for the model alone: --json shows all" in done.err
    assert "raw figures" in cli("call", "--config", both, "odd_report", "--json").out


def test_a_result_for_the_model_alone_is_no_empty_answer(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"odd": readers(("one", "assistant"), ("two", "assistant"))})
    done = cli("call", "--config", config, "odd_report")
    assert (done.code, done.out.strip()) == (0, "")
    assert "2 parts of the result for the model alone" in done.err


def test_what_is_no_text_is_shown_as_a_note_and_saved_on_request(cli: Cli, config: Path, folder: Path) -> None:
    done = cli("call", "--config", config, "echo_mixed", "--save", folder / "new" / "saved")

    assert f"mixed-1.png (file://{folder / 'new' / 'saved' / 'mixed-1.png'})" in done.out
    assert "[image: image/png, 70 B]" in cli("call", "--config", config, "echo_mixed").out
    saved = {path.name: path.read_bytes() for path in (folder / "new" / "saved").iterdir()}
    assert saved.keys() == {"mixed-1.png", "mixed-1.wav"}
    assert saved["mixed-1.png"].startswith(PNG)
    assert str(folder / "new" / "saved" / "mixed-1.png") in done.err


def test_saving_never_touches_a_file_that_exists(cli: Cli, config: Path, folder: Path) -> None:
    saved, victim = folder / "saved", folder / "victim"
    saved.mkdir()
    (saved / "image-1.png").write_text("mine")
    (saved / "image-2.png").symlink_to(victim)

    assert cli("call", "--config", config, "echo_image", "--save", saved).code == 0

    assert (saved / "image-1.png").read_text() == "mine"
    assert not victim.exists()
    assert (saved / "image-3.png").read_bytes().startswith(PNG)


def test_an_unwritable_folder_is_told(cli: Cli, config: Path, folder: Path) -> None:
    (folder / "file").write_text("")

    done = cli("call", "--config", config, "echo_image", "--save", folder / "file")

    assert done.code == 2
    assert f"error: cannot save to {str(folder / 'file')!r}" in done.err


@pytest.mark.slow
def test_arguments_come_from_words_json_files_and_standard_input(config: Path, folder: Path) -> None:
    (folder / "arguments.json").write_text('{"a": 1, "b": 2}')
    call = ["call", "--config", config, "echo_add"]

    assert toolweave(*call, "a=1", "b:=2", cwd=folder).out == '{"sum": 3}\n'
    assert toolweave(*call, "--json-args", '{"a": 1, "b": 2}', cwd=folder).out == '{"sum": 3}\n'
    assert toolweave(*call, "@arguments.json", "b=5", cwd=folder).out == '{"sum": 6}\n'
    assert toolweave(*call, "-", cwd=folder, stdin='{"a": 1, "b": 7}').out == '{"sum": 8}\n'


@pytest.mark.slow
def test_piped_arguments_are_read_when_the_tool_needs_some_and_none_are_given(config: Path, folder: Path) -> None:
    call = ["call", "--config", config, "echo_add"]
    (folder / "file.json").write_text('{"a": 1, "b": 2}')

    assert toolweave(*call, cwd=folder, stdin='{"a": 1, "b": 2}').out == '{"sum": 3}\n'
    assert toolweave(*call, cwd=folder, stdin="").code == 1
    broken = toolweave(*call, cwd=folder, stdin="{")
    assert broken.code == 2
    assert "standard input: not valid JSON" in broken.err
    binary = toolweave(*call, cwd=folder, stdin=b"\xff\xfe")
    assert binary.code == 2
    assert "standard input is not UTF-8 text" in binary.err


@pytest.mark.slow
def test_missing_arguments_without_a_terminal_are_exit_code_1_with_the_list(config: Path, folder: Path) -> None:
    done = toolweave("call", "--config", config, "echo_add", cwd=folder)

    assert done.code == 1
    assert done.err == "error: tool 'echo_add' needs a, b\nhint: toolweave call echo_add a=... b=...\n"


@pytest.mark.parametrize(
    "args, expected",
    [
        (["echo_add", "nonsense"], "argument 'nonsense' is not understood"),
        (["echo_add", "a=1", "a=2"], "argument 'a' was given twice"),
        (["echo_add", "--json-args", "{"], "--json-args: not valid JSON"),
        (["echo_add", "@absent.json"], "cannot read file 'absent.json'"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_is_exit_code_2_before_any_server_starts(
    cli: Cli, folder: Path, args: list[str], expected: str
) -> None:
    done = cli("call", "--config", folder / "does-not-exist.json", *args)

    assert done.code == 2
    assert expected in done.err.replace("\n", " ")
    assert "does-not-exist" not in done.err


def test_a_server_may_be_given_on_the_spot_after_the_arguments(cli: Cli) -> None:
    done = cli("call", "args", "x=1", "--", *echo_command("--", "a", "--", "b"))

    assert done.code == 0
    assert '"a", "--", "b"' in done.out.replace("\n", "")


@pytest.mark.slow
def test_a_call_reports_only_the_calls_own_seconds(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"slow": fault_command("slow_start", "--seconds", "1")})

    assert cli("call", "--config", config, "echo", "text=x", "--json").json["seconds"] < 0.9


def test_arguments_the_schema_refuses_never_reach_the_server(cli: Cli, config: Path) -> None:
    done = cli("call", "--config", config, "echo_echo", "text:=5")

    assert done.code == 1
    assert "expected string" in done.err


def json_of(done: Done) -> Any:
    return json.loads(done.out)
