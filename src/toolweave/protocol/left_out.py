"""The tools that a server leaves out of its list, each with the reason: a member of the list's `_meta` of this project.

A server that makes tools of something else, such as an API's document, cannot make one of each part of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolweave._value import Value
from toolweave.protocol.json_types import Json, JsonObject, as_array, as_object, as_text

__all__ = ["LEFT_OUT", "LeftOut", "left_out_in", "left_out_meta"]

LEFT_OUT = "io.toolweave/left-out"
"""The parts that are left out of a list of tools: a list of objects with `name`, `part` and `reason`."""

_MOST = 1000
_LONGEST = 500


class LeftOut(Value, frozen=True, kw_only=True):
    """A part that a server leaves out of its list of tools.

    Attributes:
        name: The name of the tool; `""` where it has none.
        reason: The reason, for people; untrusted text of the server.
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


def left_out_meta(parts: Iterable[LeftOut]) -> Json:
    """Return the `_meta` of a list of tools without these parts, at most 1,000 of them; empty for none."""
    made = [{"name": one.name, "part": one.part, "reason": one.reason} for one in parts][:_MOST]
    if made:
        return {LEFT_OUT: made}
    return {}


def left_out_in(meta: object) -> tuple[LeftOut, ...]:
    """Return the parts that the `_meta` of a list names; a server may have written anything there."""
    entries = as_array((as_object(meta) or {}).get(LEFT_OUT)) or ()
    return tuple(_read(one) for one in map(as_object, entries[:_MOST]) if one is not None)


def _read(entry: JsonObject) -> LeftOut:
    name, part, reason = ((as_text(entry.get(key)) or "")[:_LONGEST] for key in ("name", "part", "reason"))
    return LeftOut(name=name, part=part or "tool", reason=reason or "the server gives no reason")
