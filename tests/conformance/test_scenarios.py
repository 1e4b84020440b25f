"""Every scenario of the official conformance suite: for the client one by one, for the server in
one go at every revision, which `scripts/conformance` does one by one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import suite
from tests.conformance.page import PAGE, page
from tests.conformance.server_process import COMMAND, GATEWAY, serving
from tests.conformance.suite import (
    INSTALLED,
    SKIPPED,
    WANTED,
    Outcome,
    Scenario,
    contract,
    contracts,
    play,
    play_all,
    play_server,
    required,
    scenarios,
    versions,
)

pytestmark = [pytest.mark.conformance, pytest.mark.slow]

CLIENT = scenarios("client") if INSTALLED.exists() else []
SERVER = scenarios("server") if INSTALLED.exists() else []
LEGS = sorted({(each.suite, each.revision) for each in SERVER if each.revision != suite.EXTENSION})
REQUIRED = 85
"""How many required pairs of scenario and revision there are at least; a suite that lists fewer was not read."""
NEWEST = versions()[-1]


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    stamp = INSTALLED / ".installed"
    if not stamp.exists() or stamp.read_bytes() != WANTED.read_bytes():
        pytest.fail(f"{INSTALLED} is missing or old; run scripts/conformance --install", pytrace=False)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server under test prints."""
    return tmp_path_factory.mktemp("server") / "log"


@pytest.fixture(scope="module")
def url(log: Path) -> Iterator[str]:
    """The server under test."""
    with serving(log) as url:
        yield url


