"""JSON Schemas lowered to the subset that each LLM API accepts: on a copy, with every loss reported.

Pure: no I/O, no network `$ref` is fetched. A constraint that an API has no keyword for moves into the description,
so that the model still reads it; a schema that cannot be expressed at all is refused with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, cast

from toolweave.errors import SchemaError
from toolweave.schema._limits import check_schema, local_target
from toolweave.schema._normalize import DEFINITIONS, MANY_SCHEMAS, NAMED_SCHEMAS, ONE_SCHEMA, modern, types_of
from toolweave.schema._strict import check_not_recursive, check_strict, close, shut

__all__ = ["Dialect", "LoweredSchema", "lower"]

_LONGEST = 300
_SPOKEN = frozenset(("description", "title", "default", "examples"))


def joined(base: Mapping[str, Any], branches: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Merge `allOf` branches into one schema; also return the constraints it cannot express."""
    node, lost = dict(base), list[str]()
    for branch in branches:
        for key, value in branch.items():
            if key == "properties":
                node[key] = _properties(node.get(key, {}), value, "allOf")
            elif key == "required":
                node[key] = list(dict.fromkeys([*node.get(key, ()), *value]))
            elif key not in node:
                node[key] = value
            elif node[key] != value and key not in _SPOKEN:
                if key == "type" and (kinds := _common(node[key], value)):
                    node[key] = kinds[0] if len(kinds) == 1 else kinds
                else:
                    lost.append(f"{key}: {as_text(value)}")
    return node, lost


