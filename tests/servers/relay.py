"""A process that relays its pipe to a server of the era that a file names, and replaces that when the file changes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import IO


def _pass_on(answers: IO[bytes]) -> None:
    for line in answers:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def main(eras: Path, command: list[str]) -> None:
    """Relay until the client hangs up."""
    era = ""
    server: subprocess.Popen[bytes] | None = None
    for line in sys.stdin.buffer:
        if eras.read_text() != era:
            if server is not None:
                server.kill()
                server.wait()
            era = eras.read_text()
            server = subprocess.Popen([*command, "--era", era], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert server.stdout is not None
            threading.Thread(target=_pass_on, args=(server.stdout,), daemon=True).start()
        assert server is not None
        assert server.stdin is not None
        server.stdin.write(line)
        server.stdin.flush()
    if server is not None:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
