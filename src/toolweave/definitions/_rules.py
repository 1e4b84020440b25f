"""Rules applied to the definitions of a toolset: each in its turn, then the names made unique.

Pure. A tool stays the tool it was: its own name and its server do not change, and the definition before each rule is
kept in `ToolSpec.shape`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from toolweave._option_checks import decided
from toolweave._value import Value
from toolweave.config import ArgumentRule, ShapeRule, reveal
from toolweave.definitions._schema_rules import ArgumentChange, declared_arguments, reshaped
from toolweave.errors import SchemaError, shortened
from toolweave.schema.problems import nearest
from toolweave.tools import AppliedRule, ToolSpec, aliases
from toolweave.tools.selection import fits, hinted, names_of, tags_of

_MAX_NAME = 128
_SHOWN = 120


class ShapedTools(Value, frozen=True, kw_only=True):
    """The outcome of rules for the tools of a toolset.

    Attributes:
        offered: For each tool that is offered, the definition that came and the one that is offered.
        hidden: The reasons for the others, by their names in the toolset.
        problems: Rules that could not be applied as they are, in words.
        unused: Rules, or parts of them, that fit nothing, in words.
    """

    offered: tuple[tuple[ToolSpec, ToolSpec], ...] = ()
    hidden: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    problems: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def selects(rule: ShapeRule, spec: ToolSpec) -> re.Match[str] | bool:
    """Return whether a rule is for a tool; the match of its regular expression where it has one."""
    if rule.servers and not fits(rule.servers, spec.server):
        return False
    if rule.tools and not any(fits(rule.tools, name) for name in names_of(spec)):
        return False
    if rule.annotations and not hinted(rule.annotations, spec):
        return False
    if rule.tags and tags_of(spec).isdisjoint(rule.tags):
        return False
    if rule.predicate is not None and not decided("predicate", rule.predicate(spec)):
        return False
    if rule.regex is None:
        return True
    for name in names_of(spec):
        # The bound keeps a pattern that backtracks from a name that a server made long on purpose.
        match = re.fullmatch(rule.regex, name) if len(name) <= _MAX_NAME else None
        if match:
            return match
    return False


class Shaper:
    """Applies rules to whole lists of definitions; one that has not changed gives the very same object.

    Args:
        rules: The rules, in their order.
        where: The place of the rules in messages: `shape` makes `shape[0]`.
        prefix: Put before every name already; a rule's `name` goes behind it.
    """

    def __init__(self, rules: Sequence[ShapeRule], *, where: str = "shape", prefix: str = "") -> None:
        self._rules = [(f"{where}[{index}]", rule) for index, rule in enumerate(rules)]
        self._prefix = prefix
        self._known: dict[tuple[str | None, str], tuple[ToolSpec, ToolSpec]] = {}

    def shape(self, specs: Iterable[ToolSpec]) -> ShapedTools:
        """Apply the rules to all tools of a toolset.

        A tool whose arguments cannot be changed as a rule wants is left out: bound arguments must not be left open.
        """
        run = _RuleRun(self._rules, self._prefix)
        shaped: list[tuple[ToolSpec, ToolSpec]] = []
        for spec in specs:
            made = run.shaped(spec)
            if made is not None:
                shaped.append((spec, made))
        pairs = run.with_unique_names(shaped)
        known: dict[tuple[str | None, str], tuple[ToolSpec, ToolSpec]] = {}
        offered: list[tuple[ToolSpec, ToolSpec]] = []
        for spec, made in pairs:
            before = self._known.get((spec.server, spec.name))
            # A definition that did not change stays the same object: others cache by its identity.
            if before is not None and before[0] is spec and _same(before[1], made):
                kept = before
            else:
                kept = (spec, made)
            known[spec.server, spec.name] = kept
            offered.append(kept)
        self._known = known
        return ShapedTools(
            offered=tuple(offered), hidden=run.hidden, problems=tuple(run.messages), unused=tuple(run.unused())
        )


def _same(before: ToolSpec, now: ToolSpec) -> bool:
    try:
        return before is now or before == now
    except RecursionError:
        # Nested so deeply that it cannot be compared.
        return False


class _RuleRun:
    """One application of the rules to a list: their changes, and the names that they did not find."""

    def __init__(self, rules: Sequence[tuple[str, ShapeRule]], prefix: str) -> None:
        self.hidden: dict[str, str] = {}
        self._rules = rules
        self._prefix = prefix
        self.messages: list[str] = []
        self._used: set[str] = set()
        self._found: set[tuple[str, str]] = set()
        self._arguments: dict[str, set[str]] = {}

    def shaped(self, spec: ToolSpec) -> ToolSpec | None:
        """Return a definition after all rules; None where one of them hides it."""
        made = spec
        for where, rule in self._rules:
            try:
                match = selects(rule, made)
            except Exception as exc:
                # Boundary: user code; what cannot be judged is not offered.
                self.hidden[spec.name] = f"the predicate of rule {where} raised {type(exc).__name__}"
                self.messages.append(f"tool {spec.original_name!r} is left out: {self.hidden[spec.name]}")
                return None
            if not match:
                continue
            self._used.add(where)
            if rule.hide:
                self.hidden[spec.name] = f"rule {_called(where, rule)} hides it"
                return None
            try:
                made = self._apply(where, rule, made, match)
            except (SchemaError, RecursionError) as exc:
                if isinstance(exc, SchemaError):
                    why = exc.message
                else:
                    why = "is nested too deeply"
                text = f"rule {_called(where, rule)} cannot be applied to its schema, which {why}"
                self.hidden[spec.name] = text
                self.messages.append(f"tool {spec.original_name!r} is left out: {text}")
                return None
        return made

    def _apply(self, where: str, rule: ShapeRule, spec: ToolSpec, match: re.Match[str] | bool) -> ToolSpec:
        changes: dict[str, Any] = {}
        said: list[str] = []
        if rule.name is not None:
            if isinstance(match, bool):
                name = rule.name
            else:
                name = match.expand(rule.name)
            # A replacement may repeat a group of a name that the server chose.
            name = self._prefix + name[:_MAX_NAME]
            if name != spec.name:
                changes["name"] = name
                said.append(f"named {name!r} instead of {spec.name!r}")
        for member in ("title", "description"):
            text = getattr(rule, member)
            if text is not None and text != getattr(spec, member):
                changes[member] = text
                said.append(f"{member} {shortened(text, _SHOWN)!r}")
        if rule.arguments:
            arguments = self._arguments_of(where, rule, spec)
        else:
            arguments = {}
        if arguments:
            schema = reshaped(spec.input_schema, {name: _change(name, one) for name, one in arguments.items()})
            changes["input_schema"] = schema
            said += [f"argument {name!r}: {one.summary(name)}" for name, one in arguments.items()]
        if not changes:
            return spec
        return spec.replace(
            **changes, shape=AppliedRule(before=spec, rule=where, changes=tuple(said), arguments=arguments)
        )

    def _arguments_of(self, where: str, rule: ShapeRule, spec: ToolSpec) -> dict[str, ArgumentRule]:
        """Return the rules for arguments that the tool has."""
        declared = declared_arguments(spec.input_schema)
        self._arguments.setdefault(where, set()).update(declared)
        found: dict[str, ArgumentRule] = {}
        names = set(declared)  # those that stay
        for name, one in rule.arguments.items():
            if name in declared:
                found[name] = one
                self._found.add((where, name))
                if one.removed or one.name is not None:
                    names.discard(name)
        for name, one in list(found.items()):
            if one.name != name and one.name in names:
                self.messages.append(
                    f"rule {where}: argument {name!r} of tool {spec.original_name!r} keeps its name: "
                    f"the tool has another argument {one.name!r}"
                )
                found[name] = one.replace(name=None)
        return {name: one for name, one in found.items() if one != ArgumentRule()}

    def with_unique_names(self, pairs: list[tuple[ToolSpec, ToolSpec]]) -> list[tuple[ToolSpec, ToolSpec]]:
        """Return the definitions, each with another name: of two tools renamed alike the later keeps its old name.

        Args:
            pairs: Definitions as the server has them, and as the rules make them.
        """
        # Ends: each round gives one renamed tool its old name back, and none is renamed again.
        while clash := self._clash(pairs):
            index, other = clash
            spec, made = pairs[index]
            where = _renamed_by(made)
            self.messages.append(
                f"rule {where}: tool {spec.original_name!r} keeps the name {spec.name!r}: "
                f"{made.name!r} is that of tool {pairs[other][0].original_name!r}"
            )
            pairs[index] = spec, made.replace(name=spec.name)
        names = {made.name: spec for spec, made in pairs}
        return [(spec, _with_aliases(spec, made, names, self._prefix)) for spec, made in pairs]

    def _clash(self, pairs: list[tuple[ToolSpec, ToolSpec]]) -> tuple[int, int] | None:
        """Return a renamed tool whose name another has, and that other one."""
        holders: dict[str, int] = {}
        for index, (spec, made) in enumerate(pairs):
            if spec.name == made.name:
                holders[made.name] = index
        for index, (spec, made) in enumerate(pairs):
            other = holders.setdefault(made.name, index)
            if other != index and spec.name != made.name:
                return index, other
        return None

    def unused(self) -> Iterable[str]:
        """Yield the rules, and parts of them, that fit nothing."""
        for where, rule in self._rules:
            if where not in self._used:
                yield f"rule {_called(where, rule)} fits no tool"
                continue
            known = self._arguments.get(where, set())
            for name in rule.arguments:
                if (where, name) not in self._found:
                    near = nearest(name, sorted(known), n=1)
                    hint = f"; did you mean {near[0]!r}?" if near else ""
                    yield f"rule {_called(where, rule)}: no tool that it fits has an argument {name!r}{hint}"


def _called(where: str, rule: ShapeRule) -> str:
    """Return a rule as people find it: its position and its condition."""
    words = list(map(repr, rule.tools))
    if rule.regex is not None:
        words.append(f"regex {rule.regex!r}")
    words += map("tag {!r}".format, rule.tags)
    words += [f"{name} {str(value).lower()}" for name, value in rule.annotations.items()]
    words += map("server {!r}".format, rule.servers)
    if not words:
        return shortened(where, 2 * _SHOWN)
    return shortened(f"{where} ({', '.join(words)})", 2 * _SHOWN)


def _change(name: str, rule: ArgumentRule) -> ArgumentChange:
    if rule.removed:
        constant: Any = rule.default if not rule.sources else rule.value
        never = not rule.sources and constant is msgspec.UNSET
        return ArgumentChange(name=None, sent="never" if never else "always", value=reveal(cast("Any", constant)))
    optional = rule.default is not msgspec.UNSET
    return ArgumentChange(
        name=rule.name or name,
        sent="default" if optional else "given",
        description=rule.description,
        value=rule.default,
    )


def _renamed_by(spec: ToolSpec) -> str:
    while spec.shape is not None:
        if spec.shape.before.name != spec.name:
            return spec.shape.rule
        spec = spec.shape.before
    return ""


def _with_aliases(spec: ToolSpec, made: ToolSpec, names: Mapping[str, ToolSpec], prefix: str) -> ToolSpec:
    """Return a definition with the aliases of both names, except those that mean another tool now."""
    if made.name == spec.name or spec.server is None:
        return made
    own = aliases(spec.server, made.name.removeprefix(prefix))
    other = names.get(prefix + spec.original_name)
    kept = spec.aliases if other is None or other is spec else ()
    return made.replace(aliases=tuple(dict.fromkeys((*own, *kept))))
