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
        """Return the readable remark for a program that is to start it; `""` without one.

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
    return FoundProgram(command=command, path=absolute, needs_path=_needs_path(command, found, path))


def _needs_path(command: str, found: str, path: str | None) -> bool:
    if os.name != "posix":  # every program of a user has the whole PATH there
        return False
    if os.sep not in command and _is_hidden(command, found):
        return True
    return _needs_interpreter(found, path)


def programs_of(servers: Iterable[ServerConfig]) -> list[FoundProgram]:
    """Find the programs of the servers that are processes and whose entry sets no PATH, each command once."""
    commands: set[str] = set()
    for server in servers:
        if server.transport != "stdio" or "PATH" in server.env:
            continue
        if server.cwd is None:
            commands.add(server.command)
        else:
            commands.add(_within(server.cwd, server.command))
    return list(map(find_program, sorted(commands)))


def with_full_path(launch: ServerLaunch) -> tuple[ServerLaunch, list[FoundProgram]]:
    """Return a launch that works with any PATH, and its program if there is one to remark on.

    The full path is not enough: the program may be a script, or start others by their names. So the entry also gets
    the PATH. A program of the system keeps its name.
    """
    if launch.transport != "stdio" or "PATH" in launch.env:
        return launch, []
    program = find_program(launch.command)
    if program.path is None:
        return launch, [program]
    if not program.needs_path:
        return launch, []
    env: dict[str, LaunchWord] = dict(launch.env)
    for name, value in own_path().items():
        env[name] = (value,)
    return launch.replace(command=program.path, env=env), [program]


def own_path() -> Mapping[str, str]:
    """Return the variable PATH of this process, with absolute directories only."""
    parts = os.environ.get("PATH", "").split(os.pathsep)
    kept = dict.fromkeys(part for part in parts if Path(part).is_absolute())
    if kept:
        return {"PATH": os.pathsep.join(kept)}
    return {}


def _is_hidden(command: str, found: str) -> bool:
    """Return whether the system's PATH does not have this program, or has another one of its name."""
    usual = shutil.which(command, path=SYSTEM_PATH)
    if usual is None:
        return True
    # A link to the same program is another command: in a virtual environment, it has other packages.
    return Path(usual).parent.resolve() != Path(found).parent.resolve()


def _needs_interpreter(script: str, path: str | None) -> bool:
    """Return whether a script names an interpreter by `env`, as most do, that the system's PATH does not have."""
    # Only the first line counts, and only `env`: a script that names an interpreter by its full path needs no PATH.
    name = _interpreter_by_env(script)
    if not name:
        return False
    found = shutil.which(name, path=path)
    return found is not None and _is_hidden(name, found)


def _interpreter_by_env(script: str) -> str:
    """Return the interpreter in a first line such as `#!/usr/bin/env -S A=B node`; `""` for any other file."""
    try:
        with Path(script).open("rb") as file:
            line = file.readline(_MAX_LINE)
    except OSError:
        return ""
    if not line.startswith(b"#!"):
        return ""
    env, *words = line.removeprefix(b"#!").split() or [b""]
    if env.rpartition(b"/")[2] != b"env":
        return ""
    for word in words:
        is_option = word.startswith(b"-")
        if not is_option and b"=" not in word:
            return os.fsdecode(word)
    return ""


def _within(cwd: str, command: str) -> str:
    """Return a command as it is found from a working directory."""
    if os.sep in command:
        return str(Path(cwd) / command)
    return command
