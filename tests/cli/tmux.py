"""A real terminal, as tmux emulates it: what is typed, and what its screen shows."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.programs import ran

__all__ = ["Tmux", "open_tmux"]

SECONDS = 60


class Tmux:
    """A terminal of tmux's, on a server of its own."""

    def __init__(self, folder: Path) -> None:
        self._command = ["tmux", "-u", "-S", str(folder / "tmux"), "-f", "/dev/null"]

    def do(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """Give tmux a command; return what it prints. The first one's environment is that of the terminal."""
        command = [*self._command, *words]
        return ran(command, env=env, seconds=30, check=True).stdout

    def screen(self, *, styled: bool = False) -> str:
        """Return what the screen shows; `styled` leaves the escape sequences of colours in."""
        return self.do("capture-pane", "-p", *(["-e"] if styled else []))

    def wait_for(self, text: str) -> str:
        """Look at the screen until it shows a text; return the screen."""
        deadline = time.monotonic() + SECONDS
        while text not in (shown := self.screen()):
            assert time.monotonic() < deadline, f"{text!r} never came; shown was:\n{shown}"
        return shown

    def type(self, text: str) -> None:
        """Type a line."""
        self.do("send-keys", "-l", text)
        self.do("send-keys", "Enter")

    def end(self) -> None:
        """End the terminal with what runs in it."""
        subprocess.run([*self._command, "kill-server"], capture_output=True, timeout=30, check=False)


@contextmanager
def open_tmux(folder: Path) -> Generator[Tmux]:
    """Open a terminal in a folder; skips the test where there is no tmux."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    terminal = Tmux(folder)
    try:
        yield terminal
    finally:
        terminal.end()
