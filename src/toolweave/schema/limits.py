"""Bounds on untrusted schemas and instances, checked before any recursive code runs on them.

Counts values and the comparisons a validator would make; knows of each keyword only whether it applies to the value
itself or to the values inside of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote, urljoin

from toolweave._json_types import text_or_empty
from toolweave.errors import SchemaError
from toolweave.schema._json_values import JsonValue, SchemaNode, SchemaView, listed, members, named

__all__ = [
    "EACH_ITEM",
    "EACH_ITEM_IN_ORDER",
    "EACH_MEMBER",
    "MAX_COMBINATIONS",
    "MAX_INSTANCE_DEPTH",
    "MAX_SCHEMA_DEPTH",
    "MAX_SCHEMA_NODES",
    "MAX_STEPS",
    "REFERENCES",
    "SCALARS",
    "STEPS_OF_A_PATTERN",
    "Find",
    "TooManySteps",
    "branches_of",
    "check_schema",
    "containers",
    "finder",
    "has_alternatives",
    "local_target",
    "max_steps_per_value",
    "measure",
    "own_steps",
    "present",
]

SCALARS = frozenset({str, int, float, bool, type(None)})
"""The types of the JSON values that hold no others."""

MAX_SCHEMA_DEPTH = 128
"""Levels of nesting in a schema, objects and arrays counted alike."""

MAX_SCHEMA_NODES = 50_000
"""Objects and arrays in a schema."""

MAX_COMBINATIONS = 100_000
"""Subschemas that apply to one and the same value, references followed: `allOf` chains grow exponentially."""

MAX_INSTANCE_DEPTH = 512
"""Levels of nesting in a validated value; a validator's own recursion must end before the stack does."""

MAX_STEPS = 20_000_000
"""Steps of one validation, a step being one value checked against one subschema: a second or two, uninterrupted."""

STEPS_OF_A_PATTERN = 1_000
"""Steps counted for a pattern that needs backtracking (look-around, back-references)."""

_BACKTRACKING = r"\(\?[=!<>(]|\\[1-9kKgG]|[*+?}]\+"
Find: TypeAlias = Callable[[JsonValue], JsonValue]
"""Returns the subschema that a reference leads to."""
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMES = {"$anchor": "#", "$dynamicAnchor": "#", "$id": ""}

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_COMBINING = frozenset(("$ref", "allOf", "anyOf"))
EACH_MEMBER = ("additionalProperties", "unevaluatedProperties", "propertyNames")
EACH_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")
EACH_ITEM_IN_ORDER = ("prefixItems", "items")


