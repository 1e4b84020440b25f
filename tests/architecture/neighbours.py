"""The private modules of each room that other rooms import: `python -m tests.architecture.neighbours --write`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TypeAlias

from tests.architecture.source import modules

__all__ = ["LISTED", "Neighbours", "imported", "listed"]

LISTED = Path(__file__).with_name("neighbours.json")

Neighbours: TypeAlias = dict[str, list[str]]
"""For each room its modules that others import."""


def imported() -> Neighbours:
    """Return the private modules that other rooms import now."""
    names = {module.name for module in modules()}
    found: dict[str, set[str]] = {}
    for module in modules():
        for one in module.imports():
            target = one.target if one.target in names else one.target.rpartition(".")[0]
            room, _, inside = target.removeprefix("toolweave.").partition(".")
            if target in names and room != module.room and inside.startswith("_"):
                found.setdefault(room, set()).add(inside)
    return {room: sorted(found[room]) for room in sorted(found)}


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
