"""`toolweave doctor --through`: what clients lose of a server behind a gateway."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.command import write_config
from tests.cli.conftest import Cli
from tests.gateway.running import gateway

NOTES = [sys.executable, "-m", "toolweave.cli.demo.notes"]
NUMBERS = [sys.executable, "-m", "toolweave.cli.demo.numbers"]
CLIENTS = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


@pytest.mark.slow
def test_nothing_of_a_plain_server_is_lost_and_the_limits_of_old_clients_are_told(cli: Cli) -> None:
    done = cli("doctor", "--through", "--json", "--", *NOTES)
    shown = cli("doctor", "--through", "--", *NOTES)

    (server,) = done.json["servers"].values()
    assert [one["client"] for one in server["clients"]] == CLIENTS
    assert [one["lost"] for one in server["clients"]] == [[]] * len(CLIENTS)
    of_clients = [[limit for limit in one["limits"] if "need a client of" in limit] for one in server["clients"]]
    assert [len(limits) for limits in of_clients] == [2, 1, 0, 0]
    assert (done.code, shown.code) == (0, 0)
    assert shown.out.count("nothing is lost") == len(CLIENTS)
    assert "forms for the user need a client of 2025-06-18" in shown.out


@pytest.mark.slow
def test_a_gateway_that_runs_is_asked_for_what_it_has_of_the_server(cli: Cli, folder: Path) -> None:
    config = write_config(folder, {"notes": NOTES, "numbers": NUMBERS})
    served = write_config(folder, {"notes": NOTES}, name="served.json")
    with gateway(folder, served) as running:
        url = running.base + "/mcp"
        done = cli("doctor", "--through", "--gateway", url, "--json", "--config", str(config))
        shown = cli("doctor", "--through", "--gateway", url, "--config", str(config), "--server", "numbers")

    notes, numbers = done.json["servers"]["notes"], done.json["servers"]["numbers"]
    assert [one["lost"] for one in notes["clients"]] == [[]] * len(CLIENTS)
    assert {(one["kind"], one["name"], one["reason"]) for one in numbers["clients"][0]["lost"]} >= {
        ("tool", "add", "is not listed")
    }
    assert (done.code, shown.code) == (1, 1)
    assert "tool add is not listed" in shown.out


def test_a_server_that_does_not_answer_is_named(cli: Cli) -> None:
    done = cli("doctor", "--through", "--", "no-such-program")
    wrong = cli("doctor", "--gateway", "http://127.0.0.1:1/mcp", "--", *NOTES)

    assert done.code == 3
    assert "no-such-program" in done.err
    assert wrong.code == 2
    assert "--gateway goes with --through" in wrong.err
