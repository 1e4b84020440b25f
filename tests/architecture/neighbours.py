"""The modules of each room that other rooms import: `python -m tests.architecture.neighbours --write`.

A module that several rooms import has no underscore: it is a door of its room. The private modules that a neighbour or
two import are listed in neighbours.json. Neither is a promise to users, which is what the face of a room exports.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TypeAlias

from tests.architecture.source import modules

__all__ = ["LISTED", "MIN_ROOMS", "Neighbours", "imported", "listed", "rooms_by_module"]

LISTED = Path(__file__).with_name("neighbours.json")

Neighbours: TypeAlias = dict[str, list[str]]
"""For each room its modules that others import."""
MIN_ROOMS = 3
"""How many other rooms use a module that is a door."""


def rooms_by_module() -> dict[str, set[str]]:
    """Return for each module within a room the other rooms that import it."""
    names = {module.name for module in modules()}
    found: dict[str, set[str]] = {}
    for module in modules():
        for one in module.imports():
            target = one.target if one.target in names else one.target.rpartition(".")[0]
            room, _, inside = target.removeprefix("toolweave.").partition(".")
            if target in names and inside and room != module.room:
                found.setdefault(target, set()).add(module.room)
    return found


def imported() -> Neighbours:
    """Return the private modules that other rooms import now."""
    found: dict[str, list[str]] = {}
    for target in sorted(rooms_by_module()):
        room, _, inside = target.removeprefix("toolweave.").partition(".")
        if inside.startswith("_"):
            found.setdefault(room, []).append(inside)
    return found


def listed() -> Neighbours:
    """Return the list that is kept."""
    kept: Neighbours = json.loads(LISTED.read_text(encoding="utf-8"))
    return kept


def main() -> None:
    """Write the list, if that is asked for; print how many modules it has."""
    found = imported()
    if "--write" in sys.argv[1:]:
        LISTED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for room, used in found.items():
        print(f"{room}: {len(used)}")


if __name__ == "__main__":
    main()
