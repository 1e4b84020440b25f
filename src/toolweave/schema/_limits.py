"""Bounds on untrusted schemas and instances, checked before any recursive code runs on them.

Counts values and the comparisons a validator would make; knows of each keyword only whether it applies to the value
itself or to the values inside of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, cast
from urllib.parse import unquote, urljoin

from toolweave.errors import SchemaError

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
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMES = {"$anchor": "#", "$dynamicAnchor": "#", "$id": ""}

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
EACH_MEMBER = ("additionalProperties", "unevaluatedProperties", "propertyNames")
EACH_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")
EACH_ITEM_IN_ORDER = ("prefixItems", "items")


def check_schema(schema: Any) -> int:  # any JSON value, and whatever else a caller hands over
    """Refuse a schema that is too deep, too large, cyclic in memory, or exponential in its combinations.

    Returns:
        The steps of checking one value against every one of its subschemas.

    Raises:
        SchemaError: Naming the bound that is passed.
    """
    level: list[Any] = [schema]
    schemas: list[dict[str, Any]] = []
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
    if isinstance(schema, dict) and any("$ref" in node or "allOf" in node or "anyOf" in node for node in schemas):
        _check_combinations(cast("dict[str, Any]", schema), schemas)
    return sum(map(own_steps, schemas))


def measure(instance: Any) -> int:  # any JSON value
    """Return the number of values inside a value, or -1 when it is nested too deeply."""
    if not isinstance(instance, (dict, list)):
        return 0
    size = 0
    level: list[Any] = [instance]
    for _ in range(MAX_INSTANCE_DEPTH):
        values: list[Any] = []
        for node in level:
            # As above, and each level is one list: the walk takes memory for the widest level only.
            values += node.values() if isinstance(node, dict) else node
        size += len(values)
        # nearly all are scalars, and one look at the type tells: every result with an output schema is measured
        level = [value for value in values if type(value) not in SCALARS and isinstance(value, (dict, list))]
        if not level:
            return size
    return -1


def max_steps_per_value(schema: dict[str, Any], every: int) -> int:
    """Return the most steps that checking any one value of an instance takes.

    That is far less than `every`, the steps of all subschemas, for a schema of many properties. A validator checks
    a value against one subschema once, so the result is `every` for a schema that refers to itself.
    """
    find = finder(schema)
    known: dict[int, tuple[int, int, int, int]] = {}
    looked_at: set[int] = set()

    def steps(node: Any) -> tuple[int, int, int, int]:
        """Return the steps at the value itself, at a member and at an item of it, and the maximum of the three."""
        if not isinstance(node, dict):
            return 0, 0, 0, 0
        node = cast("dict[str, Any]", node)
        found = known.get(id(node))
        if found is not None:
            return found
        # Met again before it was finished: a reference to itself. Then no bound below `every` can be given.
        if id(node) in looked_at:
            raise TooManySteps
        # Ids are stable here: the schema is held by the caller for as long as this runs.
        looked_at.add(id(node))
        here = own_steps(node)
        member = _members(node, steps)
        item = _items(node, steps)
        for branch in branches_of(find, node):
            own, of_member, of_item, _ = steps(branch)
            # Branches that apply to the same value add up, since each of them looks at the value, its members and its
            # items.
            here = here + own
            member = member + of_member
            item = item + of_item
        known[id(node)] = here, member, item, max(here, member, item)
        return known[id(node)]

    try:
        return min(every, steps(schema)[3])
    except (TooManySteps, RecursionError):
        return every


def has_alternatives(schema: Any) -> bool:  # any JSON value
    """Return whether one error may contain the errors of several branches, as with `anyOf` and `oneOf`."""
    level: list[Any] = [schema]
    while level:
        if any("anyOf" in node or "oneOf" in node for node in level):
            return True
        level = containers(level)
    return False


class TooManySteps(Exception):
    """Raised when counting steps does not end or passes its bound."""


def own_steps(node: dict[str, Any]) -> int:
    steps = 1 + len(named(node, "dependentRequired")) // 10
    values = listed(node, "enum")
    kinds = set(map(type, values))
    # The library has a fast set for an `enum` of one scalar type; others are compared one after the other.
    if len(kinds) > 1 or not kinds <= SCALARS:  # those of one scalar type are looked up, all others are compared
        steps += len(values)
    pattern = node.get("pattern")
    if isinstance(pattern, str) and re.search(_BACKTRACKING, pattern):
        steps += STEPS_OF_A_PATTERN
    patterns = node.get("patternProperties")
    if isinstance(patterns, dict):
        steps += sum(
            STEPS_OF_A_PATTERN if re.search(_BACKTRACKING, one) else 1 for one in cast("dict[str, Any]", patterns)
        )
    return steps


def branches_of(find: Callable[[Any], Any], node: dict[str, Any]) -> list[Any]:
    """Return the subschemas that apply to the same value."""
    found = [node[keyword] for keyword in _IN_PLACE if keyword in node]
    for keyword in _IN_PLACE_LISTS:
        branches = node.get(keyword)
        if isinstance(branches, list):
            found += cast("list[Any]", branches)
    dependent = node.get("dependentSchemas", node.get("dependencies"))
    if isinstance(dependent, dict):
        found += cast("dict[str, Any]", dependent).values()
    found += (find(node[keyword]) for keyword in REFERENCES if keyword in node)
    return found


def finder(root: Any) -> Callable[[Any], Any]:
    """Return a function that resolves a reference to a subschema, by JSON pointer, anchor or id."""
    named: dict[str, Any] = {}

    def find(ref: Any) -> Any:
        target = local_target(root, ref)
        # Collected once, at the first reference that is no pointer: most schemas have neither anchors nor ids.
        if target is None and not named:
            level: list[Any] = [root]
            while level:
                for node in level:
                    if isinstance(node, dict):
                        member = cast("dict[str, Any]", node)
                        named.update((f"{mark}{member[key]}", member) for key, mark in _NAMES.items() if key in member)
                level = containers(level)
        target = named.get(str(ref)) if target is None else target
        if target is None:
            raise TooManySteps  # such as a pointer into a schema with an id of its own
        return target

    return find


def _members(node: dict[str, Any], steps: Callable[[Any], tuple[int, int, int, int]]) -> int:
    """Return the most steps at one member of an object, or inside of it."""
    by_name = [steps(inner)[3] for inner in named(node, "properties").values()]
    # every pattern is tried with the name of each member
    if "patternProperties" in node:
        patterns = own_steps({"patternProperties": node["patternProperties"]})
    else:
        patterns = 0
    found = sum(steps(inner)[3] for inner in named(node, "patternProperties").values())
    rest = sum(steps(node.get(keyword))[3] for keyword in EACH_MEMBER)
    # A member has one name, so of `properties` the costliest one applies; patterns and the rest may all apply to it as
    # well.
    return max(by_name, default=0) + patterns + found + rest


def _items(node: dict[str, Any], steps: Callable[[Any], tuple[int, int, int, int]]) -> int:
    """Return the most steps at one item of an array, or inside of it."""
    in_order = [steps(inner)[3] for keyword in EACH_ITEM_IN_ORDER for inner in listed(node, keyword)]
    return max(in_order, default=0) + sum(steps(node.get(keyword))[3] for keyword in EACH_ITEM)


def named(node: dict[str, Any], keyword: str) -> dict[str, Any]:
    found = node.get(keyword)
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    return {}


def listed(node: dict[str, Any], keyword: str) -> list[Any]:
    found = node.get(keyword)
    if isinstance(found, list):
        return cast("list[Any]", found)
    return []


def local_target(root: dict[str, Any], ref: object) -> Any:  # any JSON value
    """Resolve a reference of the form `#/a/b`, also behind the `$id` of the whole; None for every other reference."""
    if not isinstance(ref, str):
        return None
    pointer = _fragment(root, ref)
    if pointer == "":
        return root
    if pointer is None or not pointer.startswith("/"):
        return None
    node: Any = root
    for part in pointer[1:].split("/"):
        if isinstance(node, dict):
            node = _member(cast("dict[str, Any]", node), part)
        elif isinstance(node, list) and part.isdecimal() and int(part) < len(cast("list[Any]", node)):
            node = cast("list[Any]", node)[int(part)]
        else:
            return None
    return node


def _member(node: dict[str, Any], part: str) -> Any:
    """Return the member that a part of a pointer names: as it is written, else with its percent-encoding decoded."""
    # RFC 6901, 4: in this order, or `~01` would become `/` instead of `~1`.
    key = part.replace("~1", "/").replace("~0", "~")
    if key in node or "%" not in part:
        return node.get(key)
    # RFC 6901, 6: a pointer in a URI fragment is percent-decoded first.
    return node.get(unquote(part).replace("~1", "/").replace("~0", "~"))


def _fragment(root: dict[str, Any], ref: str) -> str | None:
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
    except ValueError:  # such as brackets that hold no address
        return None
    if same:
        return fragment
    return None


def containers(level: Iterable[Any]) -> list[Any]:
    return [item for node in level for item in _values(node) if isinstance(item, (dict, list))]


def _values(node: dict[str, Any] | list[Any]) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node


def _check_combinations(root: dict[str, Any], schemas: list[dict[str, Any]]) -> None:
    counts: dict[int, int] = {}

    def count(schema: Any) -> int:
        if not isinstance(schema, dict):
            return 0
        schema = cast("dict[str, Any]", schema)
        known = counts.get(id(schema))
        if known is not None:
            return known
        # Counted as nothing while it is open: a cycle adds no new subschema to the value, and what is reached through
        # it is counted where it is first met.
        counts[id(schema)] = 0  # a cycle through references ends here
        total = 1 + count(local_target(root, schema.get("$ref")))
        for keyword in _IN_PLACE_LISTS:
            branches = schema.get(keyword)
            if isinstance(branches, list):
                total += sum(count(branch) for branch in cast("list[Any]", branches))
        total += sum(count(schema.get(keyword)) for keyword in _IN_PLACE)
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
