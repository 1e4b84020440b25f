"""The authorization server `oidc-provider` as a process, which can be ended and started again without its memory.

Knows how the program is started, nothing of Toolweave.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.conformance.suite import node
from tests.reference.servers import INSTALLED

__all__ = ["AuthorizationServer"]

SCRIPT = Path(__file__).with_name("authorization_server.mjs")


class AuthorizationServer:
    """One authorization server of this machine; started when entered, killed when left.

    Args:
        seconds: The lifetime of an access token.

    Attributes:
        issuer: Its issuer, which is its address.
        said: The lines it has printed since its start: `grant TYPE`, `destroyed`, `revoked`.
    """

    def __init__(self, *, seconds: int = 300) -> None:
        self.issuer = ""
        self.said: list[str] = []
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        """Start it, on the same port as before."""
        port = self.issuer.rpartition(":")[2] or "0"
        command = [node(), str(SCRIPT), str(INSTALLED / "npm"), port, str(self._seconds)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # `node` may be a script that starts it
        )
        assert process.stdout is not None
        self.said = []
        self.issuer = process.stdout.readline().strip()
        if not self.issuer.startswith("http://127.0.0.1:"):
            raise RuntimeError(f"oidc-provider did not start: {self.issuer}{process.communicate()[0]}")
        self._process = process
        self._reader = threading.Thread(target=self._read, args=(process, self.said))
        self._reader.start()

    def stop(self) -> None:
        """Kill it; all that it has granted is forgotten."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._reader is not None:
            self._reader.join()

    @staticmethod
    def _read(process: subprocess.Popen[str], said: list[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                said.append(line.strip())  # noqa: PERF401 - others read it meanwhile

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
