"""Makes the entries of servers.json runnable on this machine: working folder, home, environment, Python.

Knows paths and variables only, nothing of Toolweave.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["BROKEN", "runnable"]

SHARED_PARTS = (".npm", ".npmrc", ".cache", ".local", ".pyenv")
"""Of the user's home: what npx and uvx would fetch or build again, and how npm builds native parts here."""
PASSED_ON = ("PYENV_ROOT", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE")
NEWER_PYTHON = frozenset({"basic-memory", "dbt", "yfinance"})
"""Servers whose newest releases need Python 3.12, while uvx takes the first Python on PATH."""

BROKEN: dict[str, dict[str, Any]] = {
    "broken-absent": {"command": "toolweave-test-no-such-command"},
    "broken-not-executable": {"command": __file__},
    "broken-exits-0": {"command": sys.executable, "args": ["-c", ""]},
    "broken-dies": {"command": sys.executable, "args": ["-c", "raise SystemExit('the dog ate my database')"]},
    "broken-babbles": {"command": sys.executable, "args": ["-c", "for _ in range(100): print('[not] {json')"]},
    "broken-silent": {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "timeout": 5},
    "broken-refused": {"url": "http://127.0.0.1:9/mcp"},
    "broken-no-command": {"args": ["-y", "nothing"]},
    "broken-package": {"command": "npx", "args": ["--offline", "-y", "toolweave-no-such-package-at-all"]},
}
"""Entries that cannot work, each for a reason of its own, to stand beside the good ones."""


def runnable(servers_json: Path, *, work: Path, home: Path) -> dict[str, dict[str, Any]]:
    """Return the entries with `$WORK` filled in, a home with the user's caches, and their set-up done in `work`."""
    home.mkdir()
    for name in SHARED_PARTS:
        if (_real_home() / name).exists():
            (home / name).symlink_to(_real_home() / name)
    text = servers_json.read_text(encoding="utf-8").replace("$WORK", str(work))
    entries: dict[str, dict[str, Any]] = json.loads(text)["mcpServers"]
    for name, entry in entries.items():
        if "x-setup" in entry:
            subprocess.run(entry["x-setup"], shell=True, check=True, cwd=work)
        entry["env"] = {**dict(_environment(home)), **entry.get("env", {})}
        entry["cwd"] = str(work)
        python = _newer_python() if name in NEWER_PYTHON else None
        if python is not None:
            entry["env"]["UV_PYTHON"] = python
    return entries


def _environment(home: Path) -> Iterator[tuple[str, str]]:
    yield "HOME", str(home)
    yield "PYTHONHASHSEED", "0"  # mcp-atlassian joins a set into a default value, in another order at each start
    yield "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # uvx lies beside our python
    for name, value in os.environ.items():
        if name in PASSED_ON or name.startswith(("UV_", "PIP_", "npm_config_")):
            yield name, value


def _real_home() -> Path:
    return Path(pwd.getpwuid(os.getuid()).pw_dir)  # HOME is a test's own by now


def _newer_python() -> str | None:
    candidates = [shutil.which("python3.13"), shutil.which("python3.12")]
    candidates += [str(path) for path in sorted((_real_home() / ".pyenv" / "versions").glob("3.1[23].*/bin/python3"))]
    for path in candidates:
        # A pyenv shim is on PATH whether or not its version is installed.
        if path is not None and subprocess.run([path, "-V"], capture_output=True, check=False).returncode == 0:
            return path
    return None
