"""A short soak in the suite, and the verdict shown to find what it looks for. The long one: `scripts/soak`."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.soak.verdict import Disturbance, Record, executions, judge, memory_growth

ROOT = Path(__file__).parents[2]
KILLED = Disturbance(server="s00", act="kill", at=5.0, ends=5.0)
STOPPED = Disturbance(server="s00", act="stop", at=5.0, ends=7.0)


USUAL = Record(id="c1-1", server="s00", tool="once", outcome="ok", began=4.0, ended=6.0)


def call(outcome: str, tool: str = "once", **more: Any) -> Record:
    """Return a call that ran while its server was struck, if it was."""
    return replace(USUAL, outcome=outcome, tool=tool, **more)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_no_answer_is_lost_or_doubled_and_nothing_is_left_while_servers_die(transport: str) -> None:
    command = [sys.executable, "-m", "tests.soak.soak", "--json", "--seconds", "10", "--seed", "3", "--pause", "0.3"]
    command += ["--transport", transport, "--servers", "6", "--callers", "6"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, timeout=400)

    assert done.stdout, done.stderr.decode()[-3000:]
    report = json.loads(done.stdout)
    assert report["violations"] == []
    assert done.returncode == 0
    assert report["outcomes"]["ok"] > 20
    assert sum(report["blows"].values()) > 0


@pytest.mark.parametrize(
    ("record", "times", "blow", "rule"),
    [
        (call("ok"), 0, KILLED, "an answer without an execution"),
        (call("ok"), 2, KILLED, "a call was executed more often than it may be"),
        (call("ok", "again"), 3, KILLED, "a call was executed more often than it may be"),
        (call("wrong"), 1, KILLED, "an answer that is not this call's"),
        (call("not_sent"), 1, KILLED, "a call was executed that was said not to be sent"),
        (call("not_sent"), 0, STOPPED, "a call was lost though nothing broke"),
        (call("outcome_unknown"), 1, None, "a call was lost though nothing broke"),
        (call("outcome_unknown", began=21.0, ended=22.0), 1, KILLED, "a call was lost though nothing broke"),
        (call("timeout"), 0, None, "a call timed out though nothing held it up"),
        (call("execution_failed"), 1, KILLED, "a call failed that should not"),
        (call("not_found"), 0, KILLED, "an outcome that nobody can use"),
        (call("not_found", "extra"), 1, None, "a call was executed that was said not to exist"),
        (call("closed"), 0, KILLED, "an outcome that nobody can use"),
    ],
)
def test_the_verdict_finds_each_broken_promise(record: Record, times: int, blow: Disturbance | None, rule: str) -> None:
    found = judge([record], {record.id: times} if times else {}, [blow] if blow else [])

    assert [violation.rule for violation in found] == [rule]


@pytest.mark.parametrize(
    ("record", "times", "blow"),
    [
        (call("ok"), 1, None),
        (call("ok", "again"), 2, KILLED),
        (call("not_sent"), 0, KILLED),
        (call("outcome_unknown"), 0, KILLED),
        (call("outcome_unknown"), 1, KILLED),
        (call("timeout"), 1, STOPPED),
        (call("timeout", slow=True), 1, None),
        (call("cancelled"), 1, None),
        (call("execution_failed", "fail"), 1, None),
        (call("protocol", "extra"), 0, None),
    ],
)
def test_the_verdict_accepts_what_is_precise(record: Record, times: int, blow: Disturbance | None) -> None:
    assert judge([record], {record.id: times} if times else {}, [blow] if blow else []) == []


def test_a_call_that_ended_twice_or_never_is_found() -> None:
    found = judge([call("ok"), call("ok")], executions(["once c1-1 7", "once c1-2 7", "tor"]), [])

    assert [violation.rule for violation in found] == ["a call ended twice", "an executed call never ended"]


def test_memory_is_compared_after_the_warm_up() -> None:
    assert memory_growth([1, 1, 5, 5, 5, 5, 5, 5]) == (5, 5)
    assert memory_growth(list(range(80))) == (25, 75)
