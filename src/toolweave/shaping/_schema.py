"""The schema of shaped arguments, made of the schema of the original ones. Pure; knows no tool.

Names of arguments stand in `properties` and `required`, but also in what applies to the same object: `allOf`, `if`,
`dependentRequired` and the like. All of these are rewritten, and references into `properties` are kept working.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import msgspec

from toolweave._value import Value
from toolweave.errors import SchemaError
from toolweave.schema import Validator
from toolweave.schema._limits import local_target
from toolweave.schema._normalize import DEFINITIONS
from toolweave.schema._profiles import SchemaNode

_MOST_SUBSCHEMAS = 10_000
"""Subschemas of the same object that are rewritten; one that occurs several times counts each time."""
_MOST_REFS = 32
"""References that are followed one after the other on the way to the arguments."""
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_EXAMPLES = ("default", "examples", "example")
"""Members at the root that show whole objects, with names that are not right any more."""


class ArgumentChange(Value, frozen=True, kw_only=True):
    """The effect of a rule on the schema of one argument.

    Attributes:
        name: Its new name; None where models do not see it.
        sent: Whether it is sent as models give it, always, where models give none, or never.
        description: Its new description, or None.
        value: The constant that is sent, or the default; `UNSET` where none is known before a call.
    """

    name: str | None
    sent: Literal["given", "always", "default", "never"] = "given"
    description: str | None = None
    value: Any = msgspec.UNSET


def declared_arguments(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments that a schema of an object declares, with their schemas."""
    root = dict(schema)
    found: dict[str, Any] = {}
    for node in _same_object(root, root):
        for name, argument in _object(node.get("properties")).items():
            found.setdefault(name, argument)
    return found


def reshaped(schema: Mapping[str, Any], changes: Mapping[str, ArgumentChange]) -> SchemaNode:
    """Return the schema of the arguments as models give them.

    Names that are taken out are not accepted any more: a schema that is open without saying what else it takes is
    closed.

    Raises:
        SchemaError: It requires what is never sent, or refuses the constant that is; or it is nested too deeply.
    """
    try:
        root = _with_own_definitions(dict(schema), [name for name, change in changes.items() if change.name != name])
        made = _Rewriting(root, changes).rewritten(root, refs=_MOST_REFS)
    except RecursionError:
        raise SchemaError("is nested too deeply to be shaped") from None
    if not isinstance(made, dict):
        raise SchemaError("takes no arguments at all after the rule: it requires what is not sent or refuses what is")
    out = cast("SchemaNode", made)
    for key in _EXAMPLES:
        out.pop(key, None)
    if any(change.name != name for name, change in changes.items()):
        _close(out)
    return out


def _close(schema: SchemaNode) -> None:
    if schema.get("additionalProperties", True) is not True or "patternProperties" in schema:
        return
    if any(key in schema for key in (*_LISTS, *_SINGLE, "$ref", "dependentSchemas")):
        schema.pop("additionalProperties", None)
        schema.setdefault("unevaluatedProperties", False)
    else:
        schema["additionalProperties"] = False


