"""The schema of shaped arguments, made of the schema of the original ones. Pure; knows no tool.

Names of arguments stand in `properties` and `required`, but also in what applies to the same object: `allOf`, `if`,
`dependentRequired` and the like. All of these are rewritten, and references into `properties` are kept working.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from toolweave._json_types import only_members
from toolweave._value import Value
from toolweave.errors import SchemaError
from toolweave.schema._json_values import JsonValue, SchemaNode, listed, named
from toolweave.schema.limits import local_target
from toolweave.schema.normalize import DEFINITIONS
from toolweave.schema.validate import usable_validator

_MAX_SUBSCHEMAS = 10_000
"""Subschemas of the same object that are rewritten; one that occurs several times counts each time."""
_MAX_REFS = 32
"""References that are followed one after the other on the way to the arguments."""
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_NAMED_DEPENDENCIES = ("dependentRequired", "dependentSchemas", "dependencies")
_EXAMPLES = ("default", "examples", "example")
"""Members at the root that show whole objects, with the names of before."""


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
        for name, argument in named(node, "properties").items():
            found.setdefault(name, argument)
    return found


def reshaped(schema: Mapping[str, Any], changes: Mapping[str, ArgumentChange]) -> dict[str, Any]:
    """Return the schema of the arguments as models give them.

    Removed names are not accepted any more: a schema that is open without a schema for other members is closed.

    Raises:
        SchemaError: The schema requires an argument that is never sent, or refuses a constant; or it is nested too
            deeply.
    """
    gone = [name for name, change in changes.items() if change.name != name]
    try:
        root = _with_own_definitions(dict(schema), gone)
        out = _Rewriting(root, changes).rewritten(root, refs=_MAX_REFS)
    except RecursionError:
        raise SchemaError("is nested too deeply to be shaped") from None
    if not isinstance(out, dict):
        raise SchemaError(
            "takes no arguments at all after the rule: it requires an argument that is not sent, or refuses one that is"
        )
    for key in _EXAMPLES:
        out.pop(key, None)
    if gone:
        _close(out)
    return out


def _close(schema: SchemaNode) -> None:
    if schema.get("additionalProperties", True) is not True or "patternProperties" in schema:
        return
    # `additionalProperties` does not see the members of branches and would refuse them.
    if schema.keys().isdisjoint((*_LISTS, *_SINGLE, "$ref", "dependentSchemas")):
        schema["additionalProperties"] = False
    else:
        schema.pop("additionalProperties", None)
        schema.setdefault("unevaluatedProperties", False)


class _Rewriting:
    """The changes to one schema, applied to every subschema for the same object.

    A reference is replaced by its target only if the target names an argument that changes; other references stay. The
    original is not changed, so its subschemas keep their ids, by which `_touching` knows them.
    """

    def __init__(self, root: SchemaNode, changes: Mapping[str, ArgumentChange]) -> None:
        self._root = root
        self._changes = changes
        self._touching: dict[int, bool] = {}
        self._rewritten = 0

    def rewritten(self, node: JsonValue, *, refs: int) -> JsonValue:
        """Return a subschema, an object or a boolean, with the changes; False if no arguments can fit it any more."""
        if not isinstance(node, dict):
            return node
        self._rewritten += 1
        if self._rewritten > _MAX_SUBSCHEMAS:
            raise SchemaError(f"combines more than {_MAX_SUBSCHEMAS:,} subschemas")
        out = dict(node)
        target = local_target(self._root, out.get("$ref")) if refs else None
        if isinstance(target, dict) and self._touches(target):
            return self._inlined(out, target, refs)
        if not (self._properties(out) and self._required(out)):
            return False
        self._counts(out)
        always = self._dependencies(out, refs)
        return self._applied(out, refs, always)

    def _inlined(self, out: SchemaNode, target: SchemaNode, refs: int) -> JsonValue:
        """Return a subschema with its reference replaced by the changed target."""
        del out["$ref"]
        part = self.rewritten(target, refs=refs - 1)
        rest = self.rewritten(out, refs=refs)
        if not isinstance(part, dict) or not isinstance(rest, dict):
            return False
        if _disjoint(part, rest):
            return {**part, **rest}
        return {**rest, "allOf": [*listed(rest, "allOf"), part]}

    def _touches(self, target: SchemaNode) -> bool:
        """Return whether a subschema of the same object names an argument that changes."""
        key = id(target)
        if key not in self._touching:
            self._touching[key] = not _named_in(self._root, target).isdisjoint(self._changes)
        return self._touching[key]

    def _properties(self, out: SchemaNode) -> bool:
        """Rewrite the properties of an object; return False if a constant of a rule does not fit one of them."""
        properties = out.get("properties")
        if not isinstance(properties, dict):
            return True
        made: SchemaNode = {}
        for name, argument in properties.items():
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

    def _takes(self, argument: JsonValue, change: ArgumentChange) -> bool:
        """Return whether the constant of a change fits the argument's schema; a value unknown before a call does."""
        if change.value is msgspec.UNSET or argument is True:
            return True
        definitions = only_members(self._root, DEFINITIONS)
        # With the definitions, to which the argument's schema may refer.
        check = usable_validator({**definitions, "allOf": [argument]})
        if check is None:
            # The schema as a whole cannot be used either, and nothing is checked.
            return True
        return check.is_valid(change.value)

    def _required(self, out: SchemaNode) -> bool:
        """Rewrite the required names of an object; return False if it requires an argument that is never sent."""
        required = out.get("required")
        if not isinstance(required, list):
            return True
        made = self._required_of_models(required)
        if made is None:
            return False
        if made:
            out["required"] = made
        else:
            del out["required"]
        return True

    def _required_of_models(self, names: list[JsonValue]) -> list[JsonValue] | None:
        """Return the required names that models have to give; None if one of them is never sent."""
        made: list[JsonValue] = []
        for name in names:
            change = self._changes.get(name) if isinstance(name, str) else None
            if change is None:
                made.append(name)
            elif change.sent == "never":
                return None
            elif change.sent == "given":
                made.append(change.name)
        return made

    def _counts(self, out: SchemaNode) -> None:
        """Lower the bounds on the number of members by those that models do not give."""
        always = 0
        by_default = 0
        for change in self._changes.values():
            if change.name is None and change.sent == "always":
                always += 1
            if change.sent == "default":
                by_default += 1
        # A model may leave out an argument with a default, so the lower bound counts it. It may also give it, so the
        # upper bound does not.
        for key, fewer in (("minProperties", always + by_default), ("maxProperties", always)):
            bound = out.get(key)
            if isinstance(bound, int) and fewer:
                out[key] = max(0, bound - fewer)

    def _dependencies(self, out: SchemaNode, refs: int) -> list[JsonValue]:
        """Rewrite the schemas that depend on single arguments; return those that depend on always sent ones."""
        always: list[JsonValue] = []
        kept: dict[str, SchemaNode] = {"dependencies": {}, "dependentSchemas": {}}
        for key in _NAMED_DEPENDENCIES:
            place = kept["dependencies" if key == "dependencies" else "dependentSchemas"]
            for name, dependency in named(out, key).items():
                demand = self._demand(dependency, refs)
                change = self._changes.get(name)
                sent = "given" if change is None else change.sent
                if sent == "given":
                    own = name if change is None else change.name or name
                    place[own] = {"allOf": [place[own], demand]} if own in place else demand
                elif sent != "never":
                    always.append(demand)
            out.pop(key, None)
        for key, place in kept.items():
            if place:
                out[key] = place
        return always

    def _demand(self, dependency: JsonValue, refs: int) -> JsonValue:
        """Return the dependency of an argument, a list of names or a schema, as a schema."""
        if not isinstance(dependency, list):
            return self.rewritten(dependency, refs=refs)
        names = self._required_of_models(dependency)
        if names is None:
            return False
        if names:
            return {"required": names}
        return True

    def _applied(self, out: SchemaNode, refs: int, always: list[JsonValue]) -> JsonValue:
        """Return a subschema with its branches rewritten; False if no arguments can fit it any more."""
        for key in _LISTS:
            if isinstance(out.get(key), list):
                out[key] = [self.rewritten(branch, refs=refs) for branch in listed(out, key)]
        if always:
            out["allOf"] = [*listed(out, "allOf"), *always]
        if _has_false(listed(out, "allOf")):
            return False
        for key in ("anyOf", "oneOf"):
            if _has_false(listed(out, key)):
                out[key] = [branch for branch in listed(out, key) if branch is not False]
            if out.get(key) == []:
                return False
        for key in _SINGLE:
            if key in out:
                out[key] = self.rewritten(out[key], refs=refs)
        return out


