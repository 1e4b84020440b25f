"""The choice among the tools, prompts and resources of a server by their tags and versions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolweave.protocol.component_meta import tags_in, version_in, version_key
from toolweave.serve._request import Json

_Comparison: TypeAlias = Callable[[Any, Any], bool]
_COMPARISONS: Mapping[str, _Comparison] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*([^\s,<>=!]+)\s*")


@dataclass(frozen=True, slots=True)
class ChosenOffers:
    """The tags and versions that a server offers.

    Attributes:
        include: Offers with none of these tags are left out; empty includes all.
        exclude: Offers with one of these tags are left out.
        versions: The versions, as in `">=1,<2"`; an offer without one is in every range. None for all.

    Raises:
        ValueError: `versions` is of another form.
    """

    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    versions: str | None = None

    def __post_init__(self) -> None:
        _conditions(self.versions)

    @classmethod
    def of(
        cls, include: str | Iterable[str] = (), exclude: str | Iterable[str] = (), versions: str | None = None
    ) -> ChosenOffers:
        """Return the choice; a text is one tag."""
        included, excluded = (frozenset([one] if isinstance(one, str) else one) for one in (include, exclude))
        return cls(included, excluded, versions)

    def __bool__(self) -> bool:
        return bool(self.include or self.exclude or self.versions)

    def keeps(self, meta: object) -> bool:
        """Whether something whose definition has this `_meta` is offered."""
        tags, version = tags_in(meta), version_in(meta)
        if (self.include and not tags & self.include) or tags & self.exclude:
            return False
        if version is None:
            return True
        return all(holds(version_key(version), version_key(bound)) for holds, bound in _conditions(self.versions))

    def keeps_definition(self, definition: Json) -> bool:
        """Whether something with this definition is offered."""
        return self.keeps(definition.get("_meta"))


def _conditions(versions: str | None) -> list[tuple[_Comparison, str]]:
    found: list[tuple[_Comparison, str]] = []
    for part in () if versions is None else versions.split(","):
        condition = _CONDITION.fullmatch(part)
        if condition is None:
            raise ValueError(f"versions: {versions!r} is no range; write it as '<2' or '>=1.2,<2'")
        found.append((_COMPARISONS[condition[1]], condition[2]))
    return found
