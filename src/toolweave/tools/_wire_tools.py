"""Tool definitions in a provider's form: legal names, lowered schemas, no hidden text; cached for unchanged tools.

A tool that a provider has no way to take is left out with its reason; it costs no other tool its turn.
Knows no provider: each gives its dialect and the form of its definitions.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from toolweave.errors import SchemaError, printable
from toolweave.schema._lowering import Dialect, LoweredSchema, lower
from toolweave.schema._strict import drop_fillers
from toolweave.tools._arguments import encode
from toolweave.tools._names import NameMap
from toolweave.tools._spec import ToolSpec
from toolweave.tools._visible import shown_schema, shown_text

__all__ = ["Form", "ToolWriter", "WireTool", "WireTools"]

_log = logging.getLogger("toolweave.tools")

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
    schema: Mapping[str, Any]
    strict: bool = False


Form: TypeAlias = Callable[[WireTool], Mapping[str, Any]]
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
    """

    names: NameMap
    definitions: tuple[Mapping[str, Any], ...] = ()
    encoded: tuple[msgspec.Raw, ...] = ()
    quarantined: Mapping[str, str]
    changes: Mapping[str, tuple[str, ...]]
    filled: Mapping[str, Mapping[str, Any]]

    def arguments(self, exposed: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return a model's arguments for a tool, without the nulls that only strict mode required."""
        schema = self.filled.get(exposed)
        return arguments if schema is None else drop_fillers(arguments, schema)

    def call_name(self, wire: str) -> str:
        """Return the exposed name of a name that a model called; an unknown one is returned as it is."""
        return self.names.exposed(wire) or wire


@dataclass(frozen=True, slots=True)
class _Prepared:
    spec: ToolSpec
    description: str
    lowered: LoweredSchema | None
    reason: str = ""
    strict: bool = False


class ToolWriter:
    """Writes tools for one provider, cached by identity: definitions are immutable.

    Attributes:
        max_description: Maximum characters of a description; the rest of a longer one is put before the schema's own
            description. None for no bound.
    """

    def __init__(
        self, dialect: Dialect, form: Form, *, strict: Dialect | None = None, max_description: int | None = None
    ) -> None:
        self.max_description = max_description
        self._dialect: Dialect = dialect
        self._strict: Dialect | None = strict
        self._form = form
        self._lists: list[tuple[Sequence[ToolSpec], tuple[ToolSpec, ...], WireTools]] = []
        self._tools: dict[int, _Prepared] = {}

    def of(self, tools: Sequence[ToolSpec]) -> WireTools:
        """Return the tools for a request.

        Nearly free for a sequence of the same definitions as an earlier one; a changed list costs in proportion to
        its changes.

        Raises:
            ValueError: Two tools have one exposed name.
        """
        for index, (known, specs, wire) in enumerate(self._lists):
            if len(specs) == len(tools) and (
                (known is tools and not isinstance(tools, list)) or all(map(operator.is_, specs, tools))
            ):
                if index:
                    self._lists.insert(0, self._lists.pop(index))
                return wire
        specs = tuple(tools)
        wire = self._write(specs)
        self._lists.insert(0, (tools, specs, wire))
        del self._lists[_KEPT_LISTS:]
        return wire

    def _write(self, specs: tuple[ToolSpec, ...]) -> WireTools:
        prepared = [self._prepared(spec) for spec in specs]
        quarantined = {one.spec.name: one.reason for one in prepared if one.lowered is None}
        for name, reason in quarantined.items():
            _log.warning("tool %r is not offered to the model: %s", name, printable(reason))
        kept = [(one, one.lowered) for one in prepared if one.lowered is not None]
        names = NameMap(one.spec for one, _ in kept)
        definitions = tuple(self._definition(names.wire_names[one.spec.name], one, lowered) for one, lowered in kept)
        return WireTools(
            names=names,
            definitions=definitions,
            encoded=tuple(msgspec.Raw(encode(one)) for one in definitions),
            quarantined=quarantined,
            changes={one.spec.name: lowered.changes for one, lowered in kept if lowered.changes},
            filled={one.spec.name: one.spec.input_schema for one, lowered in kept if lowered.fillers},
        )

    def _prepared(self, spec: ToolSpec) -> _Prepared:
        known = self._tools.get(id(spec))
        if known is None or known.spec is not spec:
            if len(self._tools) >= _KEPT_TOOLS:  # tools of lists long gone
                self._tools.clear()
            known = self._tools[id(spec)] = self._lowered(spec)
        return known

    def _lowered(self, spec: ToolSpec) -> _Prepared:
        if self._strict is not None:
            try:
                return _prepare(spec, lower(spec.input_schema, self._strict), strict=True)
            except SchemaError:  # what strict mode has no words for is offered without it
                pass
        try:
            return _prepare(spec, lower(spec.input_schema, self._dialect))
        except SchemaError as exc:
            return _Prepared(spec, "", None, str(exc))

    def _definition(self, wire: str, one: _Prepared, lowered: LoweredSchema) -> Mapping[str, Any]:
        description, schema = one.description, lowered.schema
        most = self.max_description
        if most is not None and len(description) > most:
            cut = most - len(_GOES_ON)
            own = schema.get("description")
            rest = f"{description[cut:]}\n{own}" if own else description[cut:]
            description, schema = description[:cut] + _GOES_ON, {**schema, "description": rest}
        return self._form(WireTool(name=wire, description=description, schema=schema, strict=one.strict))


def _prepare(spec: ToolSpec, lowered: LoweredSchema, *, strict: bool = False) -> _Prepared:
    schema = shown_schema(lowered.schema)
    lowered = lowered if schema is lowered.schema else replace(lowered, schema=schema)
    return _Prepared(spec, shown_text(spec.description), lowered, strict=strict)


_GOES_ON = "... (goes on in the description of the parameters)"
