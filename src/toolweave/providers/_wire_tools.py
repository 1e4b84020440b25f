"""Tool definitions in a provider's form: legal names, lowered schemas, no hidden text; cached for unchanged tools.

A tool that a provider has no way to take is left out with its reason; it costs no other tool its turn.
Knows no provider: each gives its profile and the form of its definitions.
"""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from toolweave._json_types import Json, JsonObject, not_none
from toolweave._repairs import Repair
from toolweave.errors import SchemaError, printable
from toolweave.providers._lowering import LoweredSchema, lower, simplified
from toolweave.providers._profiles import PROFILES, RequestBounds, SchemaProfile
from toolweave.providers._refused_tools import OfferedForm, RefusedTools
from toolweave.providers._strict import drop_fillers, parameter_counts
from toolweave.tools import NameMap, ToolSpec
from toolweave.tools.arguments import encode
from toolweave.tools.visible import shown_schema, shown_text

_log = logging.getLogger("toolweave.tools")

MARKED_NAME = Repair(
    given="a name of a tool with marks of the model's template: `functions.search`, `search<|channel|>commentary`",
    read_as="the name of the tool",
    limit="without the marks it must be the whole name of a tool that is offered; no other name is changed",
    switch="nothing: the tool is named exactly",
)
_MARKED_NAME = r"\s*(?:functions?\.)?([A-Za-z0-9_-]+)(?::\d{1,3})?\s*(?:<\|[^\0]*)?"
_MAX_SIMPLE_DESCRIPTION = 1_024
_KEPT_LISTS = 8
_KEPT_TOOLS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WireTool:
    """One tool of a request to a provider.

    Attributes:
        name: Its name for the provider.
        strict: Whether the provider enforces the schema.
    """

    name: str
    description: str
    schema: JsonObject
    strict: bool = False


