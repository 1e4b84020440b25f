"""The attack tables of docs/security.md: plays every attack with Toolweave and four others, and writes the page.

`scripts/attacks` runs it. What Toolweave does stands in the rows, and is asserted by tests; here it is played again, so
that a row in which it does no better than `PASSED` is seen, and so is one that it does not stop behind a gateway.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

from experiments.attacks import guests, servers, sign_ins
from experiments.attacks.playing import CHECKOUT, NONE, Peer

__all__ = ["OWN", "PEERS", "Cells", "as_page", "main", "marks", "read_table", "table", "version"]

PAGE = CHECKOUT / "docs" / "security.md"
PACKAGES = {
    "sdk": ("MCP SDK", "mcp"),
    "fastmcp": ("FastMCP", "fastmcp"),
    "openai-agents": ("openai-agents", "openai-agents"),
    "langchain": ("langchain-mcp-adapters", "langchain-mcp-adapters"),
}
"""Peer -> its title and its package."""
PEERS = tuple(PACKAGES)
OWN = ("toolweave", "toolweave-gateway")
"""Ours as it is, and behind a gateway of ours: both have to do what the page says."""
BEHIND = "through a gateway"
SIGNING_IN = ("sdk", "fastmcp")
"""Peers with a sign-in of their own, and with servers; the others take an object for it, or have none."""
Cells = dict[str, dict[str, str]]
"""Attack -> peer -> what came of it."""


async def served(peer: Peer) -> dict[str, str]:
    """Play what servers say, with one peer."""
    cells: dict[str, str] = {}
    for row in servers.ROWS:
        with tempfile.TemporaryDirectory(prefix="toolweave-") as folder:
            unplayed = "the same" if peer.name == OWN[1] else NONE
            cells[row.attack] = unplayed if row.play is None else await row.play(peer, Path(folder))
        progress(peer, row.attack, cells)
    return cells


async def signed_in(peer: Peer) -> dict[str, str]:
    """Play what a sign-in meets, with one peer."""
    if peer.name not in (*SIGNING_IN, *OWN):
        return {row.attack: NONE for row in sign_ins.ROWS}
    await sign_ins.check(peer)
    cells: dict[str, str] = {}
    for row in sign_ins.ROWS:
        cells[row.attack] = await row.play(peer)
        progress(peer, row.attack, cells)
    return cells


async def called(peer: Peer) -> dict[str, str]:
    """Play who calls a server, with one peer."""
    if peer.name not in guests.KINDS:
        return {row.attack: NONE for row in guests.ROWS}

    def play() -> dict[str, str]:
        cells: dict[str, str] = {}
        with tempfile.TemporaryDirectory(prefix="toolweave-") as folder, guests.protected(peer, Path(folder)) as guest:
            for row in guests.ROWS:
                cells[row.attack] = row.cell(guest)
                progress(peer, row.attack, cells)
        return cells

    return await anyio.to_thread.run_sync(play)


def progress(peer: Peer, attack: str, cells: Mapping[str, str]) -> None:
    """Tell what came of one attack."""
    sys.stderr.write(f"{peer.name}: {attack}: {cells[attack]}\n")


PLAYS = {"servers": served, "sign-ins": signed_in, "guests": called}
ROWS: Mapping[str, Sequence[servers.ServerAttack | sign_ins.SignInAttack | guests.GuestAttack]] = {
    "servers": servers.ROWS,
    "sign-ins": sign_ins.ROWS,
    "guests": guests.ROWS,
}


def marks(name: str) -> tuple[str, str]:
    """Return the marks between which a table stands on the page."""
    return f"<!-- attacks: {name} -->\n", f"<!-- /attacks: {name} -->\n"


def table(name: str, cells: Cells, versions: Mapping[str, str]) -> str:
    """Return a table of the page."""
    ours = ["Toolweave, without any setting", 'with `"pins": "block"`'] if name == "servers" else ["Toolweave"]
    others = [f"{PACKAGES[peer][0]} {versions[peer]}" for peer in PEERS]
    heads = ["attack", *ours, BEHIND, *others]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in ROWS[name]:
        said = [row.ours, row.pinned] if isinstance(row, servers.ServerAttack) else [row.ours]
        played = [cells[row.attack][peer] for peer in (OWN[1], *PEERS)]
        lines.append(f"| {' | '.join([row.attack, *said, *played])} |")
    return "\n".join(lines) + "\n"


def read_table(page: str, name: str) -> tuple[Cells, dict[str, str]]:
    """Return what a table of the page says of the peers, and their versions."""
    first, last = marks(name)
    lines = [line for line in page.partition(first)[2].partition(last)[0].splitlines() if line.startswith("| ")]
    heads, *rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    places, versions = dict[str, int](), dict[str, str]()
    for place, head in enumerate(heads):
        if head == BEHIND:
            places[OWN[1]] = place
        for peer, (title, _) in PACKAGES.items():
            if head.startswith(f"{title} "):
                places[peer], versions[peer] = place, head.removeprefix(f"{title} ")
    return {row[0]: {peer: row[place] for peer, place in places.items()} for row in rows}, versions


def as_page(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with these tables."""
    for name, text in tables.items():
        first, last = marks(name)
        before, _, rest = page.partition(first)
        page = f"{before}{first}\n{text}\n{last}{rest.partition(last)[2]}"
    return page


