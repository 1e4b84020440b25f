"""Ctrl-C at every stage: exit code 130, no traceback, and no process left (the tests' own check)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, on_terminal, write_config
from tests.servers.fixtures import echo_command, fault_command

pytestmark = pytest.mark.slow

CTRL_C = "\x03"


def quiet(text: str) -> bool:
    return "Traceback" not in text and "Exception" not in text


@pytest.mark.parametrize("command", ["tools", "status", "doctor", "resources", "prompts", "call"])
def test_while_a_server_starts(folder: Path, command: str) -> None:
    config = write_config(folder, {"never": fault_command("never_answers"), "good": echo_command()})
    more = ["never_tool"] if command == "call" else []

    with on_terminal(command, *more, "--config", config, cwd=folder) as terminal:
        terminal.wait_for("waiting for never")
        terminal.type(CTRL_C)

        assert terminal.end() == 130
        assert "interrupted; closing the servers" in terminal.text
        assert quiet(terminal.text)


def test_while_a_call_runs(folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command()})

    with on_terminal("call", "--config", config, "echo_hold", "key=x", cwd=folder) as terminal:
        terminal.wait_for("echo_hold")
        terminal.type(CTRL_C)

        assert terminal.end() == 130
        assert quiet(terminal.text)


def test_while_an_argument_is_asked_for(folder: Path) -> None:
    config = write_config(folder, {"echo": echo_command()})

    with on_terminal("call", "--config", config, "echo_add", cwd=folder) as terminal:
        terminal.wait_for("a .*: ")
        terminal.type(CTRL_C)

        assert terminal.end() == 130
        assert quiet(terminal.text)


def test_in_the_demo(folder: Path) -> None:
    with on_terminal("demo", cwd=folder) as terminal:
        terminal.wait_for("numbers_primes")
        terminal.type(CTRL_C)

        assert terminal.end() == 130
        assert quiet(terminal.text)


def test_a_second_ctrl_c_while_closing_leaves_no_process(folder: Path) -> None:
    config = write_config(folder, {"stubborn": fault_command("ignores_sigterm")})

    with on_terminal("call", "--config", config, "stubborn_hold", "key=x", cwd=folder) as terminal:
        terminal.wait_for("stubborn_hold")
        terminal.type(CTRL_C)
        terminal.wait_for("interrupted; closing the servers")
        terminal.type(CTRL_C)

        assert terminal.end() == 130
        assert quiet(terminal.text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_termination_signal_closes_the_servers_too(folder: Path, number: signal.Signals) -> None:
    marker = folder / "called"
    config = write_config(folder, {"echo": echo_command()})
    command = [*COMMAND, "call", "--config", str(config), "echo_slow", "seconds=60", "steps=600", "--verbose"]

    with on_terminal(*command[3:], cwd=folder) as terminal:
        terminal.wait_for("echo_slow")
        terminal.process.send_signal(number)

        assert terminal.end() == 130
        assert quiet(terminal.text)
    assert not marker.exists()


def test_a_signal_that_was_ignored_on_purpose_stays_ignored(folder: Path) -> None:
    config = write_config(folder, {"slow": fault_command("slow_start", "--seconds", "1")})
    program = (
        "import os, signal, sys\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nos.write(1, b'set')\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [*COMMAND, "call", "--config", str(config), "slow_hold", "key=x", "--timeout", "2"]

    with subprocess.Popen(
        [sys.executable, "-c", program, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(3) == b"set"
        while process.poll() is None:  # at every stage of the command
            os.kill(process.pid, signal.SIGHUP)
            time.sleep(0.05)

        assert process.returncode == 3
        assert b"interrupted" not in process.stderr.read()
