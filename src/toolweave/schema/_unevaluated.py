"""The cost of `unevaluatedProperties` and `unevaluatedItems`: how often a validator checks the same value again.

To know what is evaluated, a validator checks once more which branches of the subschema take the value. A branch that
does so itself checks its own branches twice each time, so the work grows exponentially with the levels, and twenty
levels are a small schema. Through a reference of a subschema to itself it grows with the levels of the value.

Knows subschemas as a graph. An edge is repeating where its end is checked again; where one is part of a cycle, the
schema repeats with each level of a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from toolweave.schema._json_values import JsonValue, SchemaNode, SchemaView, listed, named
from toolweave.schema.limits import (
    EACH_ITEM,
    EACH_MEMBER,
    REFERENCES,
    Find,
    TooManySteps,
    branches_of,
    containers,
    finder,
    present,
)

_KEYWORDS = ("unevaluatedProperties", "unevaluatedItems")
_REPEATED_LISTS = ("allOf", "anyOf", "oneOf")
_EACH_UNCOUNTED_ITEM = tuple(keyword for keyword in EACH_ITEM if keyword != "contains")
_MAX_LEVELS = 100
"""Levels beyond which every check is too much."""


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

    def max_checks(self, instance: JsonValue) -> int:
        """Return how often, at most, the innermost subschema is checked: 2.5 times for each level, as measured."""
        levels = self.levels
        if self.by_level:
            levels += self.by_level * (1 + _depth(instance))
        levels = min(levels, _MAX_LEVELS)
        # 2.5 ** levels in whole numbers: a float would lose the exactness that comparisons with bounds need.
        return 5**levels // 2**levels


NEVER = Repeats()


def repeats_of(schema: SchemaView) -> Repeats:
    """Return how often checks against a schema are repeated."""
    root = dict(schema)
    # The graph costs as much as compiling the schema, and few schemas have such keywords: they are looked for first.
    if not _has_unevaluated(root):
        return NEVER
    graph = _Graph(root)
    by_level = 0
    try:
        graph.visit(graph.root)
        if graph.is_cyclic:
            by_level = graph.by_level()
    except (TooManySteps, RecursionError):
        # A reference that is not found, or a chain of very many.
        return Repeats(_MAX_LEVELS)
    return Repeats(graph.levels[id(graph.root)], by_level)


def _has_unevaluated(root: SchemaNode) -> bool:
    level = containers([[root]])
    while level:
        if any(isinstance(node, dict) and _repeats(node) for node in level):
            return True
        level = containers(level)
    return False


def _repeats(node: SchemaNode) -> bool:
    """Return whether a validator checks the branches of a subschema twice, to find their evaluated members."""
    return not node.keys().isdisjoint(_KEYWORDS)


class _Edge(NamedTuple):
    """A subschema that another one leads to.

    Attributes:
        target: The subschema.
        same_value: True if it applies to the same value as the other one.
        repeated: True if it is checked again.
    """

    target: SchemaNode
    same_value: bool
    repeated: bool


class _Graph:
    """Subschemas, and the levels of repeated checks below each: Tarjan's algorithm, which finds cycles on the way.

    Subschemas have no names, so they are known by their ids; the root holds all of them while the graph is used.
    """

    def __init__(self, root: SchemaNode) -> None:
        self.root = root
        self.levels: dict[int, int] = {}
        self.edges: dict[int, list[_Edge]] = {}
        self.is_cyclic = False
        self._find = finder(root)
        self._stack: list[int] = []
        self._lowest: dict[int, int] = {}
        self._component: dict[int, int] = {}
        self._in_place: dict[int, int] = {}

    def visit(self, node: SchemaNode) -> int:
        """Visit a subschema and all it leads to; return the least number of those on the stack that it leads to."""
        own = number = self._lowest[id(node)] = len(self._lowest)
        at = len(self._stack)
        self._stack.append(id(node))
        self.edges[id(node)] = edges = list(_edges(self._find, node))
        for edge in edges:
            target = id(edge.target)
            if target not in self._lowest:
                number = min(number, self.visit(edge.target))
            elif target not in self._component:
                # Still on the stack: an edge back, which closes a cycle.
                number = min(number, self._lowest[target])
        self._lowest[id(node)] = number
        # No edge leads further back than to the node itself: all above it on the stack is one component.
        if number == own:
            members = self._stack[at:]
            del self._stack[at:]
            self._close(members, own)
        return number

    def _close(self, members: list[int], component: int) -> None:
        self._component |= dict.fromkeys(members, component)
        levels = 0
        for member in members:
            for edge in self.edges[member]:
                target = id(edge.target)
                if self._component[target] == component:
                    self.is_cyclic |= edge.repeated
                else:
                    levels = max(levels, self.levels[target] + edge.repeated)
        self.levels |= dict.fromkeys(members, levels)

    def by_level(self) -> int:
        """Return the most levels of repeated checks at one level of a value."""
        contains = False
        for edges in self.edges.values():
            contains = contains or any(edge.repeated and not edge.same_value for edge in edges)
        return max(map(self._at_one_value, self.edges)) + contains

    def _at_one_value(self, node: int) -> int:
        if node not in self._in_place:
            # A reference to itself ends here.
            self._in_place[node] = 0
            levels = 0
            for edge in self.edges[node]:
                if edge.same_value:
                    levels = max(levels, self._at_one_value(id(edge.target)) + edge.repeated)
            self._in_place[node] = levels
        return self._in_place[node]


def _edges(find: Find, node: SchemaNode) -> Iterator[_Edge]:
    repeated: set[int] = set()
    if _repeats(node):
        for keyword in _REPEATED_LISTS:
            repeated |= set(map(id, listed(node, keyword)))
        repeated |= set(map(id, map(find, present(node, REFERENCES))))
        repeated.add(id(node.get("if")))
    for branch in branches_of(find, node):
        if isinstance(branch, dict):
            yield _Edge(branch, same_value=True, repeated=id(branch) in repeated)
    inner = [*named(node, "properties").values(), *named(node, "patternProperties").values()]
    inner += present(node, (*EACH_MEMBER, *_EACH_UNCOUNTED_ITEM))
    inner += [*listed(node, "prefixItems"), *listed(node, "items")]
    for one in inner:
        if isinstance(one, dict):
            yield _Edge(one, same_value=False, repeated=False)
    contained = node.get("contains")
    if isinstance(contained, dict):
        yield _Edge(contained, same_value=False, repeated=_repeats(node))


def _depth(instance: JsonValue) -> int:
    depth = 0
    level = containers([[instance]])
    while level:
        depth += 1
        level = containers(level)
    return depth