def _has_false(branches: list[JsonValue]) -> bool:
    # By identity: `0 == False`, and a stranger's schema may hold a number.
    return any(branch is False for branch in branches)


def _described(argument: JsonValue, change: ArgumentChange) -> JsonValue:
    extra: SchemaNode = {}
    if change.description is not None:
        extra["description"] = change.description
    if change.sent == "default":
        extra["default"] = change.value
    if extra and argument is True:
        return extra
    if isinstance(argument, dict):
        return {**argument, **extra}
    return argument


def _same_object(root: SchemaNode, node: SchemaNode) -> Iterable[SchemaNode]:
    """Yield the subschemas that apply to the same object as a schema, each once, itself first."""
    waiting: list[JsonValue] = [node]
    seen: set[int] = set()
    for here in waiting:  # which grows meanwhile
        if not isinstance(here, dict) or id(here) in seen:
            continue
        seen.add(id(here))
        yield here
        waiting.append(local_target(root, here.get("$ref")))
        for key in _LISTS:
            waiting += listed(here, key)
        waiting += map(here.get, _SINGLE)
        for key in ("dependentSchemas", "dependencies"):
            waiting += named(here, key).values()


def _named_in(root: SchemaNode, target: SchemaNode) -> set[str]:
    """Return the arguments that a subschema of the same object names."""
    found: list[JsonValue] = []
    for node in _same_object(root, target):
        found += [*named(node, "properties"), *listed(node, "required")]
        for key in _NAMED_DEPENDENCIES:
            dependencies = named(node, key)
            found += dependencies
            for name in dependencies:
                found += listed(dependencies, name)
    return {name for name in found if isinstance(name, str)}


