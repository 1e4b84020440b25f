"""The benchmarks run, so that they cannot rot; what they measure is not asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measure import Figure, Sample, compare
from benchmarks.report import as_markdown
from benchmarks.targets import judge

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the benchmarks with one round of each case."""
    command = [sys.executable, "-m", "benchmarks", *arguments, "--quick", "--rounds", "1", "--json"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=300)


def figure(contender: str, cpu: float = 1.0, wall: float = 1.0) -> Figure:
    """Return a row of one call over stdio beside a baseline of one second."""
    samples = {"raw": [Sample(1.0, 1.0)], contender: [Sample(cpu, wall)]}
    return compare("calls", "stdio, 100 B, 1 caller", samples)[-1]


@pytest.mark.slow
def test_a_benchmark_compares_with_the_raw_baseline_and_the_sdk_side_by_side() -> None:
    done = bench("calls", "--only", "100 B, 16 callers")

    report = json.loads(done.stdout)
    for case in ("stdio, 100 B, 16 callers", "http, 100 B, 16 callers"):
        rows = {row["contender"]: row for row in report["figures"] if row["case"] == case}
        assert {"raw", "sdk", "toolweave"} <= set(rows), done.stderr.decode()
        assert rows["raw"]["cpu_ratio"] == 1.0
        assert all(0 < row["p50"] <= row["p99"] for row in rows.values())
    assert report["machine"]["cores"] >= 1
    assert {target["limit"] for target in report["targets"]} == {1.1, 1.3, 2.3, 2.5, 3.8}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "only"),
    [("extremes", "http, 50 MB"), ("extremes", "stdio, 20,000"), ("discovery", "1,000"), ("memory", "stdio,")],
)
def test_every_kind_of_job_is_done_by_the_baseline_and_by_us(name: str, only: str) -> None:
    done = bench(name, "--only", only, "--client", "toolweave")

    assert {row["contender"] for row in json.loads(done.stdout)["figures"]} == {"raw", "toolweave"}, (
        done.stderr.decode()
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", ["32 local calls", "request from 1,000 tools"])
def test_an_agent_is_measured_in_units_of_ours(case: str) -> None:
    done = bench("agents", "--only", case, "--client", "toolweave")

    (row,) = json.loads(done.stdout)["figures"]
    assert (row["contender"], row["cpu_ratio"]) == ("toolweave", 1.0), done.stderr.decode()
    assert row["cpu"] > 0


@pytest.mark.parametrize(("case", "limit"), [("one turn", 3), ("request from many tools", 5)])
def test_an_agent_is_held_against_the_better_of_its_peers(case: str, limit: float) -> None:
    def met(better: float) -> bool:
        samples = {"toolweave": [Sample(1, 1)], "a": [Sample(better, 1)], "b": [Sample(better + 9, 1)]}
        (verdict,) = judge(compare("agents", case, samples, baseline="toolweave"))
        return verdict.met

    assert met(limit)
    assert not met(limit - 0.1)


@pytest.mark.parametrize("wrong", [["nothing"], ["calls", "--client", "nobody"]])
def test_an_unknown_benchmark_or_client_is_refused(wrong: list[str]) -> None:
    done = bench(*wrong)

    assert done.returncode == 2
    assert b"discovery" in done.stderr


@pytest.mark.parametrize(("cpu", "met"), [(1.3, True), (1.4, False)])
def test_a_target_is_missed_only_beyond_its_limit(cpu: float, met: bool) -> None:
    (verdict,) = judge([figure("raw"), figure("toolweave", cpu=cpu)])

    assert verdict.met is met
    assert verdict.worst == cpu


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_a_row_without_samples_is_left_out() -> None:
    raw, sdk = [Sample(1, 1), Sample(2, 2), Sample(90, 90)], [Sample(4, 8), Sample(8, 16), Sample(900, 90)]
    samples = {"raw": raw, "sdk": sdk, "gone": []}

    rows = {row.contender: row for row in compare("calls", "case", samples)}

    assert (rows["sdk"].cpu_ratio, rows["sdk"].wall_ratio) == (4, 8)
    assert rows["raw"].sdk_ratio == 0.25
    assert "gone" not in rows


def test_the_page_has_ratios_only() -> None:
    text = as_markdown([figure("raw"), figure("toolweave", cpu=1.5, wall=123.0)])

    assert "| stdio, 100 B, 1 caller | 1.50 |" in text
    assert "123" not in text


@pytest.mark.slow
@pytest.mark.usefixtures("redis_url")
def test_a_durable_run_is_measured_in_units_of_docket() -> None:
    done = bench("durable")

    rows = {row["contender"]: row for row in json.loads(done.stdout)["figures"]}
    assert set(rows) == {"docket", "toolweave"}, done.stderr.decode()
    assert rows["docket"]["cpu_ratio"] == 1.0
    assert b"Redis commands" in done.stderr
