"""Programs that an editor may not find: they are on the PATH of a shell, and editors start with another one.

An editor that is started from a desktop has the directories of the system on its PATH. Version managers, virtual
environments and package managers of users add theirs in files that only a shell reads.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from toolweave._value import Value
from toolweave.config import ServerConfig
from toolweave.install._launch import LaunchWord, ServerLaunch

SYSTEM_PATH = os.pathsep.join(("/usr/bin", "/bin", "/usr/sbin", "/sbin"))
"""The PATH that programs have everywhere on POSIX."""
_MAX_LINE = 256


class FoundProgram(Value, frozen=True, kw_only=True):
    """The program of a command, as a shell finds it.

    Attributes:
        command: The command.
        path: Its full path; None if it was not found.
        needs_path: Whether it, or the interpreter that it names, is found on this PATH and not on the system's.
    """

    command: str
    path: str | None
    needs_path: bool

    def remark(self, reader: str) -> str:
        """Return the remark for a person who lets a program start it; `""` if there is nothing to say.

        Args:
            reader: The name of the program that starts it.
        """
        if self.path is None:
            return f"the command {self.command!r} was not found: its server will not start until it is installed"
        if self.needs_path:
            return f"{self.command!r} was found by the PATH of this shell, which {reader} may not have ({self.path})"
        return ""


def find_program(command: str, path: str | None = None) -> FoundProgram:
    """Find the program of a command by a PATH, that of this process by default."""
    found = shutil.which(command, path=path)
    if found is None:
        return FoundProgram(command=command, path=None, needs_path=False)
    absolute = str(Path(found).absolute())
    is_bare = os.sep not in command
    needs_path = os.name == "posix" and ((is_bare and _is_hidden(command, found)) or _needs_interpreter(found, path))
    return FoundProgram(command=command, path=absolute, needs_path=needs_path)


def programs_of(servers: Iterable[ServerConfig]) -> list[FoundProgram]:
    """Find the programs of the servers that are processes and have no PATH of their own, each command once."""
    started = [one for one in servers if one.transport == "stdio" and one.command and "PATH" not in one.env]
    commands = {one.command if one.cwd is None else _within(one.cwd, one.command) for one in started if one.command}
    return [find_program(command) for command in sorted(commands)]


def with_full_path(launch: ServerLaunch) -> tuple[ServerLaunch, list[FoundProgram]]:
    """Return a launch that works with any PATH, and its program if there is one to remark on.

    The full path is not enough: the program may be a script, or start others by their names. So the entry gets the PATH
    too. A program of the system keeps its name.
    """
    if launch.transport != "stdio" or "PATH" in launch.env:
        return launch, []
    program = find_program(launch.command)
    if program.path is None:
        return launch, [program]
    if not program.needs_path:
        return launch, []
    env: dict[str, LaunchWord] = {**launch.env, **{name: (value,) for name, value in own_path().items()}}
    return launch.replace(command=program.path, env=env), [program]


def own_path() -> Mapping[str, str]:
    """Return the variable PATH of this process, with absolute directories only."""
    parts = os.environ.get("PATH", "").split(os.pathsep)
    kept = dict.fromkeys(part for part in parts if Path(part).is_absolute())
    if kept:
        return {"PATH": os.pathsep.join(kept)}
    return {}


def _is_hidden(command: str, found: str) -> bool:
    """Whether the system's PATH has not this program, or another one of its name."""
    usual = shutil.which(command, path=SYSTEM_PATH)
    # A link to the same program is another command: in a virtual environment, it has other packages.
    return usual is None or Path(usual).parent.resolve() != Path(found).parent.resolve()


def _needs_interpreter(script: str, path: str | None) -> bool:
    """Whether a script names an interpreter by `env`, as most scripts do, that the system's PATH has not."""
    try:
        with Path(script).open("rb") as file:
            line = file.readline(_MAX_LINE)
    except OSError:
        return False
    words = line.removeprefix(b"#!").split()
    if not line.startswith(b"#!") or len(words) < 2 or words[0].rpartition(b"/")[2] != b"env":
        return False
    names = [word for word in words[1:] if not word.startswith(b"-") and b"=" not in word]
    name = os.fsdecode(names[0]) if names else ""
    found = shutil.which(name, path=path) if name else None
    return found is not None and _is_hidden(name, found)


def _within(cwd: str, command: str) -> str:
    """Return a command as it is found from a working directory."""
    if os.sep in command:
        return str(Path(cwd) / command)
    return command
