"""The tools that a server leaves out of its list, each with the reason: a member of the list's `_meta` of this project.

A server that makes tools of something else, such as an API's document, cannot make one of each part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    object_entries,
    object_or_empty,
    text_or_empty,
)
from toolweave._value import Value

__all__ = ["SKIPPED_PARTS", "SkippedPart", "skipped_parts_in", "skipped_parts_meta"]

SKIPPED_PARTS = "io.toolweave/skipped-parts"
"""The parts that are left out of a list of tools: a list of objects with `name`, `part` and `reason`."""

_MAX_PARTS = 1000
_MAX_CHARACTERS = 500


class SkippedPart(Value, frozen=True, kw_only=True):
    """A part that a server leaves out of its list of tools.

    Attributes:
        name: The name of the tool; `""` where it has none.
        reason: The human-readable reason; untrusted text of the server.
        part: `"tool"`, or the part of a tool that is listed without it, such as `"output schema"`.
    """

    name: str
    reason: str
    part: str = "tool"

    def __str__(self) -> str:
        if self.name:
            named = f"tool {self.name!r}"
        else:
            named = "a tool without a name"
        part = "" if self.part == "tool" else f": its {self.part}"
        return f"{named}{part} is left out by the server: {self.reason}"


def skipped_parts_meta(parts: Iterable[SkippedPart]) -> Json:
    """Return the `_meta` of a list of tools without these parts, at most 1,000 of them; empty for none."""
    made = [{"name": one.name, "part": one.part, "reason": one.reason} for one in islice(parts, _MAX_PARTS)]
    if made:
        return {SKIPPED_PARTS: made}
    return {}


def skipped_parts_in(meta: object) -> tuple[SkippedPart, ...]:
    """Return the parts that the `_meta` of a list names; a server may have written anything there."""
    entries = array_or_empty(object_or_empty(meta).get(SKIPPED_PARTS))
    return tuple(map(_read, object_entries(entries[:_MAX_PARTS])))


def _read(entry: JsonObject) -> SkippedPart:
    return SkippedPart(
        name=_short_text(entry.get("name")),
        part=_short_text(entry.get("part")) or "tool",
        reason=_short_text(entry.get("reason")) or "the server gives no reason",
    )


def _short_text(value: object) -> str:
    return text_or_empty(value)[:_MAX_CHARACTERS]
