"""Programs with the types that users see, under pyright and mypy, both strict; and mistakes that both report."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.programs import ran

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAMS = Path(__file__).parent / "programs"
MISTAKES = {
    "an authorization that is a list": 'ServerConfig(url="https://tools.example/mcp", auth=["token"])',
    "a bound that is a text": 'ServerConfig(command="server", timeout="5")',
    "a setting that does not exist": 'ServerConfig(command="server", tiemout=5)',
    "a choice that does not exist": 'ServerConfig(command="server", restart="sometimes")',
    "a changed setting of another type": 'ServerConfig(command="server").replace(args=5)',
    "an event that does not exist": 'connection.on("stat", print)',
    "a listener of another event's value": 'connection.on("problem", on_state)',
    "a listener without the connection": 'hub.on("state", on_state)',
    "a member that the state lacks": "context.state.nothing",
    "a name that the package lacks": "toolweave.connect_mpc",
}
HEAD = """
import toolweave
from toolweave import CallContext, Hub, McpConnection, ServerConfig
from toolweave.connect import StateChanged

def on_state(change: StateChanged) -> None: ...

def mistaken(connection: McpConnection, hub: Hub, context: CallContext[int]) -> None:
"""


def errors_of_pyright(folder: Path) -> set[tuple[str, int]]:
    """Return the names of files, and the lines, in which pyright reports an error."""
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps({"typeCheckingMode": "strict", "reportUnusedExpression": "none"}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    ended = ran(command, cwd=folder)
    found = json.loads(ended.stdout)["generalDiagnostics"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in found if one["severity"] == "error"}


def errors_of_mypy(folder: Path) -> set[tuple[str, int]]:
    """Return the names of files, and the lines, in which mypy reports an error."""
    # the package itself is checked by pyright
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--output=json",
        *folder.glob("*.py"),
    ]
    ended = ran(command, cwd=folder)
    assert ended.returncode in (0, 1), ended.stderr or ended.stdout
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {(Path(one["file"]).name, one["line"]) for one in found if one["severity"] == "error"}


CHECKERS = {"pyright": errors_of_pyright, "mypy": errors_of_mypy}


@pytest.mark.parametrize("checker", CHECKERS)
def test_programs_have_the_types_that_they_assert_and_mistakes_are_reported(tmp_path: Path, checker: str) -> None:
    pytest.importorskip(checker, reason="the type checkers come with the extra `dev`")
    for program in PROGRAMS.glob("*.py"):
        shutil.copy(program, tmp_path)
    lines = ["from __future__ import annotations", *HEAD.splitlines(), *(f"    {one}" for one in MISTAKES.values())]
    (tmp_path / "mistaken.py").write_text("\n".join(lines) + "\n")
    first = len(lines) - len(MISTAKES) + 1
    expected = {("mistaken.py", line): what for line, what in enumerate(MISTAKES, first)}

    errors = CHECKERS[checker](tmp_path)

    unexpected = errors - expected.keys()
    assert not unexpected
    assert [what for place, what in expected.items() if place not in errors] == []
