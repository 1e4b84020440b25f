"""Fuzz one target with coverage guidance: `python -m tests.fuzz.fuzz TARGET SECONDS`.

Begins with the kept corpus, and adds what it finds in `.cache/fuzz/TARGET`. An input that ends with an undocumented
error, or costs too much CPU time or memory for its size, is left in `.cache/fuzz` and ends the run with a status.
"""

from __future__ import annotations

import importlib
import resource
import sys
import time
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).with_name("corpus")
FOUND = Path(__file__).parents[2] / ".cache" / "fuzz"
MAX_INPUT_BYTES = 20_000
BASE_SECONDS, SECONDS_PER_BYTE = 2.0, 200e-6
"""CPU time that an input may take; instrumented code is some ten times slower."""
MAX_GROWTH_KB = 300_000


def main() -> None:
    """Fuzz until the time is over or something is found."""
    name, seconds = sys.argv[1], int(sys.argv[2])
    atheris: Any = importlib.import_module("atheris")  # installed by `scripts/fuzz`: there is none for every Python
    with atheris.instrument_imports(include=["toolweave"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]

    def bounded(data: bytes) -> None:
        began, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        target(data)
        spent = time.process_time() - began
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
        assert spent <= BASE_SECONDS + SECONDS_PER_BYTE * len(data), f"{spent:.1f} s of CPU for {len(data)} bytes"
        assert grown <= MAX_GROWTH_KB, f"{grown} kB of memory for {len(data)} bytes"

    found = FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_INPUT_BYTES}",
        "-timeout=60",
        "-rss_limit_mb=2000",
        "-print_final_stats=1",
        f"-artifact_prefix={FOUND}/{name}-",
    ]
    atheris.Setup([sys.argv[0], str(found), str(CORPUS / name), *options], bounded)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
