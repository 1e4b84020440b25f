"""JSON Schemas lowered to the part that each LLM API accepts: on a copy, with every loss reported.

Pure: no I/O, no network `$ref` is fetched. A constraint that an API has no keyword for moves into the description,
so that the model still reads it; a schema that cannot be expressed at all is refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from toolweave._repairs import Repair
from toolweave.errors import SchemaError
from toolweave.schema._combining import as_text, either, joined
from toolweave.schema._limits import check_schema, local_target
from toolweave.schema._normalize import (
    ANNOTATIONS,
    DEFINITIONS,
    KEYWORDS,
    MALFORMED,
    MANY_SCHEMAS,
    NAMED_SCHEMAS,
    ONE_SCHEMA,
    modern,
    types_of,
)
from toolweave.schema._profiles import LEGAL_ARGUMENTS, MINIMAL, PROFILES, SchemaProfile, SchemaRules
from toolweave.schema._strict import check_not_recursive, check_strict, close, shut, types_of_values

_MAX_HOPS = 32
_MAX_NAME = 56
"""Characters of a new name for an argument, so that a number behind it keeps it within 64."""
_MAX_LEVELS = 100
"""Levels of subschemas once references are inlined; the recursion must end before the stack does."""
_MAX_SUBSCHEMAS = 10_000
"""Subschemas that are lowered; one that occurs several times counts each time."""
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.-]")
_LENGTHS = frozenset(("maxLength", "minLength"))
_NUMBERS = frozenset(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"))

RENAMED_ARGUMENT = Repair(
    given="names of arguments that a model API refuses",
    read_as="legal names, and their own names in the call",
    limit="the members of the arguments themselves, not those within them",
    switch="`tool_schemas=` with a profile that takes any name, such as `openai`",
    problem="the argument {!r} is called {!r}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredSchema:
    """A schema lowered for an LLM API.

    Attributes:
        schema: The copy, plain dicts and lists.
        changes: Each keyword rewritten, moved into a description or left out, as one sentence with its location.
        losses: Those of the changes after which the API accepts arguments that the original schema does not.
        description: Text for the description of the tool, where the API takes none in the schema itself.
        fillers: True when null stands for an omitted optional member; `drop_fillers` removes such nulls.
        renamed: The arguments that have another name for the API, as the API's name and the original one.
    """

    schema: dict[str, Any]
    changes: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    description: str = ""
    fillers: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])


def lower(schema: Mapping[str, Any], profile: SchemaProfile, *, any_api: bool = False) -> LoweredSchema:
    """Lower the schema of a tool's arguments for an LLM API; the original is not changed.

    Args:
        schema: The schema.
        profile: The API's profile.
        any_api: Give arguments names that every other API accepts, too: a framework chooses the model later.

    Raises:
        SchemaError: The API cannot express it, or it passes a bound: of depth, of size, of what is combined.
    """
    check_schema(schema)
    rules = PROFILES[profile]
    if any_api:
        rules = replace(rules, names=LEGAL_ARGUMENTS)
    return _Lowering(dict(schema), rules).run()


def simplified(schema: Mapping[str, Any]) -> LoweredSchema:
    """Lower the schema of a tool's arguments to names, types and descriptions, which every LLM API accepts.

    Raises:
        SchemaError: As `lower`.
    """
    check_schema(schema)
    return _Lowering(dict(schema), MINIMAL).run()


class _Lowering:
    def __init__(self, root: dict[str, Any], rules: SchemaRules) -> None:
        self._root = root
        self._rules = rules
        self._changes: dict[str, bool] = {}
        """Each change, and whether it is a loss."""
        self._names: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._waiting: list[tuple[str, Any]] = []
        self._fillers = False
        self._anchors: dict[str, Any] | None = None
        self._path = [id(root)]
        """Targets of the references that the present schema replaces."""
        self._entered_at = 1
        """Length of the path at the present schema: longer paths are within that schema itself."""
        self._level = 0
        self._lowered = 0

    def run(self) -> LoweredSchema:
        root, lost = self._object(self._root, ())
        kinds = types_of(root)
        # Checked after references and combinations are flattened, for `type` is often behind a `$ref`.
        if kinds and "object" not in kinds:
            raise SchemaError(f"the arguments must be an object, the schema says {' or '.join(kinds)}")
        root["type"] = "object"
        root.setdefault("properties", {})
        # The APIs take a plain object at the top, so these cannot stay there. What is said about the whole object
        # becomes text.
        for keyword in ("not", "enum", "const"):
            if keyword in root:
                lost.append(f"{keyword}: {as_text(root.pop(keyword))}")
        renamed = self._rename_arguments(root)
        if (self._rules.closed or self._rules.shut) and not root["properties"]:
            root.setdefault("additionalProperties", False)  # a tool without parameters
        if self._rules.root is not None:
            for keyword in [key for key in root if key in KEYWORDS and key not in self._rules.root]:
                self._leave(keyword, root.pop(keyword), "", lost)
        out = self._schema(root, "", lost)
        description = ""
        if self._rules.root is not None:
            description = str(out.get("description", ""))
            out = {key: value for key, value in out.items() if key in self._rules.root}
        self._define(out)
        return LoweredSchema(
            schema=out,
            changes=tuple(self._changes),
            losses=tuple(change for change, is_loss in self._changes.items() if is_loss),
            description=description,
            fillers=self._fillers,
            renamed=renamed,
        )

    def _define(self, out: dict[str, Any]) -> None:
        """Lower the definitions that were referred to, and check the whole."""
        definitions: dict[str, Any] = {}
        # A worklist and no recursion: definitions may refer to one another in circles, each is lowered once, under a
        # name that is given when it is first met.
        while self._waiting:  # each target once, however often it is referred to, itself included
            name, target = self._waiting.pop()
            self._path = [id(target)]
            definitions[name] = self._schema(target, f"/$defs/{name}")
        if definitions:
            out["$defs"] = dict(sorted(definitions.items()))
        if self._rules.closed:
            check_strict(out)
        if self._rules.shut:
            check_not_recursive(definitions)

    def _rename_arguments(self, root: dict[str, Any]) -> dict[str, str]:
        """Give arguments whose names the API refuses a legal one, in place; return the original names by the new."""
        legal = self._rules.names
        properties: dict[str, Any] = root["properties"]
        if legal is None or all(map(legal.fullmatch, properties)):
            return {}
        new_names: dict[str, str] = {}
        taken = {name for name in properties if legal.fullmatch(name)}
        for name in [one for one in properties if one not in taken]:
            new_names[name] = _legal_name(name, taken)
            taken.add(new_names[name])
            self._note("", RENAMED_ARGUMENT.problem.format(name[:80], new_names[name]))
        root["properties"] = {new_names.get(name, name): one for name, one in properties.items()}
        if "required" in root:
            root["required"] = [new_names.get(name, name) for name in root["required"]]
        if "dependentRequired" in root:
            root["dependentRequired"] = {
                new_names.get(name, name): [new_names.get(one, one) for one in names]
                for name, names in root["dependentRequired"].items()
            }
        return {new: name for name, new in new_names.items()}

    def _object(self, node: Mapping[str, Any], path: tuple[int, ...]) -> tuple[dict[str, Any], list[str]]:
        """Flatten references and combinations at the top of the root or of a branch; also return the losses.

        `path` has the identities of the schemas from the root to this one: a schema that is in it twice has no end.
        """
        self._count()
        if id(node) in path:
            raise SchemaError("the schema combines itself with itself")
        if len(path) > _MAX_LEVELS:
            raise SchemaError(_too_deep())
        path = (*path, id(node))
        # the arguments are always an object, whatever their schema says about null
        flat = modern({key: value for key, value in node.items() if key != "nullable"}, partial(self._note, ""))
        if "$ref" in flat:
            inner, lost = self._object(_members(self._target(flat.pop("$ref"), "")), path)
            flat, more = joined(flat, [inner])
            lost += more
        else:
            lost = list[str]()
        # In this order: `allOf` adds what all branches of the unions share, so it is joined before they are made into
        # one object.
        for keyword, combine in (("allOf", joined), ("oneOf", either), ("anyOf", either)):
            if keyword not in flat:
                continue
            branches = [self._object(_members(one), path) for one in flat.pop(keyword)]
            if branches:
                self._note("", f"{keyword} of the arguments is put into one object", is_loss=combine is either)
                flat, more = combine(flat, [branch for branch, _ in branches])
                lost += [*more, *(text for _, texts in branches for text in texts)]
        return flat, lost

    def _schema(self, node: Any, where: str, lost: list[str] | None = None) -> dict[str, Any]:
        """Lower one schema and its subschemas; `lost` are phrases for its description."""
        if not isinstance(node, Mapping):
            return self._anything(node, where)
        self._count()
        if self._level >= _MAX_LEVELS:
            raise SchemaError(_too_deep())
        lost = [] if lost is None else lost
        # The path holds the targets that are being inlined, from the root to here. Its length at the entry of this
        # schema tells two cases apart: a target from before it is a recursion, one from after it is combined with
        # itself, which adds nothing.
        entered = self._entered_at = len(self._path)
        self._level += 1
        node = self._expressed(modern(cast("Mapping[str, Any]", node), partial(self._note, where)), where, lost)
        out: dict[str, Any] = {}
        for key, value in node.items():
            if key in DEFINITIONS:
                continue
            if self._keeps(key, value, node):
                self._keep(out, key, value, where)
            else:
                self._leave(key, value, where, lost)
        self._complete(out, where, node)
        for phrase in lost:
            keyword = phrase.partition(":")[0]
            # A loss is what the API would accept and the original schema refuses. A hint that moves into the text loses
            # nothing.
            if keyword in KEYWORDS or keyword == "$ref":  # what else is said was noted where it was lost
                self._note(where, f"{keyword} is said in the description", is_loss=keyword not in ANNOTATIONS)
        # Back to the length at entry: `_inlined` pushed the targets of this schema, which its siblings may refer to
        # again without being recursive.
        del self._path[entered:]
        self._level -= 1
        return _described(out, lost, beside_ref=not self._rules.plain_unions)

    def _count(self) -> None:
        self._lowered += 1
        if self._lowered > _MAX_SUBSCHEMAS:
            raise SchemaError(
                f"the schema has more than {_MAX_SUBSCHEMAS:,} subschemas once its references are in their places"
            )

    def _complete(self, out: dict[str, Any], where: str, node: dict[str, Any]) -> None:
        if "array" in types_of(out) and "items" not in out:
            out["items"] = {}
        if "enum" in node and "enum" not in out and "type" not in out:
            kinds = types_of_values(node["enum"])
            out["type"] = kinds[0] if len(kinds) == 1 else list(kinds)
        if self._rules.closed:
            self._fillers |= close(out, where, node)
        elif self._rules.shut:
            shut(out, where, node)

    def _anything(self, schema: Any, where: str) -> dict[str, Any]:
        """Return the lowered form of `true`, of `false` and of a value that is no schema."""
        if self._rules.closed or self._rules.shut:
            raise SchemaError("strict mode needs a type, and this takes any value", pointer=where)
        if schema is False and self._rules.keeps is not None:
            self._note(where, "false, which takes no value, is read as any value", is_loss=True)
        if schema is False and self._rules.keeps is None:
            return {"not": {}}
        return {}

    def _keeps(self, key: str, value: Any, node: Mapping[str, Any]) -> bool:
        rules = self._rules
        if key in rules.leaves or (rules.keeps is not None and key not in rules.keeps):
            return False
        match key:
            case "format":
                return rules.formats is None or value in rules.formats
            case "pattern" | "patternProperties":
                patterns = [value] if key == "pattern" else value
                return rules.pattern is None or all(map(rules.pattern.fullmatch, patterns))
            case "minItems":
                return not rules.single_items or value in (0, 1)
            case "enum":
                return not rules.plain_enums or all(map(_is_plain_value, value))
            case _ if key in _LENGTHS and rules.lone_lengths:
                beside = [one for one in ("format", "pattern") if one in node]
                return not any(self._keeps(one, node[one], node) for one in beside)
            case _:
                return key not in _NUMBERS or not rules.integer_bounds or types_of(node) == ("integer",)

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

    def _leave(self, key: str, value: Any, where: str, lost: list[str]) -> None:
        """Leave a keyword out: a constraint is added to the description."""
        if key == "additionalProperties" and isinstance(value, bool):
            if not value:
                self._note(where, f"{key} is left out", is_loss=True)
        elif key in KEYWORDS:
            lost.append(f"{key}: {as_text(value)}")
        else:
            self._note(where, f"{key} is left out")

    def _expressed(self, node: dict[str, Any], where: str, lost: list[str]) -> dict[str, Any]:
        """Return a schema in the words of the API where it needs other keywords for the same."""
        rules = self._rules
        if "$ref" in node and (rules.inline or (rules.plain_unions and _constrains(node))):
            node = self._inlined(node, where, lost)
        patterns = node.get("patternProperties")
        by_pattern = patterns is not None and not self._keeps("patternProperties", patterns, node)
        # Without the pattern `additionalProperties: false` would refuse the very members that the pattern allows.
        if by_pattern and node.get("additionalProperties") is False and not (rules.closed or rules.shut):
            node["additionalProperties"] = True  # members of such names are not to be refused
        if rules.plain_unions:
            return self._plain(node, where, lost)
        return node

    def _inlined(self, node: dict[str, Any], where: str, lost: list[str]) -> dict[str, Any]:
        """Return a schema with its `$ref` replaced by the target."""
        for _ in range(_MAX_LEVELS):
            if "$ref" not in node:
                return node
            target = self._entered(node.pop("$ref"), where, lost)
            # Since 2019-09 keywords beside `$ref` apply too. Both are constraints, so they are joined like the parts of
            # an `allOf` instead of one replacing the other.
            if _constrains(node):
                node["allOf"] = [*node.get("allOf", ()), target]
            else:
                node = {**target, **node}
        raise SchemaError(f"more than {_MAX_LEVELS} references follow one another", pointer=where)

    def _entered(self, reference: str, where: str, lost: list[str]) -> dict[str, Any]:
        """Return the target of a `$ref` to inline; of a recursive one the type alone."""
        self._count()
        target = self._target(reference, where)
        if not isinstance(target, Mapping):
            if target is False:
                return {"not": {}}
            return {}
        schema = modern(cast("Mapping[str, Any]", target), partial(self._note, where))
        key = id(cast("Any", target))
        # `allOf: [{$ref: A}, {$ref: A}]`: part of this schema already. Adding it again would be the same and might
        # never end.
        if key in self._path[self._entered_at :]:
            return {}  # it is part of this very schema already
        # A recursive type, in an API without references: the model reads its name and kind in place of a further level.
        if key in self._path:
            lost.append(f"$ref: the form of {_last(reference) or 'the whole'} again")
            if "type" in schema:
                return {"type": schema["type"]}
            return {}
        self._path.append(key)
        return schema

    def _plain(self, node: dict[str, Any], where: str, lost: list[str]) -> dict[str, Any]:
        """Return a schema without `allOf`, `oneOf` and other keywords that the API does not support."""
        node = self._merged(node, where, lost)
        if "oneOf" in node and "anyOf" not in node:
            node["anyOf"] = node.pop("oneOf")
        if self._rules.single_unions and "anyOf" in node and "properties" in node:
            self._note(where, "anyOf is put into one object", is_loss=True)
            node, more = either(node, [self._branch(one, where, lost) for one in node.pop("anyOf")])
            lost += more
        keeps = self._rules.keeps or frozenset()
        if node.get("items") is False:  # as many items as have a schema of their own
            del node["items"]
            most = len(node.get("prefixItems", ()))
            node["maxItems"] = min(most, node.get("maxItems", most))
        if "prefixItems" in node and "prefixItems" not in keeps:
            _widen(node, lost)
        if self._rules.single_types:
            node = self._of_one_type(node, where, lost)
        if "const" not in keeps:
            if "const" in node and "enum" not in node:
                node["enum"] = [node.pop("const")]
            if "enum" in node and not node.keys() & {"type", "$ref"}:
                kinds = types_of_values(node["enum"])
                node["type"] = kinds[0] if len(kinds) == 1 else list(kinds)
        return node

    def _of_one_type(self, node: dict[str, Any], where: str, lost: list[str]) -> dict[str, Any]:
        """Return a schema without null and without alternatives beside it, as far as one type is left then."""
        branches = [one for one in node.get("anyOf", ()) if _members(one).get("type") != "null"]
        if len(branches) == 1:
            del node["anyOf"]
            node, more = joined(node, [self._branch(branches[0], where, lost)])
            lost += more
        kinds = [kind for kind in types_of(node) if kind != "null"]
        if len(kinds) == 1:
            node["type"] = kinds[0]
        elif kinds:
            del node["type"]
            lost.append(f"type: {as_text(kinds)}")
        return node

    def _merged(self, node: dict[str, Any], where: str, lost: list[str]) -> dict[str, Any]:
        """Return a schema merged with the parts of its `allOf`; contradictions are lost."""
        for _ in range(_MAX_HOPS):
            if "allOf" not in node:
                return node
            parts = node.pop("allOf")
            # `allOf: [{$ref}]` beside a description is one reference with a text, not a combination: kept as such, or
            # every described type would be inlined.
            if not self._rules.inline and len(parts) == 1 and _is_reference(parts[0]) and not _constrains(node):
                return {**node, **parts[0]}  # pydantic's and OpenAPI's way to describe a reference
            node, more = joined(node, [self._branch(one, where, lost) for one in parts])
            lost += more
        lost.append(f"allOf: {as_text(node.pop('allOf', None))}")
        return node

    def _branch(self, part: Any, where: str, lost: list[str]) -> dict[str, Any]:
        """Return one part of a combination, with its own reference inlined."""
        self._count()
        if part is False:
            return {"not": {}}
        return self._inlined(modern(_members(part), partial(self._note, where)), where, lost)

    def _reference(self, reference: str, where: str) -> str | None:
        known = self._names.get(reference)
        if known is None:
            target = self._target(reference, where)
            if target is None:
                return None
            # The name is noted before the target is lowered: a recursive reference within it finds it.
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
            self._note(where, f"$ref {reference[:80]!r} leads out of the schema and is left open", is_loss=True)
        return target

    def _anchored(self, name: str) -> Any:
        if self._anchors is None:
            self._anchors = {}
            waiting: list[Any] = [self._root]
            while waiting:
                node = waiting.pop()
                if isinstance(node, Mapping):
                    members = cast("Mapping[str, Any]", node)
                    for anchor in _anchors_of(members):
                        self._anchors.setdefault(anchor, members)
                    waiting += members.values()
                elif isinstance(node, list):
                    waiting += cast("list[Any]", node)
        return self._anchors.get(name)

    def _free_name(self, reference: str) -> str:
        wanted = name = _last(reference) or "root"
        while name in self._numbers:  # of one wanted name the next number is known
            self._numbers[wanted] += 1
            name = f"{wanted}_{self._numbers[wanted]}"
        self._numbers[name] = 1
        return name

    def _note(self, where: str, text: str, *, is_loss: bool = False) -> None:
        change = f"{where or 'the arguments'}: {text}"
        is_loss = is_loss or (text.endswith(MALFORMED) and text.partition(" ")[0] in KEYWORDS)
        self._changes[change] = self._changes.get(change, False) or is_loss


def _legal_name(name: str, taken: Collection[str]) -> str:
    """Return a name for an argument with the letters of the original one, unlike those that are taken."""
    wanted = _ILLEGAL.sub("_", name).strip("_")[:_MAX_NAME] or "argument"
    found = wanted
    number = 1
    while found in taken:
        number += 1
        found = f"{wanted}_{number}"
    return found


def _anchors_of(node: Mapping[str, Any]) -> list[str]:
    """Return the names of a subschema; before 2019-09 an anchor was an `$id` that is a fragment."""
    anchor = node.get("$anchor")
    identifier = node.get("$id")
    names = [anchor] if isinstance(anchor, str) else []
    if isinstance(identifier, str) and identifier.startswith("#"):
        names.append(identifier[1:])
    return names


def _described(out: dict[str, Any], lost: list[str], *, beside_ref: bool) -> dict[str, Any]:
    if lost:
        said = f"({'; '.join(dict.fromkeys(lost))})"
        out["description"] = f"{out['description']} {said}" if out.get("description") else said
    if "$ref" in out and len(out) > 1 and not beside_ref:
        return {"anyOf": [{"$ref": out.pop("$ref")}], **out}
    return out


def _widen(node: dict[str, Any], lost: list[str]) -> None:
    """Turn a list of items that each have a schema of their own into one whose items have any of these, in place."""
    positions: list[Any] = node.pop("prefixItems")
    lost.append(f"prefixItems: {as_text(positions)}")
    rest = node.get("items")
    kinds: list[Any] = []
    for one in [*positions, *([rest] if isinstance(rest, Mapping) else [])]:  # pyright: ignore[reportUnknownVariableType] - any JSON value
        if one not in kinds:
            kinds.append(one)
    node["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _constrains(node: Mapping[str, Any]) -> bool:
    return any(key in KEYWORDS and key not in ANNOTATIONS for key in node)


def _is_reference(part: Any) -> bool:
    return isinstance(_members(part).get("$ref"), str) and len(part) == 1


def _is_plain_value(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)


def _last(reference: str) -> str:
    return _ILLEGAL.sub("_", reference.rpartition("/")[2].lstrip("#"))[:48]


def _too_deep() -> str:
    return f"the schema has more than {_MAX_LEVELS} levels once its references are in their places"


def _members(schema: Any) -> Mapping[str, Any]:
    if isinstance(schema, Mapping):
        return cast("Mapping[str, Any]", schema)
    return {}


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(one) for key, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_copy(one) for one in cast("list[Any]", value)]
    return value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
