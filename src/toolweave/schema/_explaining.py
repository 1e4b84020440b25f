"""The cost of explaining why a value does not fit a schema, estimated before a validator collects the errors.

A check for validity ends at the first error, and looks nothing up twice. Collecting follows every path to a subschema,
and each error is an object with copies of the value it is about, of its place, and of what the keyword allows: n errors
of n allowed values each are n * n copies. So a path counts a step, an error some, and what is copied counts by its
size; texts count by their characters, since one name may be longer than a whole table.

The estimate must not be an attack itself: each subschema is read once, and counting ends at the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from toolweave.schema._limits import (
    EACH_ITEM,
    EACH_ITEM_IN_ORDER,
    EACH_MEMBER,
    TooManySteps,
    branches_of,
    finder,
    listed,
    named,
    own_steps,
)

MAX_STEPS_EXPLAINED = 50_000
"""Steps of collecting the errors of a value, which costs a hundred times as much as a yes or no."""

_MAX_PAIRS = 20_000
_STEPS_OF_AN_ERROR = 4
_MOST_MEASURED = 200_000
"""Values whose size is looked at, since they may be copied."""

_COPIED_IN_A_STEP = 2_000
"""Characters that are copied in the time of one step."""

_SIZE_OF_A_VALUE = 100
"""Characters that take as long to copy as one value."""

_COPIED_LIMITS = ("const", "not", "pattern")


def is_explainable(schema: Any, instance: Any) -> bool:  # any JSON values
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

    def __init__(self, node: dict[str, Any], find: Callable[[Any], Any], size: Callable[[Any], int]) -> None:
        self.node = node
        self.own = own_steps(node)
        self.asserted = len(node)
        self.limits = sum(size(node[keyword]) for keyword in _COPIED_LIMITS if keyword in node)
        options = listed(node, "enum")
        self.enum = size(options)
        self.options = frozenset(one for one in options if isinstance(one, str))
        self.required = frozenset(name for name in listed(node, "required") if isinstance(name, str))
        self.dependent = {
            name: frozenset(map(str, cast("list[Any]", names)))
            for keyword in ("dependentRequired", "dependencies")
            for name, names in named(node, keyword).items()
            if isinstance(names, list)
        }
        self.branches = branches_of(find, node)
        self.properties = named(node, "properties")
        self.names = node.get("propertyNames")
        members = [node[keyword] for keyword in EACH_MEMBER if keyword in node and keyword != "propertyNames"]
        self.every_member = [*named(node, "patternProperties").values(), *members]
        self.every_item = [node[keyword] for keyword in EACH_ITEM if keyword in node]
        self.in_order = [listed(node, keyword) for keyword in EACH_ITEM_IN_ORDER]

    def inside(self, value: Any) -> Iterator[tuple[Any, Any]]:
        """Yield each subschema that applies to a value inside of `value`, or to a name, with that value or name."""
        if isinstance(value, dict):
            for name, member in cast("dict[str, Any]", value).items():
                yield self.properties.get(name), member
                if self.names is not None:
                    yield self.names, name
                yield from ((inner, member) for inner in self.every_member)
        elif isinstance(value, list):
            for number, item in enumerate(cast("list[Any]", value)):
                yield from ((inner, item) for inner in self.every_item)
                yield from ((inner[number], item) for inner in self.in_order if number < len(inner))


class _Estimate:
    def __init__(self, schema: Any, instance: Any) -> None:
        self._find = finder(schema)
        self._keywords: dict[int, _Keywords] = {}
        self._sizes: dict[int, int] = {}
        self._measured = self._visited = 0
        self._known: dict[tuple[int, int], int] = {}
        in_schema, _ = _longest_place(schema)
        in_instance, depth = _longest_place(instance)
        place = in_instance + in_schema * (1 + depth)
        self._place = place if place > _COPIED_IN_A_STEP else 0
        """Characters of the longest place that an error may name, in the value and in the schema; 0 for few."""

    def steps(self, node: Any, value: Any) -> int:
        """Return the steps of explaining a value by a subschema.

        Raises:
            TooManySteps: More than `MAX_STEPS_EXPLAINED`.
        """
        self._visited += 1
        if self._visited > MAX_STEPS_EXPLAINED:
            raise TooManySteps
        if not isinstance(node, dict):
            return 1
        node = cast("dict[str, Any]", node)
        key = (id(node), id(value))
        if key in self._known:
            return self._known[key] + 1
        if len(self._known) > _MAX_PAIRS:
            raise TooManySteps
        self._known[key] = 0  # a reference to itself ends here
        keywords = self._keywords.get(id(node))
        if keywords is None:
            keywords = self._keywords[id(node)] = _Keywords(node, self._find, self._size)
        total = self._own(keywords, value)
        for inner, child in _pairs(keywords, value):
            total += self.steps(inner, child)
            if total > MAX_STEPS_EXPLAINED:
                raise TooManySteps
        self._known[key] = total
        return total

    def _own(self, keywords: _Keywords, value: Any) -> int:
        """Return the steps of the errors that the keywords of a subschema itself may have with a value."""
        errors = keywords.asserted
        copied = keywords.limits
        steps = keywords.own
        if keywords.enum and not (isinstance(value, str) and value in keywords.options):
            copied += keywords.enum
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            missing = self._missing(keywords.required, members)
            for name, names in keywords.dependent.items():
                missing += self._missing(names, members) if name in members else 0
            errors += missing
            steps += missing * _STEPS_OF_AN_ERROR
            if keywords.names is not None:
                errors += len(members)
        copied += errors * (self._size(cast("Any", value)) + self._place)
        return steps + copied // _COPIED_IN_A_STEP

    def _missing(self, names: frozenset[str], members: dict[str, Any]) -> int:
        """Return the number of names that are missing, long ones counted by their length."""
        missing = names - members.keys()
        if len(missing) > MAX_STEPS_EXPLAINED:
            raise TooManySteps
        return sum(1 + len(name) // _COPIED_IN_A_STEP for name in missing)

    def _size(self, value: Any) -> int:
        """Return the size of a value in characters, as far as copying it is concerned."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, (dict, list)):
            return 0
        found = self._sizes.get(id(cast("Any", value)))
        if found is not None:
            return found
        values = cast("Iterable[Any]", value.values() if isinstance(value, dict) else value)
        length = len(cast("list[Any]", value))
        self._measured += length
        if self._measured > _MOST_MEASURED:
            raise TooManySteps
        size = length * _SIZE_OF_A_VALUE + sum(map(self._size, values))
        if isinstance(value, dict):
            size += sum(map(len, cast("dict[str, Any]", value)))
        self._sizes[id(cast("Any", value))] = size
        return size


def _pairs(keywords: _Keywords, value: Any) -> Iterator[tuple[Any, Any]]:
    yield from ((branch, value) for branch in keywords.branches)
    yield from keywords.inside(value)


def _longest_place(value: Any) -> tuple[int, int]:
    """Return the characters of the longest path to a value inside of a value, and the number of levels.

    Raises:
        TooManySteps: There are more than `_MOST_MEASURED` values.
    """
    level: list[tuple[Any, int]] = [(value, 0)]
    longest = depth = seen = 0
    while level:
        seen += len(level)
        if seen > _MOST_MEASURED:
            raise TooManySteps
        inner: list[tuple[Any, int]] = []
        for node, length in level:
            if isinstance(node, dict):
                members = cast("dict[str, Any]", node)
                inner += ((member, length + len(name)) for name, member in members.items())
            elif isinstance(node, list):
                inner += ((item, length) for item in cast("list[Any]", node))
        longest = max(longest, max((length for _, length in inner), default=0))
        depth += bool(inner)
        level = inner
    return longest, depth
