"""The small parts behind the commands, where a whole command cannot easily show them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs import ran
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._progress import call_progress
from toolweave.cli._render.views import seconds_text
from toolweave.cli._runner import run
from toolweave.cli.main import main
from toolweave.tools import (
    Progress,
)


def test_a_group_of_one_error_is_raised_as_that_error() -> None:
    async def body() -> ExitCode:
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [CommandError("x")])])

    with pytest.raises(CommandError, match="x"):
        run(body)


def test_a_group_of_several_errors_stays_a_group() -> None:
    async def body() -> ExitCode:
        raise ExceptionGroup("outer", [CommandError("x"), CommandError("y")])

    with pytest.raises(ExceptionGroup):
        run(body)


@pytest.mark.slow
def test_a_current_directory_that_is_gone_is_one_line(tmp_path: Path) -> None:
    program = "import os, sys; os.rmdir(os.getcwd()); from toolweave.cli.main import main; sys.exit(main(['tools']))"
    done = ran([sys.executable, "-c", program], cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr == "error: [Errno 2] No such file or directory\n"


def test_ctrl_c_while_the_command_is_still_being_imported_is_quiet() -> None:
    program = (
        "import sys\n"
        "class CtrlC:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'toolweave.cli._app':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, CtrlC())\n"
        "from toolweave.cli.main import main\n"
        "sys.exit(main(['--help']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_without_a_terminal_progress_goes_nowhere() -> None:
    with call_progress("a", "b") as listeners:
        for listener in listeners:
            listener(Progress(progress=1))

    assert len(listeners) == 2


def test_durations_are_shown_in_the_unit_that_fits() -> None:
    assert [seconds_text(value) for value in (None, 0.0123, 12.34)] == ["", "12 ms", "12.3 s"]


def test_main_takes_its_arguments_from_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["toolweave", "--version"])

    assert main() == 0
    assert capsys.readouterr().out.startswith("toolweave ")


@pytest.mark.slow
def test_a_demo_server_speaks_lines_of_json_over_stdio() -> None:
    messages: list[dict[str, Any]] = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-11-25", "capabilities": {}},
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "ping", "params": 5},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "read_note", "arguments": {"number": 1}},
        },
    ]
    command = [sys.executable, "-m", "toolweave.cli.demo.notes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n".join(json.dumps(message).encode() for message in messages) + b"\n\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.stdin.close()

        assert process.wait(30) == 0
    assert [answer["id"] for answer in answers] == [1, 2, 3]
    assert answers[2]["result"]["content"] == [{"type": "text", "text": "water the plants"}]
