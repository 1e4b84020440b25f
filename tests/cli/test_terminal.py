"""What a person sees on a terminal: a line while servers start, bars, questions, colours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import on_terminal, write_config
from tests.servers.fixtures import echo_command, fault_command

pytestmark = pytest.mark.slow


@pytest.fixture
def config(folder: Path) -> Path:
    return write_config(folder, {"echo": echo_command()})


def test_a_line_says_which_servers_are_still_starting(folder: Path) -> None:
    servers = {"quick": echo_command(), "slow": fault_command("slow_start", "--seconds", "2")}
    config = write_config(folder, servers)

    with on_terminal("tools", "--config", config, cwd=folder) as terminal:
        terminal.wait_for("starting 2 servers, waiting for slow")
        assert terminal.end() == 0
        assert "slow_add" in terminal.text
        assert "\x1b[1m" in terminal.raw


def test_a_line_says_for_how_long_a_server_that_starts_was_not_heard_of(folder: Path) -> None:
    config = write_config(folder, {"quick": echo_command(), "mute": fault_command("never_answers")})

    with on_terminal("tools", "--config", config, cwd=folder) as terminal:
        terminal.wait_for(r"waiting for mute \(no sign of life for [3-9] s\)")
        assert terminal.end() == 0
        assert "quick_add" in terminal.text
        assert "left out: server 'mute' is still starting" in terminal.text


def test_a_bar_says_for_how_long_nothing_was_heard_of_a_call(folder: Path) -> None:
    config = write_config(folder, {"mute": fault_command("hang_call")})

    with on_terminal("call", "--config", config, "--timeout", "5", "mute_echo", "text=x", cwd=folder) as terminal:
        terminal.wait_for(r"mute_echo .*no sign of life for [3-9] s")
        assert terminal.end() == 3


def test_missing_arguments_are_asked_for_until_they_fit(config: Path, folder: Path) -> None:
    with on_terminal("call", "--config", config, "echo_add", "b=2", cwd=folder) as terminal:
        terminal.wait_for(r"a \(number\): ")
        terminal.type("one\n")
        terminal.wait_for(r"expected number, got 'one'[\s\S]*a \(number\): ")
        terminal.type("40\n")

        assert terminal.end() == 0
        assert '{"sum": 42}' in terminal.text


def test_the_end_of_input_while_asking_is_exit_code_1(config: Path, folder: Path) -> None:
    with on_terminal("call", "--config", config, "echo_add", cwd=folder) as terminal:
        terminal.wait_for(r"a \(number\): ")
        terminal.type("\x04")

        assert terminal.end() == 1
        assert "the input ended before every required argument was given" in terminal.text


def test_answers_that_never_fit_end_the_questions(config: Path, folder: Path) -> None:
    with on_terminal("call", "--config", config, "echo_add", cwd=folder) as terminal:
        for times in range(1, 6):
            terminal.wait_for(rf"(a \(number\): [\s\S]*){{{times}}}")
            terminal.type("x\n")

        assert terminal.end() == 1
        assert "no usable value for argument 'a' after 5 tries" in terminal.text


def test_a_bar_shows_the_progress_of_a_call(config: Path, folder: Path) -> None:
    with on_terminal("call", "--config", config, "echo_slow", "seconds=1", "steps=10", cwd=folder) as terminal:
        terminal.wait_for("echo_slow .*━")
        assert terminal.end() == 0


def test_nothing_a_server_says_moves_the_cursor(folder: Path) -> None:
    config = write_config(folder, {"evil": fault_command("ansi_and_bidi")})

    for command in (["tools"], ["call", "evil_echo", "text=x"], ["doctor"], ["call", "evil_slow", "seconds=0.2"]):
        with on_terminal(*command, "--config", config, cwd=folder, columns=300) as terminal:
            terminal.end()

            assert "\u202e" not in terminal.raw
            assert "\x1b]" not in terminal.raw
            assert "\x1b" not in terminal.text
            assert "\\x1b" in terminal.text or command[0] != "tools"
