"""The `toolweave` command for tests: as a process, and on a terminal of its own."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolweave.config import TrustedFiles, load_config

__all__ = ["Done", "Terminal", "on_terminal", "toolweave", "trust", "write_config"]

COMMAND = [sys.executable, "-m", "toolweave"]
SECONDS = 60.0
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


def toolweave(
    *args: object, stdin: str | bytes | None = None, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Done:
    """Run the command as a process, with nothing on standard input unless something is given."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    stream = subprocess.DEVNULL if data is None else subprocess.PIPE
    with subprocess.Popen(
        [*COMMAND, *map(str, args)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=stream,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            out, err = process.communicate(data, timeout=SECONDS)
        finally:
            process.kill()
    return Done(process.returncode, out.decode(), err.decode())


def write_config(
    folder: Path, servers: Mapping[str, Sequence[str] | Mapping[str, Any]], name: str = "mcp.json"
) -> Path:
    """Write a config with these servers, and trust it; one that is a list is a command."""
    entries = {
        key: dict(value) if isinstance(value, Mapping) else {"command": value[0], "args": list(value[1:])}
        for key, value in servers.items()
    }
    path = folder / name
    path.write_text(json.dumps({"mcpServers": entries}), "utf-8")
    trust(path)
    return path


def trust(path: Path) -> None:
    """Say yes to a config file, as somebody did who was asked about it before."""
    TrustedFiles().trust(load_config(path).files[0])


class Terminal:
    """A command on a pseudo-terminal: what it shows, and what a person types."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.raw = ""

    @property
    def text(self) -> str:
        """What was shown so far, without colours and cursor movements."""
        return _STYLES.sub("", self.raw)

    def wait_for(self, pattern: str) -> str:
        """Read until the text matches; return all text so far. Fails when the command ends before."""
        deadline = time.monotonic() + SECONDS
        while not re.search(pattern, self.text):
            assert self._read(deadline - time.monotonic()), f"{pattern!r} never came; shown was:\n{self.text}"
        return self.text

    def type(self, text: str) -> None:
        """Type on the keyboard; `\\x03` is Ctrl-C."""
        os.write(self._descriptor, text.encode())

    def end(self) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(max(deadline - time.monotonic(), 0.1))

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], max(seconds, 0))
        if not ready:
            raise TimeoutError(f"nothing more was shown; shown was:\n{self.text}")
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # how Linux says that the other side is gone
            data = b""
        self.raw += data.decode("utf-8", "replace")
        return bool(data)


@contextlib.contextmanager
def on_terminal(
    *args: object,
    cwd: Path | None = None,
    columns: int = 120,
    program: Sequence[str] = COMMAND,
    env: Mapping[str, str] | None = None,
) -> Generator[Terminal]:
    """Run a command, `toolweave` by default, on a new terminal; it is killed at the end if it still runs."""
    master, slave = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI")}
    terminal = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "50"}
    command = [*program, *map(str, args)]
    # a session of its own, whose controlling terminal this becomes: Ctrl-C must arrive as SIGINT
    starter = [sys.executable, "-c", _STARTER, *command]
    with subprocess.Popen(
        starter,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=cwd,
        env={**plain, **terminal, **(env or {})},
        start_new_session=True,
    ) as p:
        os.close(slave)
        try:
            yield Terminal(p, master)
        finally:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
            os.close(master)


_STARTER = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
