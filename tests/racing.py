"""Processes that do something at the same moment: each writes `ready`, then waits for a line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import anyio.to_thread

__all__ = ["outputs_of_racers"]


async def outputs_of_racers(programs: Sequence[Sequence[str]]) -> list[str]:
    """Start a Python process for each of these arguments; return what each wrote after the common start.

    All must end with 0.
    """
    racers = [
        subprocess.Popen([sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for arguments in programs
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert await anyio.to_thread.run_sync(racer.stdout.readline) == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    outputs = [(await anyio.to_thread.run_sync(racer.communicate))[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * len(racers)
    return outputs
