"""The work behind the fixtures of the pytest plugin; knows nothing of pytest."""

from __future__ import annotations

import difflib
import os
import re
import signal
import subprocess
import uuid
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from toolweave.testing._recorder import record
from toolweave.testing._replayer import Replay, replay
from toolweave.testing.servers import HTTP_FAULTS, STDIO_FAULTS, http_fault_server, stdio_fault_command


@contextmanager
def stdio_faults() -> Generator[Callable[..., list[str]]]:
    """Yield a function that returns commands of faulty servers; processes that outlive the block are killed."""
    mark = f"toolweave-test={uuid.uuid4()}"

    def command(mode: str, *args: object) -> list[str]:
        _check(mode, STDIO_FAULTS, "stdio")
        python, *rest = stdio_fault_command(mode, *args)
        # An option that Python passes over, to know the process by.
        return [python, "-X", mark, *rest]

    try:
        yield command
    finally:
        for pid in _marked(mark):
            with suppress(ProcessLookupError):
                # A child of the server has no mark, but its group.
                group = os.getpgid(pid)
                # A server without its own group is in that of the tests, which must survive.
                os.kill(pid, signal.SIGKILL) if group == os.getpgrp() else os.killpg(group, signal.SIGKILL)


@contextmanager
def http_faults() -> Generator[Callable[..., str]]:
    """Yield a function that starts faulty HTTP servers, which are stopped after the block."""
    with ExitStack() as running:

        def start(mode: str, *args: object) -> str:
            _check(mode, HTTP_FAULTS, "HTTP")
            return running.enter_context(http_fault_server(mode, *args))

        yield start


class CassetteFactory:
    """Makes the targets of one test: recordings or recorded servers, a cassette for each.

    Args:
        folder: Where the cassettes are.
        test: The test's name.
        mode: `"none"` only plays back, `"once"` records missing cassettes, `"new"` records all of them again.
    """

    def __init__(self, folder: Path, test: str, mode: str) -> None:
        self._folder = folder
        self._stem = re.sub(r"[^\w.-]+", "_", test).strip("_")
        self._mode = mode
        self._used: set[str] = set()
        self._replays: list[Replay] = []

    def __call__(self, target: Any, *, name: str = "", secrets: Iterable[str] = ()) -> Any:
        """Return the target for `connect_mcp` instead of `target`: a recording one, or the recorded server.

        Args:
            target: The server, reached only to record it.
            name: Distinguishes several cassettes of one test.
            secrets: Texts to mask, beside the credentials of the target.

        Raises:
            FileNotFoundError: There is no cassette, and the mode does not record.
            ValueError: The name is taken, or the cassette is broken.
        """
        if name in self._used:
            raise ValueError(f"cassette {name!r} is in use in this test; give each server another name: name=...")
        self._used.add(name)
        path = self._folder / f"{self._stem}{f'-{name}' if name else ''}.jsonl"
        if self._mode == "new" or (self._mode == "once" and not path.exists()):
            return record(target, path, secrets=secrets)
        if not path.exists():
            raise FileNotFoundError(f"there is no cassette {path}; record it with `pytest --mcp-record=once`")
        played = replay(path)
        self._replays.append(played)
        return played

    @property
    def unrecorded(self) -> list[str]:
        """The requests that the cassettes had no answer to."""
        messages: list[str] = []
        for played in self._replays:
            messages += played.unrecorded
        return messages


def _check(mode: str, modes: Collection[str], kind: str) -> None:
    if mode in modes:
        return
    near = difflib.get_close_matches(mode, modes, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ValueError(f"there is no {kind} fault {mode!r}{hint} There are: {', '.join(sorted(modes))}")


def _marked(mark: str) -> list[int]:
    """Return the ids of the processes with this mark on their command line."""
    if Path("/proc/self/cmdline").exists():
        found: list[int] = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it ended while we looked
                if mark.encode() in entry.read_bytes():
                    found.append(int(entry.parent.name))
        return found
    table = subprocess.run(["ps", "-axo", "pid=,command="], capture_output=True, text=True, check=False).stdout
    return [int(line.split()[0]) for line in table.splitlines() if mark in line]
