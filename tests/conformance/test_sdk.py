"""The official SDK beside the suite: its server before a gateway, and its own tests with a gateway in the middle."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.sdk import SDK, SERVER_FOLDER, play_interaction_tests, read_losses
from tests.conformance.server_process import GATEWAY, serving
from tests.conformance.suite import play_all, versions

pytestmark = [pytest.mark.conformance, pytest.mark.slow]

NEWEST = versions()[-1]
SCENARIOS = {"2025-06-18": 27, "2025-11-25": 33, "2026-07-28": 40}
PASSED_AT_LEAST = 160
"""How many of the 228 tests pass at least; all of them do without a gateway."""


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    if not (SDK / ".installed").exists():
        pytest.fail(f"{SDK} is missing; run scripts/conformance --install", pytrace=False)


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway with default settings before the SDK's server, which speaks both eras."""
    folder = tmp_path_factory.mktemp("sdk")
    start = "import sys; sys.path.insert(0, sys.argv.pop(1)); from mcp_everything_server.server import main; main()"
    command = (sys.executable, "-c", start, os.fspath(SERVER_FOLDER), "--log-level", "CRITICAL")
    with (
        serving(folder / "log", command=command) as url,
        serving(folder / "gateway", command=(*GATEWAY, url)) as gateway,
    ):
        yield gateway


@pytest.mark.timeout(600)
@pytest.mark.requirement("R105")
@pytest.mark.parametrize("revision", SCENARIOS)
def test_every_scenario_passes_before_a_server_of_both_eras(revision: str, through: str, tmp_path: Path) -> None:
    _, outcomes = play_all(NEWEST, ["--suite", "all", "--spec-version", revision], through, tmp_path)

    wrong = {name: outcome.said for name, outcome in outcomes.items() if outcome.verdict != "pass"}
    assert not wrong
    assert len(outcomes) == SCENARIOS[revision]


@pytest.mark.timeout(600)
def test_the_sdks_own_tests_pass_through_a_gateway_but_for_the_listed_losses(tmp_path: Path) -> None:
    outcomes = play_interaction_tests(tmp_path)

    lost = {name for name, outcome in outcomes.items() if outcome != "PASSED"}
    assert len(outcomes) == 228
    assert sorted(lost - read_losses().keys()) == []
    assert len(outcomes) - len(lost) >= PASSED_AT_LEAST


def test_every_listed_loss_has_a_reason() -> None:
    losses = read_losses()

    assert losses
    assert all(reason.endswith(".") for reason in losses.values())
