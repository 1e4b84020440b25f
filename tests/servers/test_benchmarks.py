"""The benchmarks run, so that they cannot rot; what they measure is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_benchmark_compares_with_the_raw_baseline_and_the_sdk() -> None:
    command = [sys.executable, "-m", "benchmarks", "throughput", "--quick", "--rounds", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60)
    report = json.loads(done.stdout)
    ratios = {row["contender"]: row["cpu_ratio"] for row in report["figures"]}
    assert ratios["raw"] == 1.0
    assert {"raw", "sdk", "toolweave call_tool", "toolweave execute"} <= set(ratios)
    assert report["machine"]["cores"] >= 1


def test_an_unknown_benchmark_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks", "nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    assert b"discovery" in done.stderr