class _Rewriting:
    """The changes to one schema, applied to every subschema that speaks of the same object."""

    def __init__(self, root: SchemaNode, changes: Mapping[str, ArgumentChange]) -> None:
        self._root = root
        self._changes = changes
        self._touching: dict[int, bool] = {}
        self._rewritten = 0

    def rewritten(self, node: Any, *, refs: int) -> Any:  # a schema is an object or a boolean
        """Return a subschema with the changes; False where no arguments can fit it any more."""
        if not isinstance(node, dict):
            return node
        self._rewritten += 1
        if self._rewritten > _MOST_SUBSCHEMAS:
            raise SchemaError(f"combines more than {_MOST_SUBSCHEMAS:,} subschemas")
        out: SchemaNode = dict(cast("SchemaNode", node))
        if refs:
            target = local_target(self._root, out.get("$ref"))
        else:
            target = None
        if isinstance(target, dict) and self._touches(cast("SchemaNode", target)):
            del out["$ref"]
            part = self.rewritten(target, refs=refs - 1)
            rest = self.rewritten(out, refs=refs)
            if part is False or rest is False:
                return False
            together = _disjoint(part, rest)
            if together:
                return {**part, **rest}
            return {**rest, "allOf": [*_list(rest.get("allOf")), part]}
        if not self._properties(out) or not self._required(out):
            return False
        self._counts(out)
        always = self._dependencies(out, refs)
        return self._applied(out, refs, always)

    def _touches(self, target: SchemaNode) -> bool:
        """Whether a subschema of the same object names an argument that changes."""
        key = id(target)
        if key not in self._touching:
            self._touching[key] = not _named_in(self._root, target).isdisjoint(self._changes)
        return self._touching[key]

    def _each(self, nodes: Any, refs: int) -> list[Any]:
        return [self.rewritten(node, refs=refs) for node in _list(nodes)]

    def _properties(self, out: SchemaNode) -> bool:
        properties = out.get("properties")
        if not isinstance(properties, dict):
            return True
        made: SchemaNode = {}
        for name, argument in cast("SchemaNode", properties).items():
            change = self._changes.get(name)
            if change is None:
                made[name] = argument
            elif change.name is None:
                if not self._takes(argument, change):
                    return False
            else:
                made[change.name] = _described(argument, change)
        out["properties"] = made
        return True

    def _takes(self, argument: Any, change: ArgumentChange) -> bool:
        """Return whether the constant of a change fits the argument's schema; a value unknown before a call does."""
        if change.value is msgspec.UNSET or argument is True:
            return True
        definitions = {key: self._root[key] for key in DEFINITIONS if key in self._root}
        try:
            return Validator({**definitions, "allOf": [argument]}).is_valid(change.value)
        except SchemaError:  # the schema as a whole cannot be used either, and nothing is checked
            return True

    def _required(self, out: SchemaNode) -> bool:
        required = out.get("required")
        if not isinstance(required, list):
            return True
        made = self._wanted(cast("list[Any]", required))
        if made is None:
            return False
        if made:
            out["required"] = made
        else:
            del out["required"]
        return True

    def _wanted(self, names: Iterable[Any]) -> list[Any] | None:
        """Return the names that models have to give of those that are required; None if one is never sent."""
        made: list[Any] = []
        for name in names:
            if isinstance(name, str):
                change = self._changes.get(name)
            else:
                change = None
            if change is None:
                made.append(name)
            elif change.sent == "never":
                return None
            elif change.sent == "given":
                made.append(change.name)
        return made

    def _counts(self, out: SchemaNode) -> None:
        always = sum(change.name is None and change.sent == "always" for change in self._changes.values())
        sent = always + sum(change.sent == "default" for change in self._changes.values())
        for key, fewer in (("minProperties", sent), ("maxProperties", always)):
            if isinstance(out.get(key), int) and fewer:
                out[key] = max(0, out[key] - fewer)

    def _dependencies(self, out: SchemaNode, refs: int) -> list[Any]:
        """Rewrite the schemas that depend on single arguments; return those that depend on always sent ones."""
        always: list[Any] = []
        kept: dict[str, SchemaNode] = {"dependencies": {}, "dependentSchemas": {}}
        for key in ("dependentRequired", "dependentSchemas", "dependencies"):
            place = kept["dependencies" if key == "dependencies" else "dependentSchemas"]
            for name, wanted in _object(out.pop(key, None)).items():
                demand = self._demand(wanted, refs)
                change = self._changes.get(name)
                if change is None or change.sent == "given":
                    if change is None or change.name is None:
                        own = name
                    else:
                        own = change.name
                    place[own] = {"allOf": [place[own], demand]} if own in place else demand
                elif change.sent != "never":
                    always.append(demand)
        out.update({key: place for key, place in kept.items() if place})
        return always

    def _demand(self, wanted: Any, refs: int) -> Any:
        """Return the dependency of an argument, a list of names or a schema, as a schema."""
        if not isinstance(wanted, list):
            return self.rewritten(wanted, refs=refs)
        names = self._wanted(cast("list[Any]", wanted))
        if names is None:
            return False
        if names:
            return {"required": names}
        return True

    def _applied(self, out: SchemaNode, refs: int, always: list[Any]) -> Any:
        for key in _LISTS:
            if isinstance(out.get(key), list):
                out[key] = self._each(out[key], refs)
        if always:
            out["allOf"] = [*_list(out.get("allOf")), *always]
        for key in ("anyOf", "oneOf"):
            if False in _list(out.get(key)):
                out[key] = [part for part in out[key] if part is not False]
        if False in _list(out.get("allOf")) or any(out.get(key) == [] for key in ("anyOf", "oneOf")):
            return False
        for key in _SINGLE:
            if key in out:
                out[key] = self.rewritten(out[key], refs=refs)
        return out


