"""Tool definitions as a server lists them: a `ToolSpec` as the wire's JSON, for each era; and the checks before.

A foreign definition travels as it came (requirement C11); ours are checked when they are registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolweave.errors import SchemaError
from toolweave.protocol.headers import mirroring_problem
from toolweave.schema import Validator
from toolweave.serve.request import Json
from toolweave.tools import ToolSpec
from toolweave.tools.call import RESUMABLE
from toolweave.tools.function import check_schemas

__all__ = ["Definitions", "check_definition"]

_HIDDEN = frozenset({"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons", "_meta"})


def check_definition(spec: ToolSpec) -> tuple[Validator, Validator | None]:
    """Compile the schemas of a tool of ours: of its arguments, and of its output if it has one.

    Raises:
        SchemaError: One is no schema; names the tool, the schema and the JSON pointer (requirements R89, R96).
    """
    arguments, output = check_schemas(spec)
    wrong = mirroring_problem(spec.input_schema)
    if wrong is not None:
        raise SchemaError(f"tool {spec.name!r}: inputSchema: {wrong[0]}", pointer=wrong[1])
    return arguments, output


class Definitions:
    """The definitions of the tools of one server, made when they are first listed and kept while they hold."""

    def __init__(self) -> None:
        self._made: dict[bool, dict[str, tuple[ToolSpec, Json]]] = {True: {}, False: {}}

    def of(self, spec: ToolSpec, *, modern: bool) -> Json:
        """Return the definition of a tool for an era; callers do not change it."""
        made = self._made[modern]
        known = made.get(spec.name)
        if known is not None and known[0] is spec:
            return known[1]
        definition = _definition(spec, modern=modern)
        made[spec.name] = (spec, definition)
        return definition

    def forget(self, names: tuple[str, ...]) -> None:
        """Drop the definitions of tools that are gone."""
        for made in self._made.values():
            for name in names:
                made.pop(name, None)


def _definition(spec: ToolSpec, *, modern: bool) -> Json:
    made: Json = {"name": spec.name}
    if spec.title is not None:
        made["title"] = spec.title
    if spec.description:
        made["description"] = spec.description
    made["inputSchema"] = spec.input_schema
    if spec.output_schema is not None and (modern or _is_object_schema(spec.output_schema)):
        made["outputSchema"] = spec.output_schema
    if spec.annotations is not None:
        made["annotations"] = spec.annotations
    if spec.icons:
        made["icons"] = list(spec.icons)
    if spec.meta:
        told = {name: value for name, value in spec.meta.items() if spec.server is not None or name != RESUMABLE}
        made |= {"_meta": told} if told else {}
    for name, value in spec.raw.items():  # what this version does not know survives
        if name not in _HIDDEN:
            made[name] = value
    return made


def _is_object_schema(schema: Mapping[str, Any] | bool) -> bool:
    """Whether handshake-era clients can take an output schema: they know objects only."""
    return isinstance(schema, Mapping) and schema.get("type") == "object"
