"""The cost of `unevaluatedProperties` and `unevaluatedItems`: how often a validator checks the same value again.

To know what is evaluated, a validator checks once more which branches of the subschema take the value. A branch that
does so itself checks its own branches twice each time, so the work grows exponentially with the levels, and twenty
levels are a small schema. Through a reference of a subschema to itself it grows with the levels of the value.

Knows subschemas as a graph. An edge is repeating where its end is checked again; where one is part of a cycle, the
schema repeats with each level of a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from toolweave.schema._limits import (
    EACH_ITEM,
    EACH_ITEM_IN_ORDER,
    EACH_MEMBER,
    REFERENCES,
    TooManySteps,
    branches_of,
    containers,
    finder,
    listed,
    named,
)

_KEYWORDS = ("unevaluatedProperties", "unevaluatedItems")
_REPEATED_LISTS = ("allOf", "anyOf", "oneOf")
_MOST_LEVELS = 100  # beyond it every check is too much


class Repeats:
    """The number of checks of one value against one subschema, for schemas with `unevaluatedProperties` or its like.

    Attributes:
        levels: Levels at which checks are repeated, one in another, for every value.
        by_level: The same for each level of nesting of a value; 0 for a schema without such references to itself.
    """

    __slots__ = ("by_level", "levels")

    def __init__(self, levels: int = 0, by_level: int = 0) -> None:
        self.levels = levels
        self.by_level = by_level

    def of(self, instance: Any) -> int:  # any JSON value
        """Return how often, at most, the innermost subschema is checked: 2.5 times for each level, as measured."""
        levels = self.levels + (self.by_level * (1 + _depth(instance)) if self.by_level else 0)
        return 5 ** min(levels, _MOST_LEVELS) // 2 ** min(levels, _MOST_LEVELS)


NEVER = Repeats()


def repeats_of(schema: Mapping[str, Any]) -> Repeats:
    """Return how often checks against a schema are repeated."""
    level: list[Any] = [schema]
    while level:
        if any(keyword in node for node in level for keyword in _KEYWORDS if isinstance(node, dict)):
            break
        level = containers(level)
    else:
        return NEVER
    graph = _Graph(dict(schema))
    try:
        graph.visit(graph.root)
        by_level = graph.by_level() if graph.is_cyclic else 0
    except (TooManySteps, RecursionError):  # a reference that is not found, or a chain of very many
        return Repeats(_MOST_LEVELS)
    return Repeats(graph.levels[id(graph.root)], by_level)


class _Graph:
    """Subschemas, and the levels of repeated checks below each: Tarjan's algorithm, which finds cycles on the way."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.levels: dict[int, int] = {}
        self.edges: dict[int, list[tuple[dict[str, Any], bool, bool]]] = {}
        """Of each subschema those it leads to, whether they apply to the same value, and whether that is repeated."""
        self.is_cyclic = False
        self._find = finder(root)
        self._stack: list[int] = []
        self._lowest: dict[int, int] = {}
        self._component: dict[int, int] = {}
        self._in_place: dict[int, int] = {}

    def visit(self, node: dict[str, Any]) -> int:
        """Visit a subschema and all it leads to; return the least number of those on the stack that it leads to."""
        own = number = self._lowest[id(node)] = len(self._lowest)
        at = len(self._stack)
        self._stack.append(id(node))
        self.edges[id(node)] = edges = list(_edges(self._find, node))
        for target, _, _ in edges:
            if id(target) not in self._lowest:
                number = min(number, self.visit(target))
            elif id(target) not in self._component:
                number = min(number, self._lowest[id(target)])
        self._lowest[id(node)] = number
        if number == own:
            members = self._stack[at:]
            del self._stack[at:]
            self._close(members, own)
        return number

    def _close(self, members: list[int], component: int) -> None:
        self._component |= dict.fromkeys(members, component)
        levels = 0
        for member in members:
            for target, _, repeated in self.edges[member]:
                if self._component[id(target)] == component:
                    self.is_cyclic |= repeated
                else:
                    levels = max(levels, self.levels[id(target)] + repeated)
        self.levels |= dict.fromkeys(members, levels)

    def by_level(self) -> int:
        """Return the most levels of repeated checks at one level of a value."""
        contains = any(again and not same_value for edges in self.edges.values() for _, same_value, again in edges)
        return max(map(self._at_one_value, self.edges)) + contains

    def _at_one_value(self, node: int) -> int:
        if node not in self._in_place:
            self._in_place[node] = 0  # a reference to itself ends here
            inner = [
                self._at_one_value(id(target)) + repeated
                for target, same_value, repeated in self.edges[node]
                if same_value
            ]
            self._in_place[node] = max(inner, default=0)
        return self._in_place[node]


def _edges(find: Any, node: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool, bool]]:
    again = any(keyword in node for keyword in _KEYWORDS)
    branches = branches_of(find, node)
    repeated: set[int] = set()
    if again:
        repeated = {id(one) for keyword in _REPEATED_LISTS for one in listed(node, keyword)}
        repeated |= {id(find(node[keyword])) for keyword in REFERENCES if keyword in node} | {id(node.get("if"))}
    inner = [*named(node, "properties").values(), *named(node, "patternProperties").values()]
    inner += (node[keyword] for keyword in (*EACH_MEMBER, *EACH_ITEM) if keyword in node and keyword != "contains")
    inner += (one for keyword in EACH_ITEM_IN_ORDER for one in listed(node, keyword))
    yield from ((one, True, id(cast("Any", one)) in repeated) for one in branches if isinstance(one, dict))
    yield from ((one, False, False) for one in inner if isinstance(one, dict))
    contained = node.get("contains")
    if isinstance(contained, dict):
        yield cast("dict[str, Any]", contained), False, again


def _depth(instance: Any) -> int:
    depth = 0
    level = containers([[instance]])
    while level:
        depth += 1
        level = containers(level)
    return depth
