"""The cost of explaining why a value does not fit a schema, estimated before a validator collects the errors.

A check for validity ends at the first error, and looks nothing up twice. Collecting follows every path to a subschema,
and each error is an object with copies of the value it is about, of its place, and of what the keyword allows: n errors
of n allowed values each are n * n copies. So a path counts a step, an error some, and what is copied counts by its
size; texts count by their characters, since one name may be longer than a whole table.

The estimate must not be an attack itself: each subschema is read once, and counting ends at the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from toolweave.schema._json_values import JsonValue, SchemaNode, listed, named, texts
from toolweave.schema.limits import (
    EACH_ITEM,
    EACH_ITEM_IN_ORDER,
    EACH_MEMBER,
    Find,
    TooManySteps,
    branches_of,
    finder,
    own_steps,
    present,
)

MAX_STEPS_EXPLAINED = 50_000
"""Steps of collecting the errors of a value, which costs a hundred times as much as a yes or no."""

_MAX_PAIRS = 20_000
_STEPS_OF_AN_ERROR = 4
_MAX_MEASURED = 200_000
"""Values whose size is looked at, since they may be copied."""

_COPIED_IN_A_STEP = 2_000
"""Characters that are copied in the time of one step."""

_SIZE_OF_A_VALUE = 100
"""Characters that take as long to copy as one value."""

_COPIED_LIMITS = ("const", "not", "pattern")
_EACH_VALUE_OF_A_MEMBER = tuple(keyword for keyword in EACH_MEMBER if keyword != "propertyNames")


def is_explainable(schema: JsonValue, instance: JsonValue) -> bool:
    """Return whether a validator can collect the errors of a value within `MAX_STEPS_EXPLAINED`."""
    try:
        _Estimate(schema, instance).steps(schema, instance)
    except (TooManySteps, RecursionError):
        return False
    return True


class _Keywords:
    """The parts of a subschema that matter to the estimate, read once for all values it applies to."""

    __slots__ = (
        "asserted",
        "branches",
        "dependent",
        "enum",
        "every_item",
        "every_member",
        "in_order",
        "limits",
        "names",
        "node",
        "options",
        "own",
        "properties",
        "required",
    )

    def __init__(self, node: SchemaNode, find: Find, size: Callable[[JsonValue], int]) -> None:
        self.node = node
        self.own = own_steps(node)
        self.asserted = len(node)
        self.limits = sum(map(size, present(node, _COPIED_LIMITS)))
        self.enum = size(listed(node, "enum"))
        self.options = frozenset(texts(node, "enum"))
        self.required = frozenset(texts(node, "required"))
        self.dependent = _dependent_names(node)
        self.branches = branches_of(find, node)
        self.properties = named(node, "properties")
        self.names = node.get("propertyNames")
        self.every_member = [*named(node, "patternProperties").values(), *present(node, _EACH_VALUE_OF_A_MEMBER)]
        self.every_item = present(node, EACH_ITEM)
        self.in_order = [listed(node, keyword) for keyword in EACH_ITEM_IN_ORDER]

    def inside(self, value: JsonValue) -> Iterator[tuple[JsonValue, JsonValue]]:
        """Yield each subschema that applies to a value inside of `value`, or to a name, with that value or name."""
        if isinstance(value, dict):
            for name, member in value.items():
                yield self.properties.get(name), member
                if self.names is not None:
                    yield self.names, name
                for inner in self.every_member:
                    yield inner, member
        elif isinstance(value, list):
            for number, item in enumerate(value):
                for inner in self.every_item:
                    yield inner, item
                for in_order in self.in_order:
                    if number < len(in_order):
                        yield in_order[number], item


def _dependent_names(node: SchemaNode) -> dict[str, frozenset[str]]:
    """Return the names that are required beside a member, by the name of that member."""
    found: dict[str, frozenset[str]] = {}
    for keyword in ("dependentRequired", "dependencies"):
        for name, names in named(node, keyword).items():
            if isinstance(names, list):
                found[name] = frozenset(map(str, names))
    return found


class _Estimate:
    """The steps of explaining one value, counted once for each pair of a subschema and a value.

    Subschemas and values are known by their ids, as neither has a hash. That is safe while the caller of
    `is_explainable` holds both; the estimate changes neither.
    """

    def __init__(self, schema: JsonValue, instance: JsonValue) -> None:
        self._find = finder(schema)
        self._keywords: dict[int, _Keywords] = {}
        self._sizes: dict[int, int] = {}
        self._measured = 0
        self._visited = 0
        self._known: dict[tuple[int, int], int] = {}
        in_schema, _ = _size_of_places(schema)
        in_instance, depth = _size_of_places(instance)
        place = in_instance + in_schema * (1 + depth)
        self._place = place if place > _COPIED_IN_A_STEP else 0
        """Characters of the longest place that an error may name, in the value and in the schema; 0 for few."""

    def steps(self, node: JsonValue, value: JsonValue) -> int:
        """Return the steps of explaining a value by a subschema.

        Raises:
            TooManySteps: More than `MAX_STEPS_EXPLAINED`.
        """
        self._visited += 1
        if self._visited > MAX_STEPS_EXPLAINED:
            raise TooManySteps
        if not isinstance(node, dict):
            return 1
        # A pair counts once, and each further visit one step: a schema that reaches one subschema on a thousand ways
        # costs a thousand steps here, and not a thousand times its own cost.
        key = (id(node), id(value))
        if key in self._known:
            return self._known[key] + 1
        if len(self._known) > _MAX_PAIRS:
            raise TooManySteps
        # A reference to itself ends here.
        self._known[key] = 0
        keywords = self._keywords.get(id(node))
        if keywords is None:
            keywords = self._keywords[id(node)] = _Keywords(node, self._find, self._size)
        total = self._own(keywords, value)
        for inner, child in _pairs(keywords, value):
            total += self.steps(inner, child)
            # Checked after each child, not at the end: the sum itself must not take longer than what it is to prevent.
            if total > MAX_STEPS_EXPLAINED:
                raise TooManySteps
        self._known[key] = total
        return total

    def _own(self, keywords: _Keywords, value: JsonValue) -> int:
        """Return the steps of the errors that the keywords of a subschema itself may have with a value."""
        errors = keywords.asserted
        copied = keywords.limits
        steps = keywords.own
        is_option = isinstance(value, str) and value in keywords.options
        if not is_option:
            copied += keywords.enum
        if isinstance(value, dict):
            missing = self._missing(keywords.required, value)
            for name, names in keywords.dependent.items():
                if name in value:
                    missing += self._missing(names, value)
            errors += missing
            steps += missing * _STEPS_OF_AN_ERROR
            if keywords.names is not None:
                errors += len(value)
        copied += errors * (self._size(value) + self._place)
        return steps + copied // _COPIED_IN_A_STEP

    def _missing(self, names: frozenset[str], members: SchemaNode) -> int:
        """Return the number of names that are missing, long ones counted by their length."""
        missing = names - members.keys()
        if len(missing) > MAX_STEPS_EXPLAINED:
            raise TooManySteps
        return sum(1 + len(name) // _COPIED_IN_A_STEP for name in missing)

    def _size(self, value: JsonValue) -> int:
        """Return the size of a value in characters, as far as copying it is concerned."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, (dict, list)):
            return 0
        # Measured once for each value: aliases of one large value, in the schema or in the instance, cost nothing more.
        found = self._sizes.get(id(value))
        if found is not None:
            return found
        self._measured += len(value)
        if self._measured > _MAX_MEASURED:
            raise TooManySteps
        size = len(value) * _SIZE_OF_A_VALUE
        if isinstance(value, dict):
            size += sum(map(len, value)) + sum(map(self._size, value.values()))
        else:
            size += sum(map(self._size, value))
        self._sizes[id(value)] = size
        return size


def _pairs(keywords: _Keywords, value: JsonValue) -> Iterator[tuple[JsonValue, JsonValue]]:
    for branch in keywords.branches:
        yield branch, value
    yield from keywords.inside(value)


def _size_of_places(value: JsonValue) -> tuple[int, int]:
    """Return the characters of the longest path to a value inside of a value, and the number of levels.

    Raises:
        TooManySteps: There are more than `_MAX_MEASURED` values.
    """
    level: list[tuple[JsonValue, int]] = [(value, 0)]
    longest = 0
    depth = -1
    seen = 0
    # Level by level and without recursion: the value may be nested more deeply than Python can call.
    while level:
        depth += 1
        seen += len(level)
        if seen > _MAX_MEASURED:
            raise TooManySteps
        inner: list[tuple[JsonValue, int]] = []
        for node, length in level:
            longest = max(longest, length)
            if isinstance(node, dict):
                for name, member in node.items():
                    inner.append((member, length + len(name)))
            elif isinstance(node, list):
                inner += [(item, length) for item in node]
        level = inner
    return longest, depth
