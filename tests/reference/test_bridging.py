"""A server of others that knows no revision after 2025-11-25, behind a gateway, as a client of 2026-07-28 meets it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.server_process import GATEWAY, serving
from tests.conformance.suite import Outcome, Scenario, contract, play_server, versions
from tests.reference.servers import INSTALLED

pytestmark = [pytest.mark.reference, pytest.mark.slow]

SERVER = (str(INSTALLED / "sqlite" / "bin" / "python"), str(Path(__file__).with_name("handshake_server.py")))
SUITE = versions()[-1]
COMMON = (
    "completion-complete",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
)
"""What both revisions require of a server and not of the way to it."""
ASKING = (
    "input-required-result-basic-sampling",
    "input-required-result-basic-list-roots",
)
"""Questions of a running call, which this client answers with a request of its own.

Those to the user have to come under keys of the server, for which its revision has no place.
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server."""
    with serving(tmp_path_factory.mktemp("server") / "log", command=SERVER) as url:
        yield url


@pytest.fixture(scope="module")
def through(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in front of it, without a word of its revision."""
    with serving(tmp_path_factory.mktemp("gateway") / "log", command=(*GATEWAY, url)) as gateway:
        yield gateway


def played(name: str, revision: str, url: str, folder: Path) -> Outcome:
    """Play one scenario."""
    results = folder / revision
    results.mkdir()
    return play_server(Scenario(suite=SUITE, revision=revision, name=name), url, results)


def test_the_scenarios_are_those_that_both_revisions_require() -> None:
    of_the_way = {"json-schema-2020-12", "server-sse-multiple-streams", "dns-rebinding-protection"}
    both = {*contract(SUITE, "2025-11-25")} & {*contract(SUITE, "2026-07-28")}

    assert len(COMMON) == 18
    assert {*COMMON} == both - of_the_way


@pytest.mark.parametrize("name", COMMON)
def test_what_the_server_passes_itself_passes_through_a_gateway_for_a_client_of_the_next_revision(
    name: str, url: str, through: str, tmp_path: Path
) -> None:
    itself = played(name, "2025-11-25", url, tmp_path)
    behind = played(name, "2026-07-28", through, tmp_path)

    assert itself.verdict == "pass", itself.said
    assert behind.verdict == "pass", behind.said


@pytest.mark.parametrize("name", ASKING)
def test_its_questions_reach_a_client_of_the_next_revision(name: str, through: str, tmp_path: Path) -> None:
    outcome = played(name, "2026-07-28", through, tmp_path)

    assert outcome.verdict == "pass", outcome.said
