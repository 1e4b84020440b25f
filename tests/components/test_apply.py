"""Changes are carried out as a whole or not at all, whatever the file system says and whenever the process ends."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.components.copies import age, everything
from toolweave.components import Project
from toolweave.components._apply import FileChange, apply_changes
from toolweave.errors import ConfigError

FAULTY = """
import os, signal, sys
from pathlib import Path
from toolweave.components import Project

how, number, root = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
watched = {"open", "os.rename", "os.remove", "os.mkdir", "os.chmod", "os.rmdir"}
seen = 0

def hook(event, args):
    # raising in an audit hook is how the call it reports fails; the interpreter's own imports are no concern
    global seen
    if event not in watched or not str(args[0]).startswith(str(root)):
        return
    if event == "open" and isinstance(args[1], str) and not set(args[1]) & set("wax+"):
        return
    seen += 1
    if seen == number:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(28, "No space left on device") if how == "full" else KeyboardInterrupt

project = Project(root)
jobs = [getattr(project, verb)("mcp-server") for verb in sys.argv[4:]]
sys.addaudithook(hook)
try:
    project.carry_out(*jobs)
except (OSError, KeyboardInterrupt):
    sys.exit(7)
sys.exit(0)
"""


def carry_out(how: str, number: int, root: Path, *verbs: str) -> int:
    """Carry jobs out in a process in which the so-manieth change of the file system fails; return its exit code."""
    return subprocess.run(
        [sys.executable, "-c", FAULTY, how, str(number), str(root), *verbs], timeout=120, check=False
    ).returncode


def old_project(root: Path) -> Project:
    """Return a project with a copy in which an update replaces one file, merges one, and leaves the others alone."""
    project = Project(root)
    project.carry_out(project.add("mcp-server"))
    for path in ("settings.py", "bridge.py"):
        file = root / "mcp_server" / path
        older = "# an older first line\n" + file.read_text()
        age(root, "mcp-server", path, older)
        file.write_text(older + ("# mine\n" if path == "bridge.py" else ""))
    return Project(root)


@pytest.mark.slow
@pytest.mark.requirement("R107")
@pytest.mark.parametrize("how", ["full", "interrupt"])
def test_what_goes_wrong_at_any_step_of_an_update_leaves_everything_as_before(how: str, tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    for folder in (root, other):
        folder.mkdir()
        old_project(folder)
    before = everything(root)
    assert carry_out(how, 10_000, other, "update") == 0
    done = everything(other)

    number = 0
    for number in range(1, 60):
        code = carry_out(how, number, root, "update")
        if code == 0 or everything(root) != before:
            break
        assert code == 7
    # all is done where only what is no longer needed was to be cleared away
    assert {path: data for path, data in everything(root).items() if "/.toolweave-" not in f"/{path}"} == done
    assert number > 8


@pytest.mark.slow
@pytest.mark.requirement("R107")
def test_what_goes_wrong_while_adding_leaves_no_file_and_no_folder(tmp_path: Path) -> None:
    number = 0
    for number in range(1, 60):
        code = carry_out("full", number, tmp_path, "add")
        if list(tmp_path.iterdir()):
            break
        assert code == 7

    assert number > 15
    assert not Project(tmp_path).add("mcp-server").plan.writes


@pytest.mark.slow
@pytest.mark.requirement("R107")
def test_a_process_that_is_killed_at_any_step_loses_no_edit_and_the_next_update_ends_the_work(tmp_path: Path) -> None:
    number = 0
    for number in range(1, 60):
        root = tmp_path / str(number)
        root.mkdir()
        old_project(root)

        code = carry_out("kill", number, root, "update")

        assert "# mine" in (root / "mcp_server" / "bridge.py").read_text()
        project = Project(root)
        project.carry_out(project.update("mcp-server"))
        assert "# mine" in (root / "mcp_server" / "bridge.py").read_text()
        assert "# an older" not in (root / "mcp_server" / "settings.py").read_text()
        if code == 0:
            break
    assert number > 8


def test_a_file_that_changed_after_the_plan_ends_it_before_anything_is_written(tmp_path: Path) -> None:
    project = old_project(tmp_path)
    job = project.update("mcp-server")
    (tmp_path / "mcp_server" / "settings.py").write_text("changed by an editor\n")
    before = everything(tmp_path)

    with pytest.raises(ConfigError, match=r"settings\.py' was changed in the meantime"):
        project.carry_out(job)

    assert everything(tmp_path) == before


def test_an_executable_file_stays_executable_and_a_new_one_gets_the_usual_mode(tmp_path: Path) -> None:
    file, new, usual = tmp_path / "run.py", tmp_path / "deep" / "new.py", tmp_path / "usual"
    file.write_bytes(b"old")
    file.chmod(0o751)
    usual.touch()

    apply_changes([FileChange(path=file, before=b"old", after=b"new"), FileChange(path=new, before=None, after=b"x")])

    assert stat.S_IMODE(file.stat().st_mode) == 0o751
    assert stat.S_IMODE(new.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)
    assert everything(tmp_path) == {"deep/new.py": b"x", "run.py": b"new", "usual": b""}


def test_what_cannot_be_undone_keeps_nothing_else_from_it_and_loses_no_text(tmp_path: Path) -> None:
    first, clash = tmp_path / "first.py", tmp_path / "clash"
    first.write_bytes(b"mine")

    changes = [
        FileChange(path=first, before=b"mine", after=b"new"),
        FileChange(path=clash, before=None, after=b"x"),  # by then a folder has this name, for the next one
        FileChange(path=clash / "third.py", before=None, after=b"x"),
    ]
    with pytest.raises(OSError, match="clash"):
        apply_changes(changes)

    assert everything(tmp_path) == {"first.py": b"mine"}
