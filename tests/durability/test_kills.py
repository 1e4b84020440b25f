"""Runs of other frameworks' agents, killed at every write to the store and around every effect, go on elsewhere."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.durability.killed import DONE, kills
from tests.programs import ran

CHECKOUT = Path(__file__).resolve().parent.parent.parent
FRAMEWORKS = ["pydantic_ai_writer", "openai_agents_writer", "langgraph_writer", "langgraph_nested_writer"]

pytestmark = pytest.mark.slow


@cache
def killed(framework: str, approved: str, folder: Path) -> dict[str, Any]:
    """Return what became of the run, killed everywhere."""
    command = [sys.executable, "-m", "tests.durability.killed", framework, str(folder), approved]
    done = ran(command, cwd=CHECKOUT, seconds=400)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "approved": bool(approved)}


@pytest.fixture(scope="module", params=[(one, how) for how in ("", "approved") for one in FRAMEWORKS], ids="-".join)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    framework, approved = request.param
    return killed(framework, approved, tmp_path_factory.mktemp(framework))


@pytest.mark.slow
def test_a_run_that_has_ended_returns_its_answer_again_and_does_nothing(found: dict[str, Any]) -> None:
    assert (found["whole"]["answer"], found["whole"]["effects"]) == (DONE, ["a", "b", "c"])
    assert (found["again"]["answer"], found["again"]["effects"]) == (DONE, ["a", "b", "c"])
    assert found["again"]["asked"] == 0
    assert (found["whole"]["waits"], found["again"]["waits"]) == (2 if found["approved"] else 0, 0)


def test_a_run_killed_anywhere_goes_on_to_the_same_answer_and_no_effect_is_doubled(found: dict[str, Any]) -> None:
    points = kills(found["whole"]["writes"], found["whole"]["waits"])
    wrong = {
        where: one
        for where, one in found["kills"].items()
        if (one["code"], one["answer"], one["effects"], one["unfinished"]) != (-9, DONE, ["a", "b", "c"], 0)
    }

    assert list(found["kills"]) == points
    assert len(points) > 15
    assert wrong == {}


def test_a_recorded_answer_of_the_model_is_not_asked_for_again(found: dict[str, Any]) -> None:
    asked = {where: one["asked"] for where, one in found["kills"].items()}

    assert asked["put:1"] == found["whole"]["asked"]  # nothing was recorded
    assert asked["after:c"] < asked["before:a"]
    assert asked[f"put:{found['whole']['writes']}"] == 0  # only the end was not