@pytest.fixture(scope="module")
def bridged(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that speaks the newest revision with the server under test, whatever its own clients speak."""
    command = (*GATEWAY, "--protocol", "2026-07-28", url)
    with serving(tmp_path_factory.mktemp("bridge") / "log", command=command) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def through(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in front of the server under test."""
    with serving(tmp_path_factory.mktemp("gateway") / "log", command=(*GATEWAY, url)) as gateway:
        yield gateway


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("scenario", CLIENT, ids=str)
def test_a_scenario_for_clients_passes(scenario: Scenario, tmp_path: Path) -> None:
    outcome = play(scenario, tmp_path)

    assert outcome.verdict == required(scenario), outcome.said


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("scenario", [each for each in SERVER if each.revision == suite.EXTENSION], ids=str)
def test_a_scenario_of_an_extension_for_servers_passes(scenario: Scenario, url: str, log: Path, tmp_path: Path) -> None:
    outcome = play_server(scenario, url, tmp_path)

    assert outcome.verdict == required(scenario), f"{outcome.said}\n{log.read_text(errors='replace')[-5000:]}"


@pytest.mark.requirement("R105")
@pytest.mark.parametrize(("version", "revision"), LEGS)
def test_all_scenarios_for_servers_pass(version: str, revision: str, url: str, tmp_path: Path) -> None:
    exit_code, outcomes = play_all(version, ["--suite", "all", "--spec-version", revision], url, tmp_path)

    wanted = {each.name for each in SERVER if (each.suite, each.revision) == (version, revision)}
    assert wanted
    assert wanted <= outcomes.keys()
    assert_well(outcomes)
    assert exit_code == 0


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("revision", contracts(NEWEST) if INSTALLED.exists() else [])
def test_everything_that_a_revision_requires_of_servers_passes(revision: str, url: str, tmp_path: Path) -> None:
    exit_code, outcomes = play_all(NEWEST, ["--requirements", revision], url, tmp_path)

    assert len(outcomes) >= {"2025-11-25": 30, "2026-07-28": 37}[revision]
    assert_well(outcomes)
    assert exit_code == 0


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("revision", contracts(NEWEST) if INSTALLED.exists() else [])
def test_everything_that_a_revision_requires_of_servers_passes_through_a_gateway(
    revision: str, through: str, tmp_path: Path
) -> None:
    exit_code, outcomes = play_all(NEWEST, ["--requirements", revision], through, tmp_path)

    wanted = contract(NEWEST, revision)
    assert len(wanted) == {"2025-11-25": 30, "2026-07-28": 37}[revision]
    assert set(wanted) <= outcomes.keys()
    assert_well(outcomes)  # the extensions that are no requirement included
    assert exit_code == 0


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("scenario", [each for each in SERVER if each.name == "server-sse-polling"], ids=str)
@pytest.mark.parametrize("options", [(), ("--retry-seconds", "0.1")])
def test_the_command_of_a_gateway_is_polled(
    scenario: Scenario, options: tuple[str, ...], url: str, tmp_path: Path
) -> None:
    config = tmp_path / "gateway.json"
    config.write_text(json.dumps({"mcpServers": {"up": {"type": "http", "url": url, "tool_prefix": ""}}}))
    command = (*COMMAND, *options, "--config", str(config))
    with serving(tmp_path / "log", command, port_option="--http") as gateway:
        outcome = play_server(scenario, gateway, tmp_path)

    assert outcome.verdict == "pass", outcome.said


@pytest.mark.requirement("R105")
def test_what_a_handshake_revision_requires_passes_before_an_upstream_without_a_handshake(
    bridged: str, tmp_path: Path
) -> None:
    revision = "2025-11-25"
    exit_code, outcomes = play_all(NEWEST, ["--requirements", revision], bridged, tmp_path)

    wanted = contract(NEWEST, revision)
    assert len(wanted) == 30
    assert_well({name: outcomes[name] for name in wanted})
    assert exit_code == 0


@pytest.mark.requirement("R105")
@pytest.mark.parametrize("revision", [revision for version, revision in LEGS if version == NEWEST])
def test_all_scenarios_for_servers_pass_through_a_gateway(revision: str, through: str, tmp_path: Path) -> None:
    exit_code, outcomes = play_all(NEWEST, ["--suite", "all", "--spec-version", revision], through, tmp_path)

    assert {each.name for each in SERVER if (each.suite, each.revision) == (NEWEST, revision)} <= outcomes.keys()
    assert_well(outcomes)
    assert exit_code == 0


def test_no_revision_of_any_version_of_the_suite_is_left_out() -> None:
    by_suite = {version: {each.revision for each in CLIENT if each.suite == version} for version in suite.versions()}

    assert by_suite == {
        "0.1.16": {"2025-03-26", "2025-06-18", "2025-11-25", "draft", "extension"},
        "0.2.0-alpha.12": {"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "extension"},
    }
    assert len([each for each in CLIENT if required(each) == "pass"]) >= REQUIRED
    assert LEGS == [
        ("0.1.16", "2025-06-18"),
        ("0.1.16", "2025-11-25"),
        ("0.2.0-alpha.12", "2025-03-26"),
        ("0.2.0-alpha.12", "2025-06-18"),
        ("0.2.0-alpha.12", "2025-11-25"),
        ("0.2.0-alpha.12", "2026-07-28"),
    ]
    assert len({each.name for each in SERVER}) == 65


def test_only_the_scenario_that_is_wrong_itself_fails() -> None:
    assert [str(each) for each in CLIENT if required(each) == "fail"] == [
        "0.1.16-2025-03-26-auth/2025-03-26-oauth-metadata-backcompat"
    ]


def test_only_what_is_no_part_of_the_protocol_is_skipped() -> None:
    assert {each.name for each in SERVER if required(each) == "skipped"} == {
        "tasks-status-notifications",  # the suite's own: it has no checks in it yet
    }


def test_the_page_has_every_scenario_with_its_verdict() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(CLIENT, required, SERVER, required), (
        "run scripts/conformance --write"
    )


BROKEN_CLIENTS = {
    "leaves with an exit code": "import sys; sys.exit(3)",
    "does nothing": "pass",
}


@pytest.mark.parametrize("name", ["tools_call", "http-invalid-tool-headers"])
@pytest.mark.parametrize("does", BROKEN_CLIENTS)
def test_a_client_that_does_not_do_its_part_fails(name: str, does: str, tmp_path: Path) -> None:
    outcome = run_client(tmp_path, name, BROKEN_CLIENTS[does])

    assert outcome.verdict == "fail"


def test_a_client_that_does_everything_and_leaves_with_an_exit_code_fails_even_where_the_suite_lets_it_pass(
    tmp_path: Path,
) -> None:
    script = f"sys.path.insert(0, {str(suite.HERE)!r}); import client; client.main(); sys.exit(3)"
    outcome = run_client(tmp_path, "http-invalid-tool-headers", f"import sys; {script}")

    assert "FAILURE" not in outcome.checks
    assert outcome.verdict == "fail"


def test_a_server_that_does_not_do_its_part_fails(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text("import http.server, sys; http.server.test(port=int(sys.argv[2]), bind='127.0.0.1')")
    (tmp_path / "results").mkdir()

    with serving(tmp_path / "log", command=(sys.executable, str(script))) as url:
        outcome = play_server(
            Scenario(suite=NEWEST, revision="2026-07-28", name="tools-list"), url, tmp_path / "results"
        )

    assert outcome.verdict == "fail"


def run_client(folder: Path, name: str, program: str) -> Outcome:
    """Run another client than ours."""
    (folder / "client.py").write_text(program, encoding="utf-8")
    scenario = Scenario(suite=NEWEST, revision="2026-07-28", name=name)
    (folder / "results").mkdir()
    return play(scenario, folder / "results", command=(sys.executable, str(folder / "client.py")))


def assert_well(outcomes: dict[str, Outcome]) -> None:
    """Assert that every scenario passed, but for those that the suite skips."""
    wrong = {
        name: outcome.said
        for name, outcome in outcomes.items()
        if outcome.verdict != ("skipped" if SKIPPED.match(name) else "pass")
    }
    assert not wrong, wrong