def check_schema(schema: JsonValue) -> int:
    """Refuse a schema that is too deep, too large, cyclic in memory, or exponential in its combinations.

    Returns:
        The steps of checking one value against every one of its subschemas.

    Raises:
        SchemaError: Naming the bound that is passed.
    """
    level = containers([[schema]])
    schemas: list[SchemaNode] = []
    nodes = 0
    # Level by level and not by recursion: this is the code that finds out whether recursion is safe. A schema that is
    # cyclic in memory never runs out of levels and ends at the bound.
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        nodes += len(level)
        if nodes > MAX_SCHEMA_NODES:
            raise SchemaError(f"the schema has more than {MAX_SCHEMA_NODES} objects and arrays")
        schemas += [node for node in level if isinstance(node, dict)]
        level = containers(level)
        if not level:
            break
    else:
        raise SchemaError(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    if isinstance(schema, dict) and any(map(_combines, schemas)):
        _check_combinations(schema, schemas)
    return sum(map(own_steps, schemas))


def _combines(node: SchemaNode) -> bool:
    return not _COMBINING.isdisjoint(node)


def measure(instance: JsonValue) -> int:
    """Return the number of values inside a value, or -1 when it is nested too deeply."""
    if not isinstance(instance, (dict, list)):
        return 0
    size = 0
    level: list[SchemaNode | list[JsonValue]] = [instance]
    for _ in range(MAX_INSTANCE_DEPTH):
        values: list[JsonValue] = []
        for node in level:
            # As above, and each level is one list: the walk takes memory for the widest level only.
            values += node.values() if isinstance(node, dict) else node
        size += len(values)
        # Nearly all are scalars. Their exact type shows it at once: every result with an output schema is measured.
        level = [value for value in values if type(value) not in SCALARS and isinstance(value, (dict, list))]
        if not level:
            return size
    return -1


class _Steps(NamedTuple):
    """The steps at a value itself, and the most steps at one member and at one item of it."""

    value: int
    member: int
    item: int


_NO_STEPS = _Steps(0, 0, 0)


def max_steps_per_value(schema: SchemaNode, every: int) -> int:
    """Return the most steps that checking any one value of an instance takes.

    That is far less than `every`, the steps of all subschemas, for a schema of many properties. A validator checks
    a value against one subschema once, so the result is `every` for a schema that refers to itself.
    """
    find = finder(schema)
    known: dict[int, _Steps] = {}
    looked_at: set[int] = set()

    def max_steps(node: JsonValue) -> int:
        return max(steps(node))

    def steps(node: JsonValue) -> _Steps:
        if not isinstance(node, dict):
            return _NO_STEPS
        found = known.get(id(node))
        if found is not None:
            return found
        # Met again before it was finished: a reference to itself. Then no bound below `every` can be given.
        if id(node) in looked_at:
            raise TooManySteps
        # Ids are stable here: the schema is held by the caller for as long as this runs.
        looked_at.add(id(node))
        total = _Steps(own_steps(node), _members(node, max_steps), _items(node, max_steps))
        for branch in branches_of(find, node):
            # Branches that apply to the same value add up, since each of them looks at the value, its members and its
            # items.
            more = steps(branch)
            total = _Steps(total.value + more.value, total.member + more.member, total.item + more.item)
        known[id(node)] = total
        return total

    try:
        return min(every, max_steps(schema))
    except (TooManySteps, RecursionError):
        return every


def has_alternatives(schema: JsonValue) -> bool:
    """Return whether one error may contain the errors of several branches, as with `anyOf` and `oneOf`."""
    level = containers([[schema]])
    while level:
        for node in level:
            if "anyOf" in node or "oneOf" in node:
                return True
        level = containers(level)
    return False


class TooManySteps(Exception):
    """Raised when counting steps does not end or passes its bound."""


def own_steps(node: SchemaNode) -> int:
    """Count the steps of one node, those of the nodes within it not included."""
    steps = 1 + len(named(node, "dependentRequired")) // 10
    values = listed(node, "enum")
    kinds = set(map(type, values))
    # The library looks up the values of an `enum` of one scalar type in a set. Others are compared one after the other.
    if len(kinds) > 1 or not kinds <= SCALARS:
        steps += len(values)
    if re.search(_BACKTRACKING, text_or_empty(node.get("pattern"))):
        steps += STEPS_OF_A_PATTERN
    return steps + sum(map(_steps_of_a_name, named(node, "patternProperties")))


def _steps_of_a_name(pattern: str) -> int:
    """Return the steps of trying a pattern of `patternProperties` with the name of a member."""
    if re.search(_BACKTRACKING, pattern):
        return STEPS_OF_A_PATTERN
    return 1


def present(node: SchemaView, keywords: Iterable[str]) -> list[JsonValue]:
    """Return the values of the keywords that a schema has."""
    return [node[keyword] for keyword in keywords if keyword in node]


def branches_of(find: Find, node: SchemaNode) -> list[JsonValue]:
    """Return the subschemas that apply to the same value."""
    found = present(node, _IN_PLACE)
    for keyword in _IN_PLACE_LISTS:
        found += listed(node, keyword)
    dependent = node.get("dependentSchemas", node.get("dependencies"))
    if isinstance(dependent, dict):
        found += dependent.values()
    found += map(find, present(node, REFERENCES))
    return found


def finder(root: JsonValue) -> Find:
    """Return a function that resolves a reference to a subschema, by JSON pointer, anchor or id."""
    by_name: SchemaNode = {}

    def find(ref: JsonValue) -> JsonValue:
        target = local_target(root, ref)
        if target is not None:
            return target
        # Collected once, at the first reference that is not a pointer: most schemas have neither anchors nor ids.
        if not by_name:
            by_name.update(_named_subschemas(root))
        target = by_name.get(str(ref))
        if target is None:
            # Such as a pointer into an embedded schema with an `$id`.
            raise TooManySteps
        return target

    return find


def _named_subschemas(root: JsonValue) -> SchemaNode:
    """Return the subschemas that have an anchor or an id, by their references."""
    found: SchemaNode = {}
    level = containers([[root]])
    while level:
        for node in level:
            if isinstance(node, dict):
                for key in _NAMES.keys() & node.keys():
                    found[f"{_NAMES[key]}{node[key]}"] = node
        level = containers(level)
    return found


def _members(node: SchemaNode, max_steps: Callable[[JsonValue], int]) -> int:
    """Return the most steps at one member of an object, or inside of it."""
    by_name = map(max_steps, named(node, "properties").values())
    # Every pattern is tried with the name of each member.
    patterns = 0
    if "patternProperties" in node:
        patterns = own_steps({"patternProperties": node["patternProperties"]})
    found = sum(map(max_steps, named(node, "patternProperties").values()))
    rest = sum(map(max_steps, present(node, EACH_MEMBER)))
    # A member has one name, so of `properties` the costliest one applies. Patterns and the rest may all apply to it as
    # well.
    return max(by_name, default=0) + patterns + found + rest


def _items(node: SchemaNode, max_steps: Callable[[JsonValue], int]) -> int:
    """Return the most steps at one item of an array, or inside of it."""
    in_order = [*listed(node, "prefixItems"), *listed(node, "items")]
    return max(map(max_steps, in_order), default=0) + sum(map(max_steps, present(node, EACH_ITEM)))


def local_target(root: JsonValue, ref: object) -> JsonValue:
    """Resolve a reference of the form `#/a/b`, also behind the `$id` of the whole; None for every other reference."""
    if not isinstance(ref, str):
        return None
    pointer = _fragment(members(root), ref)
    if pointer == "":
        return root
    if pointer is None or not pointer.startswith("/"):
        return None
    node: JsonValue = root
    for part in pointer[1:].split("/"):
        if isinstance(node, dict):
            node = _member(node, part)
        elif isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
        else:
            return None
    return node


def _member(node: SchemaNode, part: str) -> JsonValue:
    """Return the member that a part of a pointer names: as it is written, else with its percent-encoding decoded."""
    # RFC 6901, 4: in this order, or `~01` would become `/` instead of `~1`.
    key = part.replace("~1", "/").replace("~0", "~")
    if key in node or "%" not in part:
        return node.get(key)
    # RFC 6901, 6: a pointer in a URI fragment is percent-decoded first.
    return node.get(unquote(part).replace("~1", "/").replace("~0", "~"))


def _fragment(root: SchemaView, ref: str) -> str | None:
    """Return the fragment of a reference to the schema itself, or None for one to another document."""
    document, mark, fragment = ref.partition("#")
    if not document:
        if mark:
            return fragment
        return None
    own = root.get("$id")
    if not isinstance(own, str):
        return None
    try:
        same = urljoin(own, document) == own.partition("#")[0]
    except ValueError:
        # Such as brackets that hold no address.
        return None
    if same:
        return fragment
    return None


def containers(level: Iterable[SchemaNode | list[JsonValue]]) -> list[SchemaNode | list[JsonValue]]:
    """Return the objects and arrays directly inside of others: the next level of a walk."""
    found: list[SchemaNode | list[JsonValue]] = []
    for node in level:
        values = node.values() if isinstance(node, dict) else node
        found += [item for item in values if isinstance(item, (dict, list))]
    return found


def _check_combinations(root: SchemaNode, schemas: list[SchemaNode]) -> None:
    counts: dict[int, int] = {}

    def count(schema: JsonValue) -> int:
        if not isinstance(schema, dict):
            return 0
        known = counts.get(id(schema))
        if known is not None:
            return known
        # Counted as nothing while it is open: a cycle adds no new subschema to the value, and what is reached through
        # it is counted where it is first met.
        counts[id(schema)] = 0
        total = 1 + count(local_target(root, schema.get("$ref")))
        for keyword in _IN_PLACE_LISTS:
            total += sum(map(count, listed(schema, keyword)))
        total += sum(map(count, present(schema, _IN_PLACE)))
        if total > MAX_COMBINATIONS:
            raise SchemaError(
                f"more than {MAX_COMBINATIONS} subschemas apply to one value through allOf, anyOf or $ref"
            )
        counts[id(schema)] = total
        return total

    try:
        for schema in schemas:
            count(schema)
    except RecursionError:
        raise SchemaError("the schema's references form a chain that is too long") from None
