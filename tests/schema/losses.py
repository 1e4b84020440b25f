"""The tables of docs/schemas.md: what becomes of real definitions under each profile. `scripts/schemas` runs it.

The definitions of the repository are measured wherever this runs; those of the shared data are not part of it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from tests.docs.measured import measured_part, write_measured_part
from tests.schema.instances import instance
from toolweave.errors import SchemaError
from toolweave.providers import LoweredSchema, SchemaProfile, lower
from toolweave.schema import Validator
from toolweave.schema.fitting import fitted

__all__ = ["PAGE", "Losses", "measured", "published", "repairs", "schemas_in", "sentence", "table"]

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PAGE = CHECKOUT / "docs" / "schemas.md"
OURS = CHECKOUT / "tests" / "data" / "definitions.jsonl"
SHOWN = 4
PROFILES: tuple[SchemaProfile, ...] = get_args(SchemaProfile)


class Losses(NamedTuple):
    """What becomes of definitions under one profile: how many stay, change, lose, are refused; and what is lost."""

    profile: SchemaProfile
    kept: int
    changed: int
    lossy: int
    refused: int
    keywords: tuple[tuple[str, int], ...]


Each = Callable[[int, SchemaProfile, LoweredSchema | SchemaError], None]
"""Is given each outcome with the number of its schema."""


def measured(schemas: Sequence[dict[str, Any]], each: Each | None = None) -> list[Losses]:
    """Return the losses of schemas of arguments under every profile."""
    return [_under(profile, schemas, each) for profile in PROFILES]


def _under(profile: SchemaProfile, schemas: Iterable[dict[str, Any]], each: Each | None) -> Losses:
    counts: Counter[str] = Counter()
    keywords: Counter[str] = Counter()
    for number, schema in enumerate(schemas):
        try:
            lowered = lower(schema, profile)
        except SchemaError as exc:
            lowered = exc
            counts["refused"] += 1
        else:
            counts["lossy" if lowered.losses else "changed" if lowered.changes else "kept"] += 1
            keywords.update({keyword(loss) for loss in lowered.losses})
        if each is not None:
            each(number, profile, lowered)
    most = sorted(keywords.items(), key=lambda one: (-one[1], one[0]))
    return Losses(profile, counts["kept"], counts["changed"], counts["lossy"], counts["refused"], tuple(most[:SHOWN]))


def keyword(loss: str) -> str:
    """Return the keyword of a loss."""
    return re.split(r"[ ,]", loss.partition(": ")[2], maxsplit=1)[0]


def table(rows: Iterable[Losses]) -> str:
    """Return the losses as a table in Markdown."""
    lines = [
        "| profile | as they are | in other words | less enforced | refused | what is not enforced, of how many |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        lost = ", ".join(f"`{name}` {count:,}" for name, count in row.keywords)
        cells = f"{row.kept:,} | {row.changed:,} | {row.lossy:,} | {row.refused:,}"
        lines.append(f"| `{row.profile}` | {cells} | {lost or '-'} |")
    return "\n".join(lines)


def repairs(schemas: Sequence[dict[str, Any]]) -> Counter[str]:
    """Return what becomes of arguments of which each value is written as a text, by outcome.

    What is repaired is checked as a call is: it fits the schema, and differs from the arguments at most by texts that
    the schema takes as such.
    """
    counts: Counter[str] = Counter()
    for number, schema in enumerate(schemas):
        try:
            validator = Validator(schema)
        except SchemaError:
            counts["unchecked"] += 1
            continue
        arguments = instance(schema, number, full=True)
        if not isinstance(arguments, dict) or not validator.is_valid(arguments):
            counts["not made"] += 1
            continue
        members = cast("dict[str, Any]", arguments)
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in members.items()}
        if validator.is_valid(texts):
            counts["taken as texts"] += 1
            continue
        found = fitted(validator, texts)
        if found is None:
            counts["refused"] += 1
            continue
        assert validator.is_valid(found[0]), (number, found[0])
        differ = {name for name, one in members.items() if found[0].get(name) != one}
        assert all(found[0].get(name) == texts[name] for name in differ), (number, differ)
        counts["as they were" if not differ else "with a text that the schema takes"] += 1
    return counts


def sentence(counts: Counter[str]) -> str:
    """Return the repairs as a sentence."""
    repaired = counts["as they were"] + counts["with a text that the schema takes"]
    wrong = repaired + counts["refused"]
    same, taken = counts["as they were"], counts["taken as texts"]
    return (
        f"Of {counts.total():,} tools, {taken:,} accept a text for every value. Of the other {wrong:,} for which "
        f"arguments could be made, {repaired:,} were repaired, {same:,} of them to exactly the values that were "
        f"written as texts. Refused: {counts['refused']:,}."
    )


def published(name: str) -> str:
    """Return one table as the page has it."""
    return measured_part(PAGE, name)


def schemas_in(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the schemas of arguments of definitions, those that are none at all left out."""
    found = [json.loads(line)["inputSchema"] for line in lines]
    return [schema for schema in found if isinstance(schema, dict)]


def main() -> None:
    """Measure, and write the tables of the page."""
    parser = argparse.ArgumentParser(prog="scripts/schemas", description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=CHECKOUT.parent / "shared" / "data", help="folder of the shared data"
    )
    shared: Path = parser.parse_args().data / "tools-dev.jsonl.gz"
    sources = {"our definitions": OURS.read_text(encoding="utf-8")}
    if shared.is_file():
        sources["public servers"] = gzip.decompress(shared.read_bytes()).decode()
    for name, lines in sources.items():
        rows = table(measured(schemas_in(lines.splitlines())))
        texts = sentence(repairs(schemas_in(lines.splitlines())))
        for part, made in ((name, rows), (f"repairs of {name}", texts)):
            write_measured_part(PAGE, part, made)


if __name__ == "__main__":
    main()
