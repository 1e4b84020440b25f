"""`toolweave resources`, `prompts`, `status` and `doctor`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Done, toolweave, write_config
from tests.servers.fixtures import echo_command, fault_command

Cli = Callable[..., Done]

ABSENT = ["toolweave-test-no-such-command"]


@pytest.fixture
def config(folder: Path) -> Path:
    return write_config(folder, {"old": echo_command(), "new": echo_command("--era", "modern"), "absent": ABSENT})


@pytest.mark.requirement("F1")
def test_resources_and_templates_of_every_server_are_listed(cli: Cli, config: Path) -> None:
    view = cli("resources", "--config", config)
    as_json = cli("resources", "--config", config, "--json")

    assert view.code == as_json.code == 0
    assert "old  3 resources  1 template" in view.out
    assert "test://item/{id}" in view.out
    assert "failed: server 'absent'" in view.err
    assert as_json.json.keys() == {"servers", "resources", "templates"}
    first = as_json.json["resources"][0]
    assert (first["server"], first["uri"], first["mime_type"]) == ("old", "test://text", "text/plain")
    assert {row["server"] for row in as_json.json["templates"]} == {"old", "new"}


@pytest.mark.requirement("F1")
def test_one_resource_is_printed(cli: Cli, config: Path) -> None:
    read = ["resources", "--config", config, "--server", "old", "--read"]

    assert cli(*read, "test://text").out == "hello from a resource\n"
    contents = cli(*read, "test://text", "--json").json
    assert contents["contents"] == [{"uri": "test://text", "mimeType": "text/plain", "text": "hello from a resource"}]
    assert contents["server"] == "old"


@pytest.mark.slow
def test_binary_content_goes_to_a_pipe_as_it_is(config: Path, folder: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "toolweave", "resources", "--config", str(config), "-s", "old"]
    done = subprocess.run([*command, "--read", "test://blob"], capture_output=True, timeout=60, check=True)

    assert done.stdout.startswith(b"\x89PNG")


def test_a_resource_that_two_servers_list_needs_a_server(cli: Cli, config: Path) -> None:
    done = cli("resources", "--config", config, "--read", "test://text")

    assert done.code == 2
    assert done.err == (
        "error: resource 'test://text': 2 servers list it\nhint: say which server to ask with --server: old, new\n"
    )


@pytest.mark.slow
def test_a_resource_is_read_from_the_one_server_that_lists_it(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"none": fault_command("lies_about_resources"), "old": echo_command()})

    assert cli("resources", "--config", config, "--read", "test://text").out == "hello from a resource\n"
    unknown = cli("resources", "--config", config, "--read", "test://unknown")
    assert unknown.code == 2
    assert "no server lists it" in unknown.err


def test_a_resource_the_server_does_not_know_is_exit_code_1(cli: Cli, config: Path) -> None:
    done = cli("resources", "--config", config, "--server", "old", "--read", "test://unknown")

    assert done.code == 1
    assert "server 'old'" in done.err


def test_a_resource_of_a_server_that_is_not_there_is_exit_code_3(cli: Cli, config: Path) -> None:
    assert cli("resources", "--config", config, "--server", "absent", "--read", "test://text").code == 3
    assert cli("resources", "--config", config, "--server", "absent").code == 3


def test_a_server_that_lies_about_resources_has_none(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"liar": fault_command("lies_about_resources")})

    assert cli("resources", "--config", config, "--json").json["resources"] == []
    assert cli("prompts", "--config", config).code == 0


@pytest.mark.requirement("F2")
def test_prompts_of_every_server_are_listed(cli: Cli, config: Path) -> None:
    view = cli("prompts", "--config", config)
    as_json = cli("prompts", "--config", config, "--json")

    assert view.code == as_json.code == 0
    assert "greet" in view.out
    assert "name [style]" in view.out
    greet = as_json.json["prompts"][0]
    assert (greet["server"], greet["name"]) == ("old", "greet")
    assert greet["arguments"][0]["required"] is True


@pytest.mark.requirement("F2")
def test_a_prompt_is_filled_in(cli: Cli, config: Path) -> None:
    done = cli("prompts", "--config", config, "--server", "old", "--get", "greet", "name=Ada")
    named = cli("prompts", "--config", config, "--get", "new:greet", "name=Ada", "--json")

    assert done.out == "user: Please greet Ada.\n"
    assert named.json["server"] == "new"
    assert named.json["messages"][0]["role"] == "user"


@pytest.mark.parametrize(
    "args, code, expected",
    [
        (["--get", "greet", "name=Ada"], 2, "prompt 'greet' is offered by 2 servers"),
        (["--get", "nope"], 2, "no prompt 'nope'; there are greet"),
        (["--get", "old:greet"], 1, "prompt 'old:greet' needs name"),
        (["--get", "old:greet", "name"], 2, "argument 'name' is not understood"),
        (["--get", "old:greet", "name=a", "name=b"], 2, "argument 'name' was given twice"),
        (["name=a"], 2, "arguments go with --get NAME"),
        (["--server", "absent", "--get", "greet"], 3, "no server could be reached"),
    ],
)
def test_a_wrong_prompt_call_is_refused(cli: Cli, config: Path, args: list[str], code: int, expected: str) -> None:
    done = cli("prompts", "--config", config, *args)

    assert done.code == code
    assert expected in done.err
    assert done.out == ""


@pytest.mark.slow
def test_status_shows_who_answers_and_how_fast(cli: Cli, config: Path) -> None:
    view = cli("status", "--config", config)
    as_json = cli("status", "--config", config, "--json")

    assert view.code == as_json.code == 0
    assert [line.split()[0] for line in view.out.splitlines()[2:]] == ["old", "new", "absent"]
    assert "echo 1.2.3" in view.out
    rows = as_json.json["servers"]
    assert (rows["old"]["state"], rows["absent"]["state"]) == ("ready", "failed")
    assert rows["old"]["ping_seconds"] > 0
    assert rows["new"]["ping_seconds"] > 0
    assert rows["absent"]["ping_seconds"] is None
    assert rows["old"]["restarts"] == 0
    assert cli("status", "--config", config, "--strict").code == 3


def test_doctor_tells_each_step_and_what_to_do(cli: Cli, folder: Path) -> None:
    servers = {
        "good": echo_command(),
        "absent": ABSENT,
        "dies": fault_command("exits_at_once"),
        "odd": fault_command("non_object_schema"),
        "wrong": {"url": 5},
        "off": {"command": "x", "disabled": True},
    }
    config = write_config(folder, servers)

    done = cli("doctor", "--config", config)

    assert done.code == 0
    good, absent, dies, odd, wrong = (section(done.out, name) for name in ("good", "absent", "dies", "odd", "wrong"))
    assert "mcp.json:1" in good
    assert "find the command" in good
    assert "initialize: 2025-11-25" in good
    assert "ms  list tools: 26 tools" in good
    assert "'toolweave-test-no-such-command' was not found" in absent
    assert "  standard error:\n" in dies
    assert "exit code 3" in dies
    assert "left out:" in odd
    assert "'wrong'" in wrong
    assert "does not start:\n  off: it is switched off in the config" in done.out


def test_doctor_shows_the_last_words_of_a_process_once(cli: Cli, folder: Path) -> None:
    dies = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no such database')"]}
    config = write_config(folder, {"dies": dies})

    said = section(cli("doctor", "--config", config).out, "dies").partition("config ")[2]

    assert "  error     server 'dies': its process ended while connecting (exit code 1)\n" in said
    assert "  standard error:\n    no such database\n" in said
    assert said.count("no such database") == 1


def test_doctor_says_an_error_once_though_a_step_failed_with_it(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"absent": ABSENT})

    absent = section(cli("doctor", "--config", config).out, "absent")

    assert " ".join(absent.split()).count("'toolweave-test-no-such-command' was not found") == 1


def section(text: str, name: str) -> str:
    """Return the part of doctor's view about one server."""
    for part in text.split("\n\n"):
        if part.lstrip("\n").split("\n")[0][2:].startswith(name):
            return part
    raise AssertionError(f"no section {name!r} in:\n{text}")


