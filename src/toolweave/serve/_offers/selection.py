"""The choice among the tools, prompts and resources of a server: by `include` and `exclude`, by tags and versions."""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from toolweave.errors import printable
from toolweave.protocol.component_meta import tags_in, version_in, version_key
from toolweave.schema.problems import nearest
from toolweave.serve.request import Json
from toolweave.tools import Toolset, filtered
from toolweave.tools.names import ANY_TOOL, unknown_tool

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


_log = logging.getLogger("toolweave.serve")


class KeepsDefinitions(Protocol):
    """A registry that offers a part of its items."""

    def keep(self, keep: Callable[[Json], bool]) -> None:
        """Offer only items whose definitions `keep` accepts."""
        ...


class ResourceLists(Protocol):
    """The resources of a server, as they are listed."""

    async def resources(self) -> Sequence[Json]:
        """Return the definitions of the resources without variables."""
        ...

    async def templates(self) -> Sequence[Json]:
        """Return the definitions of the resource templates."""
        ...


class PromptLists(Protocol):
    """The prompts of a server, as they are listed."""

    async def prompts(self) -> Sequence[Json]:
        """Return the definitions of all."""
        ...


@dataclass(frozen=True, slots=True)
class ChosenOffers:
    """The tags and versions that a server offers.

    Attributes:
        include: Only offers with one of these tags are offered; empty includes all.
        exclude: Offers with one of these tags are not offered.
        versions: The versions, as in `">=1,<2"`; an offer without a version is in every range. None for all.
        seen: The tags of all offers that were checked so far, offered or not.
        reported: The warnings that were logged.

    Raises:
        ValueError: `versions` is of another form.
    """

    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    versions: str | None = None
    seen: set[str] = field(default_factory=set[str], compare=False)
    reported: set[str] = field(default_factory=set[str], compare=False)

    def __post_init__(self) -> None:
        _conditions(self.versions)

    @classmethod
    def of(
        cls, include: str | Iterable[str] = (), exclude: str | Iterable[str] = (), versions: str | None = None
    ) -> ChosenOffers:
        """Return the choice; a text is one tag."""
        return cls(_tags(include), _tags(exclude), versions)

    def __bool__(self) -> bool:
        return bool(self.include or self.exclude or self.versions)

    def keeps(self, meta: object) -> bool:
        """Whether something whose definition has this `_meta` is offered."""
        tags = tags_in(meta)
        version = version_in(meta)
        self.seen.update(tags)
        if self.include and not tags & self.include:
            return False
        if tags & self.exclude:
            return False
        if version is None:
            return True
        return all(holds(version_key(version), version_key(bound)) for holds, bound in _conditions(self.versions))

    def apply(self, *registries: KeepsDefinitions) -> None:
        """Restrict registries of resources and prompts to the choice."""
        if self:
            for registry in registries:
                registry.keep(self.keeps_definition)

    async def warn(self, tools: Toolset, resources: ResourceLists, prompts: PromptLists) -> None:
        """Log each tag of the choice that no offer has, once, when the server starts: parts are added until then.

        Args:
            tools: The tools, already chosen.
            resources: The resources, likewise.
            prompts: The prompts, likewise.
        """
        if not self.include and not self.exclude:
            return
        kept = [*tools.snapshot(), *await resources.resources(), *await resources.templates(), *await prompts.prompts()]
        # a toolset without tools may not have connected yet
        if not kept and not self.seen:
            return
        for text in self._unknown_tags():
            if text not in self.reported:
                self.reported.add(text)
                _log.warning("%s", text)

    def _unknown_tags(self) -> list[str]:
        """Return a warning for each tag of the choice that no offer has, as far as they are known."""
        found: list[str] = []
        for setting, tags in (("include_tags", self.include), ("exclude_tags", self.exclude)):
            for tag in sorted(tags - self.seen):
                near = nearest(tag, sorted(self.seen), cutoff=0.5)
                if near:
                    hint = f"did you mean {near[0]!r}?"
                else:
                    hint = f"there are {', '.join(sorted(self.seen)) or 'none'}"
                found.append(printable(f"{setting}: no tool, prompt or resource has the tag {tag!r}; {hint}"))
        return found

    def keeps_definition(self, definition: Json) -> bool:
        """Whether something with this definition is offered."""
        return self.keeps(definition.get("_meta"))


def _tags(given: str | Iterable[str]) -> frozenset[str]:
    if isinstance(given, str):
        return frozenset((given,))
    return frozenset(given)


def _conditions(versions: str | None) -> list[tuple[_Comparison, str]]:
    found: list[tuple[_Comparison, str]] = []
    if versions is None:
        return found
    for part in versions.split(","):
        condition = _CONDITION.fullmatch(part)
        if condition is None:
            raise ValueError(f"versions: {versions!r} is not a range; write it as '<2' or '>=1.2,<2'")
        found.append((_COMPARISONS[condition[1]], condition[2]))
    return found


def chosen_tools(
    toolset: Toolset, include: frozenset[str], exclude: frozenset[str], agents: Collection[str]
) -> Toolset:
    """Return the tools to offer, without those of agents, whose names may be in `exclude`.

    Raises:
        ValueError: A tool of this name is missing, and no toolset could add it later.
    """
    if not include and not exclude:
        return toolset
    snapshot = toolset.snapshot()
    # tools of servers come and go: `filtered` warns
    if all(spec.server is None for spec in snapshot):
        known: set[str] = set()
        for spec in snapshot:
            known.update((spec.name, spec.original_name, *spec.aliases))
        # An empty list may still be filled by a toolset, and a wrong name is only found out with something to compare
        # it with.
        if known:
            _check_known("include", include, known)
        if known or agents:
            _check_known("exclude", exclude, {*known, *agents})
        exclude = exclude.difference({*agents} - known)
    return filtered(toolset, include, exclude)


def _check_known(field: str, names: frozenset[str], known: Collection[str]) -> None:
    for name in sorted(names.difference(known, {ANY_TOOL})):
        raise ValueError(f"{field}: {unknown_tool(name, known)}")