def _with_own_definitions(root: SchemaNode, gone: list[str]) -> SchemaNode:
    """Return a schema in which no reference leads to `properties` that lose their names: these become definitions."""
    text = msgspec.json.encode(root)
    definitions = named(root, "$defs").copy()
    places: dict[str, str] = {}
    for name in gone:
        head = f"#/properties/{_escaped(name)}"
        # Most schemas refer to none of their arguments. One search of the text for each is far cheaper than a walk.
        if msgspec.json.encode(head)[:-1] not in text:
            continue
        key = name
        while key in definitions:
            key += "_"
        definitions[key] = named(root, "properties").get(name, True)
        places[head] = f"#/$defs/{_escaped(key)}"
    if not places:
        return root
    return _redirected_members({**root, "$defs": definitions}, places)


def _escaped(name: str) -> str:
    """Return a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _redirected(node: JsonValue, places: Mapping[str, str]) -> JsonValue:
    if isinstance(node, list):
        return [_redirected(item, places) for item in node]
    if isinstance(node, dict):
        return _redirected_members(node, places)
    return node


def _redirected_members(node: SchemaNode, places: Mapping[str, str]) -> SchemaNode:
    """Return a part of a schema whose references below some places lead to other ones."""
    out = {key: _redirected(item, places) for key, item in node.items()}
    ref = out.get("$ref")
    if isinstance(ref, str):
        for head, place in places.items():
            if f"{ref}/".startswith(f"{head}/"):
                out["$ref"] = place + ref[len(head) :]
    return out


def _disjoint(part: SchemaNode, out: SchemaNode) -> bool:
    return (part.keys() & out.keys()) <= {"description", "title", "$comment"}