def test_doctor_has_a_json_twin(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"good": echo_command(), "dies": fault_command("exits_at_once"), "wrong": {"url": 5}})

    servers = cli("doctor", "--config", config, "--json").json["servers"]

    assert servers["good"]["ok"] is True
    assert [step["outcome"] for step in servers["good"]["steps"]][-1] == "ok"
    assert servers["good"]["tools"] == 26
    assert servers["dies"]["ok"] is False
    assert servers["dies"]["exit_code"] == 3
    assert servers["dies"]["stderr"]
    assert servers["wrong"]["exit_code"] == 2


def test_doctors_exit_code_says_whether_anything_answers(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"good": echo_command(), "absent": ABSENT, "wrong": {"url": 5}})
    doctor = ["doctor", "--config", config]

    assert cli(*doctor).code == 0
    assert cli(*doctor, "--strict").code == 3
    assert cli(*doctor, "--server", "absent").code == 3
    assert cli(*doctor, "--server", "wrong").code == 2


def test_doctor_works_on_a_server_given_on_the_spot(cli: Cli) -> None:
    done = cli("doctor", "--", *echo_command())

    assert done.code == 0
    assert "config    command line" in done.out


def test_doctor_knows_the_servers_that_the_second_sdk_broke(cli: Cli, folder: Path) -> None:
    uvx = folder / "uvx"
    uvx.write_text(
        "#!/bin/sh\necho \"AttributeError: 'Server' object has no attribute 'list_resources'\" >&2\nexit 1\n"
    )
    uvx.chmod(0o755)
    config = write_config(folder, {"sqlite": [str(uvx), "mcp-server-sqlite"]})

    done = cli("doctor", "--config", config)

    assert done.code == 3
    assert "AttributeError: 'Server' object has no attribute 'list_resources'" in done.out
    assert "run it with uvx --with 'mcp<2'" in done.out


@pytest.mark.slow
def test_a_piped_view_is_as_wide_as_its_text_and_carries_no_escape(config: Path, folder: Path) -> None:
    done = toolweave("tools", "--config", config, cwd=folder)

    assert "\x1b" not in done.out + done.err
    assert not any(line.endswith(" ") for line in done.out.splitlines())
