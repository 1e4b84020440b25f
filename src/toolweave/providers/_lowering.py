"""JSON Schemas lowered to the part that each LLM API accepts: on a copy, with every loss reported.

Pure: no I/O, no network `$ref` is fetched. A constraint that an API has no keyword for moves into the description,
so that the model still reads it; a schema that cannot be expressed at all is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from toolweave._json_types import only_members, without_members
from toolweave._repairs import Repair
from toolweave.errors import SchemaError
from toolweave.providers._lowered_level import (
    anchors_of,
    bound_items,
    constrains,
    copied,
    escaped,
    is_plain_value,
    last_part,
    legal_name,
    lone_reference,
    renamed,
    turn_into_enum,
    widen,
    with_lost_constraints,
)
from toolweave.providers._profiles import LEGAL_ARGUMENTS, MINIMAL, PROFILES, SchemaProfile, SchemaRules
from toolweave.providers._strict import check_not_recursive, check_strict, close, shut, types_of_values
from toolweave.schema._combining import as_text, either, joined
from toolweave.schema._json_values import JsonValue, SchemaNode, SchemaView, listed, members, named, text, texts
from toolweave.schema.limits import check_schema, local_target
from toolweave.schema.normalize import (
    ANNOTATIONS,
    DEFINITIONS,
    KEYWORDS,
    MALFORMED,
    MANY_SCHEMAS,
    NAMED_SCHEMAS,
    ONE_SCHEMA,
    modern,
    type_keyword,
    types_of,
)

_MAX_HOPS = 32
_MAX_LEVELS = 100
"""Levels of subschemas once references are inlined; the recursion must end before the stack does."""
_MAX_SUBSCHEMAS = 10_000
"""Subschemas that are lowered; one that occurs several times counts each time."""

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
    root = dict(schema)
    check_schema(root)
    rules = PROFILES[profile]
    if any_api:
        rules = replace(rules, names=LEGAL_ARGUMENTS)
    return _Lowering(root, rules).run()


def simplified(schema: Mapping[str, Any]) -> LoweredSchema:
    """Lower the schema of a tool's arguments to names, types and descriptions, which every LLM API accepts.

    Raises:
        SchemaError: As `lower`.
    """
    root = dict(schema)
    check_schema(root)
    return _Lowering(root, MINIMAL).run()


class _Lowering:
    """One lowering of one schema: a recursion over its subschemas, and a worklist of the definitions they refer to.

    Why it ends: `_count` bounds the subschemas in all, `_level` the recursion, and `_path` finds a reference that leads
    into a schema that is being inlined. Nothing of the original is changed: each level is copied by `modern`.
    """

    def __init__(self, root: SchemaNode, rules: SchemaRules) -> None:
        self._root = root
        self._rules = rules
        self._changes: dict[str, bool] = {}
        """Each change, and whether it is a loss."""
        self._names: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._waiting: list[tuple[str, JsonValue]] = []
        self._fillers = False
        self._anchors: SchemaNode | None = None
        self._path = [id(root)]
        """Targets of the references that the present schema replaces."""
        self._entered_at = 1
        """Length of the path at the present schema: longer paths are within that schema itself."""
        self._level = 0
        self._lowered = 0

    def run(self) -> LoweredSchema:
        rules = self._rules
        root, lost = self._object(self._root, ())
        kinds = types_of(root)
        # Checked after references and combinations are flattened, for `type` is often behind a `$ref`.
        if kinds and "object" not in kinds:
            raise SchemaError(f"the arguments must be an object, the schema has the type {' or '.join(kinds)}")
        root["type"] = "object"
        root.setdefault("properties", {})
        # The APIs take a plain object at the top, so these cannot stay there. They become text.
        for keyword in ("not", "enum", "const"):
            if keyword in root:
                lost.append(f"{keyword}: {as_text(root.pop(keyword))}")
        renamed = self._rename_arguments(root)
        if rules.is_strict and not root["properties"]:
            root.setdefault("additionalProperties", False)  # a tool without parameters
        if rules.root is not None:
            refused = KEYWORDS - rules.root
            for keyword in list(root):
                if keyword in refused:
                    self._leave(keyword, root.pop(keyword), "", lost)
        out = self._schema(root, "", lost)
        description = ""
        if rules.root is not None:
            description = text(out, "description") or ""
            out = without_members(out, *(out.keys() - rules.root))
        self._define(out)
        return LoweredSchema(
            schema=out,
            changes=tuple(self._changes),
            losses=tuple(change for change, is_loss in self._changes.items() if is_loss),
            description=description,
            fillers=self._fillers,
            renamed=renamed,
        )

    def _define(self, out: SchemaNode) -> None:
        """Lower the definitions that were referred to, and check the whole."""
        definitions: SchemaNode = {}
        # A worklist and no recursion: definitions may refer to one another in circles, each is lowered once, under a
        # name that is given when it is first met.
        while self._waiting:
            # Each target once, however often it is referred to, itself included.
            name, target = self._waiting.pop()
            self._path = [id(target)]
            definitions[name] = self._schema(target, f"/$defs/{name}")
        if definitions:
            out["$defs"] = dict(sorted(definitions.items()))
        if self._rules.closed:
            check_strict(out)
        if self._rules.shut:
            check_not_recursive(definitions)

    def _rename_arguments(self, root: SchemaNode) -> dict[str, str]:
        """Give arguments whose names the API refuses a legal one, in place; return the original names by the new."""
        legal = self._rules.names
        properties = named(root, "properties")
        if legal is None or all(map(legal.fullmatch, properties)):
            return {}
        new_names = {name: name for name in properties if legal.fullmatch(name)}
        originals: dict[str, str] = {}
        for name in properties:
            if name not in new_names:
                new_name = legal_name(name, new_names.values())
                new_names[name] = new_name
                originals[new_name] = name
                self._note("", RENAMED_ARGUMENT.problem.format(name[:80], new_name))
        root["properties"] = {new_names[name]: member for name, member in properties.items()}
        if "required" in root:
            root["required"] = renamed(texts(root, "required"), new_names)
        dependent: SchemaNode = {}
        for name in named(root, "dependentRequired"):
            required = texts(named(root, "dependentRequired"), name)
            dependent[new_names.get(name, name)] = renamed(required, new_names)
        if dependent:
            root["dependentRequired"] = dependent
        return originals

    def _object(self, node: SchemaView, path: tuple[int, ...]) -> tuple[SchemaNode, list[str]]:
        """Flatten references and combinations at the top of the root or of a branch; also return the losses.

        `path` has the identities of the schemas from the root to this one: a schema that is in it twice has no end.
        """
        self._count()
        if id(node) in path:
            raise SchemaError("the schema combines itself with itself")
        if len(path) > _MAX_LEVELS:
            raise SchemaError(_too_deep())
        path = (*path, id(node))
        # The arguments are always an object, whatever their schema allows about null.
        flat = modern(without_members(node, "nullable"), partial(self._note, ""))
        lost: list[str] = []
        reference = text(flat, "$ref")
        if reference is not None:
            del flat["$ref"]
            inner, lost = self._object(members(self._target(reference, "")), path)
            flat, more = joined(flat, [inner])
            lost += more
        # In this order: `allOf` adds constraints that all branches of the unions share, so it is joined before they are
        # made into one object.
        for keyword, combine in (("allOf", joined), ("oneOf", either), ("anyOf", either)):
            branches: list[SchemaNode] = []
            lost_in_branches: list[str] = []
            for one in listed(flat, keyword):
                branch, more = self._object(members(one), path)
                branches.append(branch)
                lost_in_branches += more
            if branches:
                del flat[keyword]
                self._note("", f"{keyword} of the arguments is put into one object", is_loss=combine is either)
                flat, more = combine(flat, branches)
                lost += [*more, *lost_in_branches]
        return flat, lost

    def _schema(self, schema: JsonValue, where: str, lost: list[str] | None = None) -> SchemaNode:
        """Lower one schema and its subschemas; `lost` are phrases for its description."""
        if not isinstance(schema, Mapping):
            return self._anything(schema, where)
        self._count()
        if self._level >= _MAX_LEVELS:
            raise SchemaError(_too_deep())
        if lost is None:
            lost = []
        # The path holds the targets that are being inlined, from the root to here. Its length at the entry of this
        # schema separates two cases: a target from before it is a recursion, one from after it is combined with
        # itself, which adds nothing.
        entered = self._entered_at = len(self._path)
        self._level += 1
        node = self._expressed(modern(schema, partial(self._note, where)), where, lost)
        out: SchemaNode = {}
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
            # A loss is a value that the API would accept and the original schema refuses. A hint that moves into the
            # text loses nothing. Phrases without a keyword were noted where they were lost.
            if keyword in KEYWORDS or keyword == "$ref":
                self._note(where, f"{keyword} is stated in the description", is_loss=keyword not in ANNOTATIONS)
        # Back to the length at entry: `_inlined` pushed the targets of this schema, which its siblings may refer to
        # again without being recursive.
        del self._path[entered:]
        self._level -= 1
        return with_lost_constraints(out, lost, beside_ref=not self._rules.plain_unions)

    def _count(self) -> None:
        self._lowered += 1
        if self._lowered > _MAX_SUBSCHEMAS:
            raise SchemaError(
                f"the schema has more than {_MAX_SUBSCHEMAS:,} subschemas once its references are in their places"
            )

    def _complete(self, out: SchemaNode, where: str, node: SchemaNode) -> None:
        if "array" in types_of(out) and "items" not in out:
            out["items"] = {}
        # The values themselves were left out, so their types are the best that is left.
        if "enum" in node and out.keys().isdisjoint(("enum", "type")):
            out["type"] = type_keyword(types_of_values(listed(node, "enum")))
        if self._rules.closed:
            self._fillers |= close(out, where, node)
        elif self._rules.shut:
            shut(out, where, node)

    def _anything(self, schema: JsonValue, where: str) -> SchemaNode:
        """Return the lowered form of `true`, of `false` and of a value that is not a schema."""
        if self._rules.is_strict:
            raise SchemaError("strict mode needs a type, and this takes any value", pointer=where)
        if schema is not False:
            return {}
        if self._rules.keeps is None:
            return {"not": {}}
        self._note(where, "false, which takes no value, is read as any value", is_loss=True)
        return {}

    def _keeps(self, key: str, value: JsonValue, node: SchemaView) -> bool:
        """Return whether the API takes a keyword with this value."""
        rules = self._rules
        if not rules.takes_keyword(key):
            return False
        match key:
            case "format":
                return rules.takes_format(value)
            case "pattern":
                return rules.takes_patterns([str(value)])
            case "patternProperties":
                return rules.takes_patterns(members(value))
            case "minItems":
                return value in (0, 1) or not rules.single_items
            case "enum" if rules.plain_enums:
                return all(map(is_plain_value, listed(node, key)))
            case "maxLength" | "minLength" if rules.lone_lengths:
                return not self._keeps_form(node)
            case _:
                if key in _NUMBERS and rules.integer_bounds:
                    return types_of(node) == ("integer",)
                return True

    def _keeps_form(self, node: SchemaView) -> bool:
        """Return whether a format or a pattern of a schema is kept."""
        forms = only_members(node, ("format", "pattern"))
        return any(self._keeps(key, value, node) for key, value in forms.items())

    def _keep(self, out: SchemaNode, key: str, value: JsonValue, where: str) -> None:
        if key == "$ref":
            reference = self._reference(str(value), where)
            if reference is not None:
                out["$ref"] = reference
        elif key in ONE_SCHEMA:
            simple = isinstance(value, bool) and key != "items"
            out[key] = value if simple else self._schema(value, f"{where}/{key}")
        elif key in MANY_SCHEMAS and isinstance(value, list):
            out[key] = [self._schema(one, f"{where}/{key}/{index}") for index, one in enumerate(value)]
        elif key in NAMED_SCHEMAS:
            place = f"{where}/{key}"
            out[key] = {name: self._schema(one, f"{place}/{escaped(name)}") for name, one in members(value).items()}
        else:
            out[key] = copied(value)

    def _leave(self, key: str, value: JsonValue, where: str, lost: list[str]) -> None:
        """Leave a keyword out: a constraint is added to the description."""
        if key not in KEYWORDS:
            self._note(where, f"{key} is left out")
        elif key != "additionalProperties" or not isinstance(value, bool):
            lost.append(f"{key}: {as_text(value)}")
        elif not value:
            self._note(where, f"{key} is left out", is_loss=True)

    def _expressed(self, node: SchemaNode, where: str, lost: list[str]) -> SchemaNode:
        """Return a schema in the keywords of the API, where those for the same constraint differ."""
        rules = self._rules
        if "$ref" in node:
            # An API without `allOf` has no way to write constraints beside a reference.
            constrained = rules.plain_unions and constrains(node)
            if constrained or rules.inline:
                node = self._inlined(node, where, lost)
        patterns = node.get("patternProperties")
        if patterns is not None and not rules.is_strict:
            # Without the patterns `additionalProperties: false` would refuse the very members that they allow.
            is_closed = node.get("additionalProperties") is False
            if is_closed and not self._keeps("patternProperties", patterns, node):
                node["additionalProperties"] = True
        if rules.plain_unions:
            return self._plain(node, where, lost)
        return node

    def _inlined(self, node: SchemaNode, where: str, lost: list[str]) -> SchemaNode:
        """Return a schema with its `$ref` replaced by the target."""
        for _ in range(_MAX_LEVELS):
            if "$ref" not in node:
                return node
            target = self._entered(str(node.pop("$ref")), where, lost)
            # Since 2019-09 keywords beside `$ref` also apply. Both are constraints, so they are joined like the
            # parts of an `allOf` instead of one replacing the other.
            if constrains(node):
                node["allOf"] = [*listed(node, "allOf"), target]
            else:
                node = {**target, **node}
        raise SchemaError(f"more than {_MAX_LEVELS} references follow one another", pointer=where)

    def _entered(self, reference: str, where: str, lost: list[str]) -> SchemaNode:
        """Return the target of a `$ref` to inline; of a recursive one the type alone."""
        self._count()
        target = self._target(reference, where)
        if not isinstance(target, Mapping):
            if target is False:
                return {"not": {}}
            return {}
        schema = modern(target, partial(self._note, where))
        key = id(target)
        # `allOf: [{$ref: A}, {$ref: A}]`: part of this schema already. A second time it adds nothing and might never
        # end.
        if key in self._path[self._entered_at :]:
            return {}
        # A recursive type, in an API without references: the model reads its name and kind in place of a further level.
        if key in self._path:
            lost.append(f"$ref: the form of {last_part(reference) or 'the whole'} again")
            if "type" in schema:
                return {"type": schema["type"]}
            return {}
        self._path.append(key)
        return schema

    def _plain(self, node: SchemaNode, where: str, lost: list[str]) -> SchemaNode:
        """Return a schema without `allOf`, `oneOf` and other keywords that the API does not support."""
        # In this order: parts of an `allOf` may bring unions and items, and a union of one branch brings a type.
        node = self._merged(node, where, lost)
        if "oneOf" in node and "anyOf" not in node:
            node["anyOf"] = node.pop("oneOf")
        if self._rules.single_unions and node.keys() >= {"anyOf", "properties"}:
            self._note(where, "anyOf is put into one object", is_loss=True)
            branches = [self._branch(one, where, lost) for one in listed(node, "anyOf")]
            del node["anyOf"]
            node, more = either(node, branches)
            lost += more
        keeps = self._rules.keeps or frozenset()
        if node.get("items") is False:
            bound_items(node)
        if "prefixItems" in node and "prefixItems" not in keeps:
            widen(node, lost)
        if self._rules.single_types:
            node = self._of_one_type(node, where, lost)
        if "const" not in keeps:
            turn_into_enum(node)
        return node

    def _of_one_type(self, node: SchemaNode, where: str, lost: list[str]) -> SchemaNode:
        """Return a schema without null and without alternatives beside it, if that leaves one type."""
        branches = [one for one in listed(node, "anyOf") if members(one).get("type") != "null"]
        if len(branches) == 1:
            del node["anyOf"]
            node, more = joined(node, [self._branch(branches[0], where, lost)])
            lost += more
        kinds = [kind for kind in types_of(node) if kind != "null"]
        if len(kinds) == 1:
            node["type"] = kinds[0]
        elif kinds:
            del node["type"]
            lost.append(f"type: {as_text([*kinds])}")
        return node

    def _merged(self, node: SchemaNode, where: str, lost: list[str]) -> SchemaNode:
        """Return a schema merged with the parts of its `allOf`; contradictions are lost."""
        for _ in range(_MAX_HOPS):
            if "allOf" not in node:
                return node
            parts = listed(node, "allOf")
            del node["allOf"]
            # `allOf: [{$ref}]` beside a description is how pydantic and OpenAPI describe a reference. It is kept, or
            # every described type would be inlined.
            reference = None if self._rules.inline else lone_reference(parts)
            if reference is not None and not constrains(node):
                return {**node, "$ref": reference}
            node, more = joined(node, [self._branch(one, where, lost) for one in parts])
            lost += more
        lost.append(f"allOf: {as_text(node.pop('allOf', None))}")
        return node

    def _branch(self, part: JsonValue, where: str, lost: list[str]) -> SchemaNode:
        """Return one part of a combination, with its own reference inlined."""
        self._count()
        if part is False:
            return {"not": {}}
        return self._inlined(modern(members(part), partial(self._note, where)), where, lost)

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

    def _target(self, reference: str, where: str) -> JsonValue:
        """Resolve a reference; None for one that leads out of the schema, which is never fetched."""
        target = local_target(self._root, reference)
        if target is None and reference.startswith("#"):
            target = self._anchored(reference[1:])
        if target is None:
            self._note(where, f"$ref {reference[:80]!r} leads out of the schema and is left open", is_loss=True)
        return target

    def _anchored(self, name: str) -> JsonValue:
        """Return the subschema with an anchor. All are collected at the first use, as few schemas have any."""
        if self._anchors is None:
            self._anchors = {}
            waiting: list[JsonValue] = [self._root]
            while waiting:
                node = waiting.pop()
                if isinstance(node, Mapping):
                    for anchor in anchors_of(node):
                        self._anchors.setdefault(anchor, node)
                    waiting += node.values()
                elif isinstance(node, list):
                    waiting += node
        return self._anchors.get(name)

    def _free_name(self, reference: str) -> str:
        wanted = name = last_part(reference) or "root"
        while name in self._numbers:
            # Of one wanted name the next number is known.
            self._numbers[wanted] += 1
            name = f"{wanted}_{self._numbers[wanted]}"
        self._numbers[name] = 1
        return name

    def _note(self, where: str, text: str, *, is_loss: bool = False) -> None:
        change = f"{where or 'the arguments'}: {text}"
        if text.endswith(MALFORMED):
            is_loss |= text.partition(" ")[0] in KEYWORDS
        # One change may be noted several times; it stays a loss once it was one.
        self._changes[change] = self._changes.get(change, False) or is_loss


def _too_deep() -> str:
    return f"the schema has more than {_MAX_LEVELS} levels once its references are in their places"
