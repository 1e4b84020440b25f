"""Schemas of objects with members of plain types, whose valid values are recognized without a compiled schema.

Loading the validator costs a tenth of a short program such as `toolweave call`, and most tools take a few texts and
numbers. Only values that are valid for certain are accepted here; all others are for the validator to judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}
_KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties", "title", "description", "$schema"})
_MEMBER_KEYWORDS = frozenset({"type", "title", "description", "default"})
_BOUNDS = frozenset({"minimum", "maximum"})
_DIALECTS = frozenset(
    {
        None,
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
    }
)
_MOST_MEMBERS = 100
_BARE = ("string", "boolean")
_LARGEST = 2**53


class FlatMember(NamedTuple):
    """The types that a member may have, and the bounds of a number."""

    types: tuple[type, ...]
    minimum: float
    maximum: float

    @classmethod
    def of(cls, schema: Any) -> FlatMember | None:
        """Return the schema of a member, or None if it has further keywords."""
        if not isinstance(schema, dict):
            return None
        known = cast("dict[Any, Any]", schema)
        kind = known.get("type")
        types = _TYPES.get(kind) if isinstance(kind, str) else None
        bounds = (known.get("minimum", -_LARGEST), known.get("maximum", _LARGEST))
        if types is None or not _has_only(known, _MEMBER_KEYWORDS if kind in _BARE else _MEMBER_KEYWORDS | _BOUNDS):
            return None
        return cls(types, *bounds) if all(type(one) in (int, float) for one in bounds) else None

    def surely_takes(self, value: Any) -> bool:
        """Whether a value is valid for certain, one that JSON can carry and no validator rounds."""
        kind: type[object] = value.__class__
        if kind not in self.types:
            return False
        if kind is str:
            return value.isascii()
        if kind is bool:
            return True
        return -_LARGEST < value < _LARGEST and self.minimum <= value <= self.maximum  # not true of NaN


class FlatObject(NamedTuple):
    """An object schema whose members are texts, numbers and booleans with few other keywords.

    Attributes:
        members: Its members by name; there may be others, of which nothing is known.
        required: The names that have to be there.
    """

    members: Mapping[str, FlatMember]
    required: tuple[str, ...]

    @classmethod
    def of(cls, schema: Any) -> FlatObject | None:
        """Return a schema as a flat object, or None if it is none, or not for certain a valid schema."""
        if not isinstance(schema, dict):
            return None
        whole = cast("dict[Any, Any]", schema)
        properties, required = whole.get("properties", {}), whole.get("required", [])
        if not (_has_only(whole, _KEYWORDS) and whole.get("type") == "object" and whole.get("$schema") in _DIALECTS):
            return None
        if not (isinstance(properties, dict) and isinstance(required, list)):
            return None
        names, wanted = cast("dict[Any, Any]", properties), cast("list[Any]", required)
        if len(names) > _MOST_MEMBERS or not isinstance(whole.get("additionalProperties", True), bool):
            return None
        if not all(isinstance(name, str) for name in (*names, *wanted)) or len(set(wanted)) != len(wanted):
            return None
        members = {name: known for name, member in names.items() if (known := FlatMember.of(member)) is not None}
        return cls(members, tuple(wanted)) if len(members) == len(names) else None

    def surely_takes(self, instance: Any) -> bool:
        """Return whether a value is valid for certain; a loop without generators, since it runs for every call."""
        if instance.__class__ is not dict:
            return False
        value: Mapping[Any, Any] = instance
        for name in self.required:
            if name not in value:
                return False
        members = self.members
        for name, member in value.items():
            known = members.get(name) if type(name) is str else None
            if known is None or not known.surely_takes(member):
                return False
        return True


def _has_only(schema: Mapping[Any, Any], keywords: frozenset[str]) -> bool:
    texts = (schema.get("title", ""), schema.get("description", ""))
    return keywords.issuperset(schema) and all(isinstance(text, str) for text in texts)