def either(base: Mapping[str, Any], branches: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return an object schema that accepts each of the alternatives, and the constraints it cannot express."""
    node = dict(base)
    always = set[str](node.get("required", ()))
    properties: Any = node.get("properties", {})
    forms: list[str] = []
    for branch in branches:
        properties = _properties(properties, branch.get("properties", {}), "anyOf")
        wanted = [name for name in cast("list[str]", branch.get("required", [])) if name not in always]
        fixed = [f"{name} = {as_text(part['const'])}" for name, part in _constants(branch)]
        forms.append(" and ".join(dict.fromkeys([*fixed, *wanted])))
    shared = set[str](branches[0].get("required", ())).intersection(*(one.get("required", ()) for one in branches[1:]))
    node["properties"] = properties
    kinds = [types_of(branch) for branch in branches]
    if all(kinds):
        node.setdefault("type", list(dict.fromkeys(name for names in kinds for name in names)))
    required = list(dict.fromkeys([*node.get("required", ()), *sorted(shared)]))
    if required:
        node["required"] = required
    # an object closed to other members was so in its own alternative only
    node.pop("additionalProperties", None)
    spoken = list(dict.fromkeys(form for form in forms if form))
    return node, [f"one of these forms: {'; or '.join(spoken)}"[:_LONGEST]] if len(spoken) > 1 else []


def as_text(value: Any) -> str:
    """Return a JSON value as short text."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _constants(branch: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    properties = cast("Mapping[str, Any]", branch.get("properties", {}))
    return [(name, part) for name, part in properties.items() if isinstance(part, Mapping) and "const" in part]


def _properties(known: Mapping[str, Any], more: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    out = dict(known)
    for name, part in more.items():
        if name not in out or out[name] is True:
            out[name] = part
        elif out[name] != part and part is not True:
            out[name] = _with_branch(out[name], part, keyword)
    return out


def _with_branch(known: Any, part: Any, keyword: str) -> dict[str, Any]:
    """Combine `known` and `part` under `keyword`; a list of branches from an earlier call is extended."""
    single = cast("dict[str, Any]", known) if isinstance(known, dict) and len(cast("Any", known)) == 1 else {}
    branches = single.get(keyword, [known])
    return {keyword: branches if part in branches else [*branches, part]}


def _common(one: Any, other: Any) -> list[str]:
    kinds = [one] if isinstance(one, str) else list(one)
    others = {other} if isinstance(other, str) else set(other)
    if "number" in others:
        others.add("integer")
    return [kind for kind in kinds if kind in others]


Dialect: TypeAlias = Literal["openai", "openai-strict", "anthropic", "anthropic-strict", "gemini"]
"""The LLM API, and its rules: those of function calling, or the strict ones of structured outputs."""

_MAX_HOPS = 32
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredSchema:
    """A schema lowered for an LLM API.

    Attributes:
        schema: The copy, plain dicts and lists.
        changes: Each keyword rewritten, moved into a description or left out, as one sentence with its location.
        fillers: True when null stands for an omitted optional member; `drop_fillers` removes such nulls.
    """

    schema: dict[str, Any]
    changes: tuple[str, ...] = ()
    fillers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _ApiRules:
    keeps: frozenset[str] | None = None
    formats: frozenset[str] | None = None
    plain_unions: bool = False  # no allOf and no oneOf, and nothing beside a $ref
    closed: bool = False
    shut: bool = False  # every object takes its own members alone, required or not, and refers to itself nowhere
    names: re.Pattern[str] | None = None


_COMMON = frozenset({"$ref", "anyOf", "description", "enum", "items", "properties", "required", "type"})
_LIMITS = frozenset({"maximum", "minimum", "maxItems", "minItems"})
_RULES: Mapping[str, _ApiRules] = {
    "openai": _ApiRules(),
    "anthropic": _ApiRules(names=re.compile(r"[a-zA-Z0-9_.-]{1,64}")),
    "anthropic-strict": _ApiRules(
        keeps=_COMMON | {"additionalProperties", "const", "default", "format", "minItems"},
        formats=frozenset(
            {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"},
        ),
        plain_unions=True,
        shut=True,
        names=re.compile(r"[a-zA-Z0-9_.-]{1,64}"),
    ),
    "gemini": _ApiRules(
        keeps=_COMMON | _LIMITS | {"additionalProperties", "format", "prefixItems"},
        formats=frozenset({"date", "date-time", "double", "enum", "float", "int32", "int64", "time"}),
        plain_unions=True,
    ),
    "openai-strict": _ApiRules(
        keeps=_COMMON
        | _LIMITS
        | {"additionalProperties", "const", "exclusiveMaximum", "exclusiveMinimum", "format", "multipleOf", "pattern"},
        formats=frozenset({"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}),
        plain_unions=True,
        closed=True,
    ),
}
_QUIET = frozenset({"title", "examples", "discriminator", "deprecated", "readOnly", "writeOnly"})
"""Keywords that are dropped without a note in the description."""


def lower(schema: Mapping[str, Any], dialect: Dialect) -> LoweredSchema:
    """Lower the schema of a tool's arguments for an LLM API; the original is not changed.

    Raises:
        SchemaError: The API cannot express it, or it passes a bound of `toolweave.schema._limits`.
    """
    check_schema(schema)
    return _Lowering(dict(schema), _RULES[dialect]).run()


class _Lowering:
    def __init__(self, root: dict[str, Any], rules: _ApiRules) -> None:
        self._root = root
        self._rules = rules
        self._changes: list[str] = []
        self._names: dict[str, str] = {}
        self._waiting: list[tuple[str, Any]] = []
        self._fillers = False
        self._anchors: dict[str, Any] | None = None

    def run(self) -> LoweredSchema:
        root, lost = self._object(self._root, 0)
        kinds = types_of(root)
        if kinds and "object" not in kinds:
            raise SchemaError(f"the arguments must be an object, the schema says {' or '.join(kinds)}")
        root["type"] = "object"
        root.setdefault("properties", {})
        for keyword in ("not", "enum", "const"):
            if keyword in root:
                lost.append(f"{keyword}: {as_text(root.pop(keyword))}")
        self._check_names(root["properties"])
        if (self._rules.closed or self._rules.shut) and not root["properties"]:
            root.setdefault("additionalProperties", False)  # a tool without parameters
        out = self._schema(root, "", lost)
        definitions: dict[str, Any] = {}
        while self._waiting:  # each target once, however often it is referred to, itself included
            name, target = self._waiting.pop()
            definitions[name] = self._schema(target, f"/$defs/{name}")
        if definitions:
            out["$defs"] = dict(sorted(definitions.items()))
        if self._rules.closed:
            check_strict(out)
        if self._rules.shut:
            check_not_recursive(definitions)
        return LoweredSchema(schema=out, changes=tuple(dict.fromkeys(self._changes)), fillers=self._fillers)

    def _check_names(self, properties: Mapping[str, Any]) -> None:
        legal = self._rules.names
        bad = [name for name in properties if legal is not None and not legal.fullmatch(name)]
        if bad:
            raise SchemaError(f"the argument {bad[0][:80]!r} has a name that the API refuses", pointer="/properties")

    def _object(self, node: Mapping[str, Any], depth: int) -> tuple[dict[str, Any], list[str]]:
        """Flatten references and combinations at the top of the root or of a branch; also return the losses."""
        if depth > _MAX_HOPS:
            raise SchemaError("the schema combines itself with itself")
        flat = modern(node, partial(self._note, ""))
        if "$ref" in flat:
            inner, lost = self._object(_members(self._target(flat.pop("$ref"), "")), depth + 1)
            flat, more = joined(flat, [inner])
            lost += more
        else:
            lost = list[str]()
        for keyword, combine in (("allOf", joined), ("oneOf", either), ("anyOf", either)):
            if keyword not in flat:
                continue
            branches = [self._object(_members(one), depth + 1) for one in flat.pop(keyword)]
            if branches:
                self._note("", f"{keyword} of the arguments is put into one object")
                flat, more = combine(flat, [branch for branch, _ in branches])
                lost += [*more, *(text for _, texts in branches for text in texts)]
        return flat, lost

    def _schema(self, node: Any, where: str, lost: list[str] | None = None) -> dict[str, Any]:
        """Lower one schema and its subschemas; `lost` are phrases for its description."""
        if not isinstance(node, Mapping):
            return self._anything(node, where)
        node = modern(cast("Mapping[str, Any]", node), partial(self._note, where))
        lost = [] if lost is None else lost
        if self._rules.plain_unions:
            node = self._plain(node, lost)
        out: dict[str, Any] = {}
        for key, value in node.items():
            if key in DEFINITIONS:
                continue
            if self._keeps(key, value):
                self._keep(out, key, value, where)
            elif key not in _QUIET:
                lost.append(f"{key}: {as_text(value)}")
            else:
                self._note(where, f"{key} is left out")
        if "array" in types_of(out) and "items" not in out:
            out["items"] = {}
        self._close(out, where, cast("dict[str, Any]", node))
        for phrase in lost:
            self._note(where, f"{phrase.partition(':')[0]} is said in the description")
        return _described(out, lost, beside_ref=not self._rules.plain_unions)

    def _close(self, out: dict[str, Any], where: str, original: Mapping[str, Any]) -> None:
        if self._rules.closed:
            self._fillers |= close(out, where, original)
        elif self._rules.shut:
            shut(out, where, original)

    def _anything(self, schema: Any, where: str) -> dict[str, Any]:
        """Return the lowered form of `true`, of `false` and of a value that is no schema."""
        if self._rules.closed:
            raise SchemaError("strict mode needs a type, and this takes any value", pointer=where)
        return {"not": {}} if schema is False and self._rules.keeps is None else {}

    def _keeps(self, key: str, value: Any) -> bool:
        rules = self._rules
        if key == "format" and rules.formats is not None:
            return value in rules.formats
        if key == "minItems" and rules.shut:
            return value in (0, 1)
        if (
            key == "enum" and rules.keeps is not None and not (rules.closed or rules.shut)
        ):  # Gemini: strings and numbers
            return all(isinstance(one, (str, int, float)) and not isinstance(one, bool) for one in value)
        return rules.keeps is None or key in rules.keeps

    def _keep(self, out: dict[str, Any], key: str, value: Any, where: str) -> None:
        if key == "$ref":
            reference = self._reference(value, where)
            if reference is not None:
                out["$ref"] = reference
        elif key in ONE_SCHEMA:
            simple = isinstance(value, bool) and key != "items"
            out[key] = value if simple else self._schema(value, f"{where}/{key}")
        elif key in MANY_SCHEMAS:
            out[key] = [self._schema(one, f"{where}/{key}/{index}") for index, one in enumerate(value)]
        elif key in NAMED_SCHEMAS:
            out[key] = {name: self._schema(one, f"{where}/{key}/{_escaped(name)}") for name, one in value.items()}
        else:
            out[key] = _copy(value)

    def _plain(self, node: dict[str, Any], lost: list[str]) -> dict[str, Any]:
        """Return a schema without `allOf`, `oneOf` and, for Gemini, `const`."""
        if "allOf" in node:
            branches = [self._resolved(_members(one)) for one in node.pop("allOf")]
            node, more = joined(node, branches)
            lost += more
            if "allOf" in node:  # of a branch: deeper than one level is for a reader
                lost.append(f"allOf: {as_text(node.pop('allOf'))}")
        if "oneOf" in node and "anyOf" not in node:
            node["anyOf"] = node.pop("oneOf")
        if "const" in node and "const" not in (self._rules.keeps or ()):
            node.setdefault("enum", [node.pop("const")])
        return node

    def _resolved(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        for _ in range(_MAX_HOPS):
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return modern(node, partial(self._note, ""))
            rest = {key: value for key, value in node.items() if key != "$ref"}
            node = {**_members(self._target(reference, "")), **rest}
        raise SchemaError("the schema's references form a circle")

    def _reference(self, reference: str, where: str) -> str | None:
        known = self._names.get(reference)
        if known is None:
            target = self._target(reference, where)
            if target is None:
                return None
            known = self._free_name(reference)
            self._names[reference] = known
            self._waiting.append((known, target))
        return f"#/$defs/{known}"

    def _target(self, reference: str, where: str) -> Any:
        """Resolve a reference; None for one that leads out of the schema, which is never fetched."""
        target = local_target(self._root, reference)
        if target is None and reference.startswith("#"):
            target = self._anchored(reference[1:])
        if target is None:
            self._note(where, f"$ref {reference[:80]!r} leads out of the schema and is left open")
        return target

    def _anchored(self, name: str) -> Any:
        if self._anchors is None:
            self._anchors = {}
            waiting: list[Any] = [self._root]
            while waiting:
                node = waiting.pop()
                if isinstance(node, Mapping):
                    members = cast("Mapping[str, Any]", node)
                    if isinstance(anchor := members.get("$anchor"), str):
                        self._anchors.setdefault(anchor, members)
                    waiting += members.values()
                elif isinstance(node, list):
                    waiting += cast("list[Any]", node)
        return self._anchors.get(name)

    def _free_name(self, reference: str) -> str:
        wanted = _ILLEGAL.sub("_", reference.rpartition("/")[2].lstrip("#"))[:48] or "root"
        name, number = wanted, 2
        while name in self._names.values():
            name, number = f"{wanted}_{number}", number + 1
        return name

    def _note(self, where: str, text: str) -> None:
        self._changes.append(f"{where or 'the arguments'}: {text}")


def _described(out: dict[str, Any], lost: list[str], *, beside_ref: bool) -> dict[str, Any]:
    if lost:
        said = f"({'; '.join(dict.fromkeys(lost))})"
        out["description"] = f"{out['description']} {said}" if out.get("description") else said
    if "$ref" in out and len(out) > 1 and not beside_ref:
        reference = {"$ref": out.pop("$ref")}
        described = {"description": out["description"]} if "description" in out else {}
        return {"anyOf": [reference, *out.get("anyOf", [])], **described}
    return out


def _members(schema: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(one) for key, one in cast("Mapping[str, Any]", value).items()}
    return [_copy(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
