"""The source distribution of the official SDK: its server for the official suite, and its own interaction tests.

`scripts/conformance --install` unpacks it into `.cache/sdk`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["LOSSES", "SDK", "SERVER_FOLDER", "play_interaction_tests", "read_losses"]

# Without links: pytest names tests by the folder that they really are in.
SDK = (Path(__file__).resolve().parent.parent.parent / ".cache" / "sdk").resolve()
SERVER_FOLDER = SDK / "examples" / "servers" / "everything-server"
"""The server of the SDK that has what the official suite asks for, in both eras."""
LOSSES = Path(__file__).with_name("sdk_losses.txt")
RUN_SECONDS = 540
_ROW = re.compile(r"^(PASSED|FAILED|ERROR) tests/interaction/(\S+?)(?: - .*)?$", flags=re.MULTILINE)
_CARRIER = re.compile(r"streamable-http-|asyncio-|-asyncio")


def play_interaction_tests(folder: Path) -> dict[str, str]:
    """Run the SDK's interaction tests through a gateway; return the outcome of each, by its name without the carrier.

    Raises:
        RuntimeError: The tests could not be run; with what the run printed.
    """
    config = folder / "pytest.ini"
    config.write_text("[pytest]\nmarkers =\n    requirement: a requirement of the SDK\n", encoding="utf-8")
    tests = SDK / "tests" / "interaction"
    command = [sys.executable, "-m", "pytest", "-c", str(config), "--rootdir", str(SDK), "--confcutdir", str(tests)]
    options = ["-q", "-rA", "--tb=no", "-p", "sdk_relay", "-p", "no:cacheprovider", "--timeout", "30", "-n", "2"]
    done = subprocess.run(
        [*command, *options, str(tests / "lowlevel"), str(tests / "mcpserver")],
        cwd=SDK,
        env={**os.environ, "PYTHONPATH": str(LOSSES.parent)},  # where the plugin is: `tests` is the SDK's here
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    rows = _ROW.findall(done.stdout)
    found = {_CARRIER.sub("", name): outcome for outcome, name in rows}
    if not found:
        raise RuntimeError(f"the SDK's tests did not run: {done.stdout[-5000:]}{done.stderr[-5000:]}")
    return found


def read_losses() -> dict[str, str]:
    """Return the tests that may fail through a gateway, each with the reason."""
    found: dict[str, str] = {}
    reason = ""
    for line in LOSSES.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        elif line:
            found[line] = reason
    return found
