"""`toolweave serve` for tests: its command line, and one that serves over HTTP while a block runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["SERVE", "serve_entry", "serving", "start"]

SERVE = [sys.executable, "-m", "toolweave", "serve"]


def serve_entry(*args: object, **more: Any) -> dict[str, Any]:
    """Return the config entry that serves over stdio."""
    return {"command": SERVE[0], "args": [*SERVE[1:], *map(str, args)], **more}


def start(*args: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start to serve over HTTP on a free port."""
    return subprocess.Popen(
        [*SERVE, *map(str, args), "--http", "0", "--json"],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(
    *args: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Generator[tuple[dict[str, Any], subprocess.Popen[str]], None, None]:
    """Serve over HTTP on a free port; yields what it said of itself, and the process."""
    with start(*args, cwd=cwd, env=env) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr is not None else ""
            yield json.loads(line), process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=30)
            finally:
                process.kill()
