"""Arguments as models give them, made into those that a tool's producer takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import msgspec

from toolweave._json_types import JsonObject
from toolweave._value import Value
from toolweave.config import ArgumentRule, reveal
from toolweave.errors import ErrorKind, ToolError
from toolweave.schema import Problem
from toolweave.schema.fitting import fitted_or_same
from toolweave.schema.validate import UsableValidators
from toolweave.tools import AppliedRule, CallContext, ToolSpec
from toolweave.tools.result import invalid_input
from toolweave.tools.selection import member_of

_NOTHING: Any = msgspec.UNSET


class CallFacts(Value, frozen=True, kw_only=True):
    """The facts about a call that rules may send.

    Attributes:
        principal: The caller's principal, or None.
        claims: The claims of the caller's token.
        state: The state of the call.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"claims", "state"})
    principal: str | None = None
    claims: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    state: Any = None


Facts: TypeAlias = CallFacts | CallContext[Any]
"""The context of a call, or the parts of it that rules may send."""


class ShapedCalls:
    """Makes the arguments of calls of shaped tools, checked before and after.

    Args:
        validate: Whether arguments are checked against the schemas; bound arguments cannot be given in either case.
        repair: Whether arguments that nearly fit are made to fit, before a rule reads them.
    """

    def __init__(self, *, validate: bool = True, repair: bool = True) -> None:
        self._validate = validate
        self._repair = repair
        self._validators = UsableValidators()

    def arguments(
        self,
        spec: ToolSpec,
        given: Mapping[str, Any],
        facts: Facts,
        *,
        until: ToolSpec | None = None,
    ) -> Mapping[str, Any]:
        """Return the arguments to send.

        Args:
            spec: The shaped definition.
            given: The arguments as its schema has them.
            facts: The facts about the call.
            until: The definition whose arguments are wanted; by default the one that no rule has shaped.

        Raises:
            ToolError: They do not fit the schema, one of them is not the model's to give, or a value that a rule sends
                is not there. Nothing that a rule sends is shown.
        """
        rules = _rules(spec, until)
        if rules:
            _check_names(spec, rules[0], given)
        given = self._fitted(spec.input_schema, given)
        problems = self._problems(spec.input_schema, given)
        if problems:
            raise invalid_input(spec.name, problems).require_error()
        if not rules:
            return given
        arguments = given
        for rule in rules:
            if rule is not rules[0]:
                _check_names(spec, rule, arguments)
            arguments = _sent(spec.name, rule, arguments, facts)
        wrong = self._problems(rules[-1].before.input_schema, arguments)
        if wrong:
            raise invalid_input(spec.name, _as_given(rules, wrong)).require_error()
        return arguments

    def _fitted(self, schema: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._validate and self._repair:
            check = self._validators.of(schema)
        else:
            check = None
        if check is None:
            return given
        return fitted_or_same(check, given)

    def _problems(self, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[Problem, ...]:
        if not self._validate:
            return ()
        check = self._validators.of(schema)
        if check is None or check.is_valid(arguments):
            return ()
        return check.problems(arguments)


def _rules(spec: ToolSpec, until: ToolSpec | None) -> list[AppliedRule]:
    """Return the rules that changed arguments, the last first."""
    found: list[AppliedRule] = []
    while spec.shape is not None and spec is not until:
        if spec.shape.arguments:
            found.append(spec.shape)
        spec = spec.shape.before
    return found


def _check_names(spec: ToolSpec, rule: AppliedRule, given: JsonObject) -> None:
    problems = _refused(rule, given)
    if problems:
        raise invalid_input(spec.name, problems).require_error()


def _refused(rule: AppliedRule, given: Mapping[str, Any]) -> list[Problem]:
    """Return the arguments that a model gave under names that are not for it."""
    taken = {change.name for change in rule.arguments.values() if change.name is not None}
    problems: list[Problem] = []
    for name, change in rule.arguments.items():
        if name not in given or name in taken:
            continue
        if change.name is None and not change.removed:
            continue
        text = "is set by the configuration, not by you; leave it out"
        if not change.removed:
            text = f"is not known; it is named {change.name!r} here"
        problems.append(Problem(path=name, message=text))
    return problems


def _sent(tool: str, rule: AppliedRule, given: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    own = {change.name: name for name, change in rule.arguments.items() if change.name is not None}
    sent = {own.get(name, name): value for name, value in given.items()}
    for name, change in rule.arguments.items():
        if not change.removed and name in sent:
            continue
        value = _value(tool, change, facts)
        if value is not _NOTHING:
            sent[name] = value
    return sent


def _value(tool: str, change: ArgumentRule, facts: Facts) -> Any:
    """Return the value to send for an argument that the model did not give; `UNSET` for none.

    Raises:
        ToolError: The call does not have it, and it has no default.
    """
    if change.value is not _NOTHING:
        return reveal(change.value)
    if not change.sources:
        return reveal(change.default)
    source = change.sources[0]
    found = _READERS[source](change, facts)
    if found is None or found is _NOTHING:
        if change.default is _NOTHING:
            raise ToolError(f"tool {tool!r} {_LACKS[source](change)}", kind=ErrorKind.DENIED)
        return reveal(change.default)
    return found


_READERS: dict[str, Callable[[ArgumentRule, Facts], Any]] = {
    "from": lambda change, facts: facts.principal,
    "claim": lambda change, facts: member_of(facts.claims, change.claim or ""),
    "state": lambda change, facts: member_of(facts.state, change.state or ""),
    "env": lambda change, facts: os.environ.get(change.env or ""),
}
_LACKS: dict[str, Callable[[ArgumentRule], str]] = {
    "from": lambda change: "needs to know its caller, and this call has no principal; sign in first",
    "claim": lambda change: f"needs the claim {change.claim!r} of its caller, and this call has none; sign in first",
    "state": lambda change: f"needs {change.state!r} of the call's state, and this call has none",
    "env": lambda change: f"needs the environment variable {change.env!r}, which is not set",
}


def _as_given(rules: list[AppliedRule], problems: tuple[Problem, ...]) -> list[Problem]:
    """Return problems of the sent arguments as a model may read them: its names, and no value that a rule sends."""
    return [_one_as_given(rules, problem) for problem in problems]


def _one_as_given(rules: list[AppliedRule], problem: Problem) -> Problem:
    head = problem.path
    rest = ""
    for mark in ".[":
        if mark in head:
            head, rest = head[: head.index(mark)], problem.path[head.index(mark) :]
    for rule in reversed(rules):
        change = rule.arguments.get(head)
        if change is None:
            continue
        if change.removed or change.default is not _NOTHING:
            return Problem(path="", message="the arguments that the configuration adds do not fit; ask its operator")
        head = change.name or head
    if not head:
        return Problem(path="", message="these arguments do not fit together with what the configuration sends")
    return Problem(path=head + rest, message=problem.message)