def version(python: str, package: str) -> str:
    """Return the version of a package in a Python."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


async def played(name: str, peers: Sequence[Peer]) -> Cells:
    """Play the attacks of one table with every peer."""
    cells: Cells = {row.attack: {} for row in ROWS[name]}
    for peer in peers:
        for attack, cell in (await PLAYS[name](peer)).items():
            cells[attack][peer.name] = cell
    return cells


def worse(name: str, cells: Cells) -> list[str]:
    """Return the attacks that ours lets pass although the page says otherwise."""
    fine = (sign_ins.REFUSED, "asked once", "written out, or not shown", "masked", guests.REFUSED)
    passed = {row.attack for row in servers.ROWS if not row.stops or row.play is None}
    found: list[str] = []
    for attack, said in cells.items():
        for peer, cell in said.items():
            if peer not in OWN or attack in passed:
                continue
            stopped = cell not in (servers.PASSED, "it is there", "sent to the terminal")
            if not (stopped if name == "servers" else cell in fine):
                found.append(f"{peer}: {attack}: {cell}")
    return found


def main() -> None:
    """Play, and write the page."""
    parser = argparse.ArgumentParser(prog="scripts/attacks", description="Play every attack and publish the tables.")
    parser.add_argument("--fastmcp", default=sys.executable, metavar="PYTHON", help="a Python that has fastmcp")
    parser.add_argument("--langchain", default=sys.executable, metavar="PYTHON", help="one with langchain-mcp-adapters")
    parser.add_argument("--only", action="append", choices=list(PLAYS), help="only these tables")
    parser.add_argument(
        "--peer", action="append", choices=(*OWN, *PEERS), help="play only this one; the page keeps the others' columns"
    )
    options = parser.parse_args()
    pythons = {"fastmcp": options.fastmcp, "langchain": options.langchain}
    peers = [Peer(name, pythons.get(name, sys.executable)) for name in options.peer or (*OWN, *PEERS)]
    versions = {peer.name: version(peer.python, PACKAGES[peer.name][1]) for peer in peers if peer.name in PACKAGES}
    wrong: list[str] = []
    tables: dict[str, str] = {}
    for name in options.only or PLAYS:
        cells = anyio.run(played, name, peers)
        wrong += worse(name, cells)
        if options.peer:
            kept, older = read_table(PAGE.read_text(encoding="utf-8"), name)
            cells = {attack: kept.get(attack, {}) | said for attack, said in cells.items()}
            versions = older | versions
        tables[name] = table(name, cells, versions)
    if wrong:
        raise SystemExit("Toolweave does not do what the page says:\n" + "\n".join(wrong))
    PAGE.write_text(as_page(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE.relative_to(CHECKOUT)}\n")


if __name__ == "__main__":
    main()