Form: TypeAlias = Callable[[WireTool], JsonObject]
"""Returns a tool's definition in a provider's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireTools:
    """The tools of a request in one provider's form.

    Attributes:
        names: Exposed names to wire names and back.
        definitions: In the order of the tools.
        encoded: The same, each as JSON.
        quarantined: Exposed names of the tools that are left out, each with the reason.
        changes: Exposed names of the tools whose schema was changed, each with the changes.
        losses: Those of the changes after which the API accepts arguments that the tool does not.
        filled: Schemas of the tools for which null may stand for an omitted argument, by exposed name.
        strict: Exposed names of the tools whose schemas the API enforces.
        renamed: Exposed names of the tools with arguments of other names, which are given as the API's and the tool's.
    """

    names: NameMap
    definitions: tuple[JsonObject, ...] = ()
    encoded: tuple[msgspec.Raw, ...] = ()
    quarantined: Mapping[str, str]
    changes: Mapping[str, tuple[str, ...]]
    losses: Mapping[str, tuple[str, ...]]
    filled: Mapping[str, JsonObject]
    renamed: Mapping[str, Mapping[str, str]]
    strict: frozenset[str] = frozenset()

    def arguments(self, exposed: str, arguments: Json) -> Json:
        """Return a model's arguments under the tool's own names, without the nulls that only strict mode required."""
        names = self.renamed.get(exposed)
        if names is not None:
            arguments = {names.get(name, name): value for name, value in arguments.items()}
        schema = self.filled.get(exposed)
        if schema is None:
            return arguments
        return drop_fillers(arguments, schema)

    def wire_arguments(self, exposed: str, arguments: JsonObject) -> Json:
        """Return the arguments of an earlier call under the names that the API has for them."""
        names = self.renamed.get(exposed)
        if names is None:
            return dict(arguments)
        wire = {original: name for name, original in names.items()}
        return {wire.get(name, name): value for name, value in arguments.items()}

    def call_name(self, wire: str) -> str:
        """Return the exposed name of a name that a model called; an unknown one is returned as it is.

        Marks of the template of the model around a whole name are no part of it.
        """
        known = self.names.exposed(wire)
        if known is not None:
            return known
        marked = re.fullmatch(_MARKED_NAME, wire)
        if marked is None:
            return wire
        return self.names.exposed(marked[1]) or wire


@dataclass(frozen=True, slots=True)
class _PreparedTool:
    """A tool that is ready for a request, or the reason for which it is not; `note` is one more change."""

    spec: ToolSpec
    description: str
    lowered: LoweredSchema | None
    reason: str = ""
    strict: bool = False
    note: str = ""
    max_description: int | None = None

    @property
    def changes(self) -> tuple[str, ...]:
        changes = () if self.lowered is None else self.lowered.changes
        if self.note:
            return (*changes, self.note)
        return changes


@dataclass(slots=True)
class _WrittenTools:
    """The definitions of a request, and the facts about each by its exposed name."""

    definitions: list[JsonObject] = field(default_factory=list[JsonObject])
    changes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    losses: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    filled: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    renamed: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    strict: set[str] = field(default_factory=set[str])

    def add(self, prepared: _PreparedTool, lowered: LoweredSchema, definition: JsonObject) -> None:
        """Add one tool."""
        name = prepared.spec.name
        self.definitions.append(definition)
        if prepared.changes:
            self.changes[name] = prepared.changes
        if lowered.losses:
            self.losses[name] = lowered.losses
        if lowered.fillers:
            self.filled[name] = prepared.spec.input_schema
        if lowered.renamed:
            self.renamed[name] = lowered.renamed
        if prepared.strict:
            self.strict.add(name)


class ToolWriter:
    """Writes tools for one provider, cached by identity: definitions are immutable.

    Attributes:
        max_description: Maximum characters of a description; the rest of a longer one is put before the schema's own
            description. None for no bound.
        max_tools: Maximum number of tools in a request; the last ones are left out of a longer list. None for no bound.
        refused: The definitions that the provider refused in earlier requests.
        any_api: Whether arguments get names that every other API also accepts.
    """

    def __init__(
        self,
        profile: SchemaProfile,
        form: Form,
        *,
        strict: SchemaProfile | None = None,
        max_description: int | None = None,
        max_tools: int | None = None,
        refused: RefusedTools | None = None,
        any_api: bool = False,
    ) -> None:
        self._max_description = max_description
        self._max_tools = max_tools
        self.refused = RefusedTools() if refused is None else refused
        self._refused_version = self.refused.version
        self._profile: SchemaProfile = profile
        self._strict: SchemaProfile | None = strict
        self._form = form
        self._any_api = any_api
        self._lists: list[tuple[Sequence[ToolSpec], tuple[ToolSpec, ...], WireTools]] = []
        self._tools: dict[tuple[int, bool], _PreparedTool] = {}

    @property
    def max_description(self) -> int | None:
        return _least(self._max_description, self.refused.max_description)

    @property
    def max_tools(self) -> int | None:
        return _least(self._max_tools, self.refused.max_tools)

    def of(self, tools: Sequence[ToolSpec]) -> WireTools:
        """Return the tools for a request.

        Nearly free for a sequence of the same definitions as an earlier one; a changed list costs in proportion to
        its changes.

        Raises:
            ValueError: Two tools have one exposed name.
        """
        # A refusal changes the form of a tool whose definition is the same, so the caches by identity are outdated.
        if self._refused_version != self.refused.version:
            self._refused_version = self.refused.version
            self._lists.clear()
            self._tools.clear()
        for index, (known, specs, wire) in enumerate(self._lists):
            if len(specs) != len(tools):
                continue
            # A list may have been changed in place since, so of one only its definitions are compared.
            is_same = known is tools and not isinstance(tools, list)
            if is_same or all(map(operator.is_, specs, tools)):
                if index:
                    self._lists.insert(0, self._lists.pop(index))
                return wire
        specs = tuple(tools)
        wire = self._write(specs)
        self._lists.insert(0, (tools, specs, wire))
        del self._lists[_KEPT_LISTS:]
        return wire

    def _write(self, specs: tuple[ToolSpec, ...]) -> WireTools:
        """Write tools in the form of the API; a tool that the API cannot have is left out, with a warning."""
        quarantined: dict[str, str] = {}
        offered: list[tuple[_PreparedTool, LoweredSchema]] = []
        for tool in self._with_max_tools(self._with_strict_bounds(specs)):
            if tool.lowered is None:
                quarantined[tool.spec.name] = tool.reason
                _log.warning("tool %r is not offered to the model: %s", tool.spec.name, printable(tool.reason))
            else:
                offered.append((tool, tool.lowered))
        names = NameMap(tool.spec for tool, _ in offered)
        written = _WrittenTools()
        for tool, lowered in offered:
            wire_name = names.wire_names[tool.spec.name]
            written.add(tool, lowered, self._definition(wire_name, tool, lowered))
        return WireTools(
            names=names,
            definitions=tuple(written.definitions),
            # Encoded once, because every step of a run sends the same tools.
            encoded=tuple(msgspec.Raw(encode(definition)) for definition in written.definitions),
            quarantined=quarantined,
            changes=written.changes,
            losses=written.losses,
            filled=written.filled,
            strict=frozenset(written.strict),
            renamed=written.renamed,
        )

    def _with_strict_bounds(self, specs: Iterable[ToolSpec]) -> Iterator[_PreparedTool]:
        """Yield the tools, strict ones as long as the bounds of one request on all of them allow it."""
        if self._strict is None:
            bounds = None
        else:
            bounds = PROFILES[self._strict].bounds
        used = (0, 0, 0)
        for spec in specs:
            one = self._prepared(spec, strict=self._strict is not None)
            if bounds is not None and one.lowered is not None and one.strict:
                wanted = tuple(map(sum, zip(used, (1, *parameter_counts(one.lowered.schema)), strict=True)))
                if (reason := _exceeded(wanted, bounds)) is None:
                    used = wanted
                else:
                    one = replace(self._prepared(spec, strict=False), note=f"not strict: {reason}")
            yield one

    def _with_max_tools(self, prepared: Iterable[_PreparedTool]) -> Iterator[_PreparedTool]:
        """Yield the tools; those beyond the maximum of a request cannot be offered."""
        number = 0
        for tool in prepared:
            if tool.lowered is None:
                yield tool
                continue
            number += 1
            if self.max_tools is None or number <= self.max_tools:
                yield tool
            else:
                reason = f"a request takes {self.max_tools} tools, and this is number {number}; filter or defer some"
                yield _PreparedTool(tool.spec, "", None, reason)

    def _prepared(self, spec: ToolSpec, *, strict: bool) -> _PreparedTool:
        known = self._tools.get((id(spec), strict))
        # The id of a definition that is gone may be that of another one now.
        if known is None or known.spec is not spec:
            if len(self._tools) >= _KEPT_TOOLS:  # tools of lists long gone
                self._tools.clear()
            known = self._tools[id(spec), strict] = self._lowered(spec, self._strict if strict else None)
        return known

    def _lowered(self, spec: ToolSpec, strict: SchemaProfile | None) -> _PreparedTool:
        refusal = self.refused.of(spec)
        if refusal.offer is OfferedForm.LEFT_OUT:
            return _PreparedTool(spec, "", None, f"the API refuses it: {refusal.reason}")
        if refusal.offer is OfferedForm.WHOLE:
            note = ""
        else:
            note = f"not as it is: the API refused it: {refusal.reason}"
        if refusal.offer is OfferedForm.SIMPLIFIED:
            return self._simplified(spec, note)
        if strict is not None and refusal.offer is OfferedForm.WHOLE:
            try:
                return _prepare(spec, lower(spec.input_schema, strict, any_api=self._any_api), strict=True)
            except SchemaError as exc:  # what strict mode has no words for is offered without it
                note = f"not strict: {exc}"
        try:
            return replace(_prepare(spec, lower(spec.input_schema, self._profile, any_api=self._any_api)), note=note)
        except SchemaError as exc:
            return _PreparedTool(spec, "", None, str(exc))

    def _simplified(self, spec: ToolSpec, note: str) -> _PreparedTool:
        try:
            prepared = _prepare(spec, simplified(spec.input_schema))
            return replace(prepared, note=note, max_description=_MAX_SIMPLE_DESCRIPTION)
        except SchemaError as exc:
            return _PreparedTool(spec, "", None, str(exc))

    def _definition(self, wire: str, one: _PreparedTool, lowered: LoweredSchema) -> JsonObject:
        description = one.description
        schema = lowered.schema
        most = _least(self.max_description, one.max_description)
        if most is not None and len(description) > most:
            cut = most - len(_CONTINUED)
            own = schema.get("description")
            if own:
                rest = f"{description[cut:]}\n{own}"
            else:
                rest = description[cut:]
            description = description[:cut] + _CONTINUED
            schema = {**schema, "description": rest}
        return self._form(WireTool(name=wire, description=description, schema=schema, strict=one.strict))


def _least(first: int | None, second: int | None) -> int | None:
    known = not_none((first, second))
    return min(known, default=None)


def _prepare(spec: ToolSpec, lowered: LoweredSchema, *, strict: bool = False) -> _PreparedTool:
    schema = shown_schema(lowered.schema)
    if schema is not lowered.schema:
        lowered = replace(lowered, schema=schema)
    description = "\n".join(filter(None, (spec.description, lowered.description)))
    return _PreparedTool(spec, shown_text(description), lowered, strict=strict)


def _exceeded(wanted: tuple[int, ...], bounds: RequestBounds) -> str | None:
    most = (bounds.strict_tools, bounds.optional_parameters, bounds.union_parameters)
    things = ("strict tools", "optional parameters in all strict tools", "parameters of several types in them")
    for count, limit, thing in zip(wanted, most, things, strict=True):
        if count > limit:
            return f"a request takes {limit} {thing}, and with this there would be {count}"
    return None


_CONTINUED = "... (continued in the description of the parameters)"
