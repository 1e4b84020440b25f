"""Programs that the windows of the tests run: browsers, their drivers and a display."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

__all__ = ["SECONDS", "found_program", "running_program"]

SECONDS = 60
"""How long a window waits for an element, and a program for its end."""


def found_program(names: tuple[str, ...]) -> str | None:
    """Return the path of the first program of these names that is installed."""
    return next((found for name in names if (found := shutil.which(name))), None)


@contextmanager
def running_program(command: list[str], log: Any, environment: dict[str, str], **more: Any) -> Generator[None]:
    """Run a program, with its output in a file, until the block ends."""
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, **more)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        finally:
            process.kill()
