"""A connection says to a server what the official SDK's client says, but for the differences that are listed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.contract.differences import FROM_THE_CLIENT, Difference, differences
from tests.contract.plays import MODERN, ROOT, play_ours, play_the_sdk, stage
from tests.contract.transcript import Json, Transcript

pytestmark = pytest.mark.slow

TRANSPORTS = ("stdio", "http")
NEWEST_LEGACY = "2025-11-25"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", NEWEST_LEGACY, MODERN)


async def played(folder: Path, transport: str, protocol: str) -> tuple[Json, Transcript]:
    """Play against a server of its own; return what the caller got and what the server got."""
    with stage(transport == "http", folder / "ours") as at:
        got = await play_ours(at, protocol)
        return got, at.transcript()


class Played(NamedTuple):
    """What a connection got from a server over one transport in one revision, and what the server got."""

    transport: str
    version: str
    got: Json
    sent: Transcript


@pytest.fixture(
    scope="module", params=[(transport, version) for transport in TRANSPORTS for version in VERSIONS], ids="-".join
)
async def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Play once for all that is compared with it."""
    transport, version = request.param
    got, sent = await played(tmp_path_factory.mktemp("ours"), transport, version)
    return Played(transport, version, got, sent)


def expected(known: tuple[Difference, ...], transport: str, version: str) -> set[str]:
    """Return the differences that the table says are to be seen."""
    return {difference.what for difference in known if difference.holds(transport, version) is True}


async def test_the_caller_gets_what_the_server_says(ours: Played) -> None:
    _, version, got, _ = ours

    assert [got[name] for name in ("wish", "think", "roots")] == ["blue, loud: True", "abacus: four", ROOT]
    assert [message.data for message in got["logged"]] == ["all steps done"]
    assert got["server"][0] == version


def as_of(transcript: Transcript, version: str) -> Transcript:
    """Return the transcript of another legacy revision: the SDK's client offers only the newest."""
    return Transcript(**json.loads(json.dumps(asdict(transcript)).replace(NEWEST_LEGACY, version)))


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")  # what legacy servers still have
async def test_a_connection_sends_what_the_sdk_client_sends(ours: Played, tmp_path: Path) -> None:
    transport, version, _, sent = ours
    with stage(transport == "http", tmp_path / "client") as at:
        await play_the_sdk(at, "auto" if version == MODERN else "legacy")
        client_sent = as_of(at.transcript(), version)

    found = differences(sent, client_sent, FROM_THE_CLIENT, transport=transport, version=version)
    assert found == expected(FROM_THE_CLIENT, transport, version)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_connection_that_negotiates_sends_what_one_sends_that_insists(transport: str, tmp_path: Path) -> None:
    _, sent = await played(tmp_path / "a", transport, "auto")
    _, insisting = await played(tmp_path / "b", transport, MODERN)

    assert sent == insisting