def _described(argument: Any, change: ArgumentChange) -> Any:
    extra: SchemaNode = {} if change.description is None else {"description": change.description}
    if change.sent == "default":
        extra["default"] = change.value
    if not extra or not isinstance(argument, dict):
        if extra and argument is True:
            return extra
        return argument
    return {**cast("SchemaNode", argument), **extra}


def _same_object(root: SchemaNode, node: Any) -> Iterable[SchemaNode]:
    """Yield the subschemas that apply to the same object as a schema, each once, itself first."""
    waiting = [node]
    seen = set[int]()
    for here in waiting:  # which grows meanwhile
        if not isinstance(here, dict) or id(cast("object", here)) in seen:
            continue
        one = cast("SchemaNode", here)
        seen.add(id(one))
        yield one
        waiting += [local_target(root, one.get("$ref"))] if isinstance(one.get("$ref"), str) else []
        waiting += [part for key in _LISTS for part in _list(one.get(key))]
        waiting += [one.get(key) for key in _SINGLE]
        waiting += [part for key in ("dependentSchemas", "dependencies") for part in _object(one.get(key)).values()]


def _named_in(root: SchemaNode, target: SchemaNode) -> set[Any]:
    """Return the arguments that a subschema of the same object names."""
    named: list[Any] = []
    for node in _same_object(root, target):
        named += [*_object(node.get("properties")), *_list(node.get("required"))]
        for key in ("dependentRequired", "dependentSchemas", "dependencies"):
            named += _object(node.get(key))
            named += [name for names in _object(node.get(key)).values() for name in _list(names)]
    return {name for name in named if isinstance(name, str)}


def _with_own_definitions(root: SchemaNode, gone: list[str]) -> SchemaNode:
    """Return a schema in which no reference leads to `properties` that lose their names: these become definitions."""
    heads = {f"#/properties/{name.replace('~', '~0').replace('/', '~1')}": name for name in gone}
    text = msgspec.json.encode(root)
    led = [head for head in heads if msgspec.json.encode(head)[:-1] in text]
    if not led:
        return root
    definitions = dict(_object(root.get("$defs")))
    places: dict[str, str] = {}
    for head in led:
        key = heads[head]
        while key in definitions:
            key += "_"
        definitions[key] = _object(root.get("properties")).get(heads[head], True)
        places[head] = f"#/$defs/{key.replace('~', '~0').replace('/', '~1')}"
    return cast("SchemaNode", _led({**root, "$defs": definitions}, places))


def _led(node: Any, places: Mapping[str, str]) -> Any:
    if isinstance(node, list):
        return [_led(item, places) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    out: SchemaNode = {key: _led(item, places) for key, item in cast("SchemaNode", node).items()}
    ref = out.get("$ref")
    if isinstance(ref, str):
        for head, place in places.items():
            if ref == head or ref.startswith(f"{head}/"):
                out["$ref"] = place + ref[len(head) :]
    return out


def _disjoint(part: SchemaNode, out: SchemaNode) -> bool:
    return not (part.keys() & out.keys()) - {"description", "title", "$comment"}


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return []


def _object(value: Any) -> SchemaNode:
    if isinstance(value, dict):
        return cast("SchemaNode", value)
    return {}
