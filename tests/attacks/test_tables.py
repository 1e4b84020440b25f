"""The attacks of docs/security.md: ours stop what the page says, and the battery sees it where nothing does."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.attacks import guests, servers, sign_ins
from experiments.attacks.playing import CHECKOUT, NONE, Peer
from experiments.attacks.report import PEERS, ROWS, marks, read_table, worse

pytestmark = pytest.mark.slow
OURS, SDK = Peer("toolweave", sys.executable), Peer("sdk", sys.executable)
GATEWAY = Peer("toolweave-gateway", sys.executable)
EACH_OF_OURS = pytest.mark.parametrize("peer", [OURS, GATEWAY], ids=lambda peer: peer.name)
_STARTS = ("the redirect comes", "a server that never", "a call is redirected")
CARRIED = [row for row in sign_ins.ROWS if row.attack.startswith(_STARTS)]
"""Attacks on a sign-in that a gateway meets in another task than its caller's; `scripts/attacks` plays all with it."""


def published(name: str) -> dict[str, list[str]]:
    """Return the rows of a published table by their attack."""
    first, last = marks(name)
    text = (CHECKOUT / "docs" / "security.md").read_text(encoding="utf-8").partition(first)[2].partition(last)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return {row[0]: row[1:] for row in rows[1:]}


@pytest.mark.parametrize("name", ROWS)
def test_the_page_has_every_attack_with_what_four_others_do(name: str) -> None:
    rows = published(name)

    assert list(rows) == [row.attack for row in ROWS[name]], "run scripts/attacks"
    assert all(all(row) for row in rows.values())
    own = [[row.ours, row.pinned] if isinstance(row, servers.ServerAttack) else [row.ours] for row in ROWS[name]]
    assert [row[: len(cells)] for row, cells in zip(rows.values(), own, strict=True)] == own


@pytest.mark.parametrize("name", ROWS)
def test_the_page_says_of_every_attack_what_becomes_of_it_behind_a_gateway(name: str) -> None:
    page = (CHECKOUT / "docs" / "security.md").read_text(encoding="utf-8")
    cells, versions = read_table(page, name)

    assert set(versions) == set(PEERS)
    assert worse(name, {attack: {GATEWAY.name: said[GATEWAY.name]} for attack, said in cells.items()}) == []


@EACH_OF_OURS
async def test_ours_signs_in_where_nobody_is_evil(peer: Peer) -> None:
    await sign_ins.check(peer)


@pytest.mark.parametrize("row", sign_ins.ROWS, ids=lambda row: row.attack)
async def test_ours_stops_what_a_sign_in_meets(row: sign_ins.SignInAttack) -> None:
    assert worse("sign-ins", {row.attack: {"toolweave": await row.play(OURS)}}) == []


@pytest.mark.parametrize("row", CARRIED, ids=lambda row: row.attack)
async def test_a_gateway_stops_what_a_sign_in_meets(row: sign_ins.SignInAttack) -> None:
    assert worse("sign-ins", {row.attack: {GATEWAY.name: await row.play(GATEWAY)}}) == []


@EACH_OF_OURS
@pytest.mark.parametrize(
    "row", [row for row in servers.ROWS if row.play is not None and row.stops], ids=lambda row: row.attack
)
async def test_ours_stops_what_servers_say(row: servers.ServerAttack, peer: Peer, tmp_path: Path) -> None:
    play: Any = row.play
    assert worse("servers", {row.attack: {peer.name: await play(peer, tmp_path)}}) == []


@EACH_OF_OURS
def test_ours_stops_who_calls_a_server(peer: Peer, tmp_path: Path) -> None:
    with guests.protected(peer, tmp_path) as guest:
        cells = {row.attack: {peer.name: row.cell(guest)} for row in guests.ROWS}

    assert worse("guests", cells) == []


async def test_the_battery_sees_an_attack_that_is_not_stopped(tmp_path: Path) -> None:
    rows = {row.attack: row for row in servers.ROWS}
    instructs = next(row for attack, row in rows.items() if attack.startswith("phrases"))
    downgraded = next(row for row in sign_ins.ROWS if "PKCE" in row.attack)
    assert instructs.play is not None

    assert await instructs.play(SDK, tmp_path) == servers.PASSED
    assert await downgraded.play(SDK) not in (sign_ins.REFUSED, NONE)
