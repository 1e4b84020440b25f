"""Rules that shape the definitions of tools, as a config states them: conditions and changes.

Values and their checks; the room `shaping` applies them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from toolweave._json_types import Json, JsonObject, as_sequence
from toolweave._masking import MASK
from toolweave._value import Value
from toolweave.config._secret import Secret, looks_secret, reveal
from toolweave.config.validation import (
    Check,
    check_choice,
    check_flag,
    check_object,
    check_text,
    check_texts,
    kind_of,
    suggestion,
)
from toolweave.errors import ConfigError

Rule = TypeVar("Rule")

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
"""A tool's name (MCP specification 2025-11-25, "Tool Names")."""
_GROUPS = re.compile(r"\\(?:\d|g<\w+>)")
_WILDCARDS = re.compile(r"[*?\[]")

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class ArgumentRule(Value, frozen=True, kw_only=True):
    """The changes to one argument of a tool.

    At most one of `value`, `from_`, `claim`, `state` and `env` gives its value; the argument is then removed from the
    schema and sent with every call, and a model that gives it is refused.

    Attributes:
        name: Its name for the model.
        description: Its description for the model.
        hide: Removed from the schema; sent only if there is a `default`.
        value: The constant that is sent.
        default: Makes it optional: sent where the model gives none. Beside a source, sent where that has nothing.
        from_: `"principal"`, the caller as the server's authorization found it. In a config: `from`.
        claim: The claim of the caller's token that is sent, such as `email`; a dotted name reads inside an object.
        state: The member of the call's state (`CallContext.state`) that is sent.
        env: The environment variable that is sent, read at each call.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"value", "default"})
    name: str | None = None
    description: str | None = None
    hide: bool = False
    value: Any = msgspec.UNSET
    default: Any = msgspec.UNSET
    from_: Literal["principal"] | None = None
    claim: str | None = None
    state: str | None = None
    env: str | None = None

    def __post_init__(self) -> None:
        _check_members(self, _ARGUMENT)
        sources = self.sources
        if len(sources) > 1:
            raise ConfigError(f"has {' and '.join(map(repr, sources))}, but one of them gives the value")
        if "value" in sources and self.default is not msgspec.UNSET:
            raise ConfigError("has 'value' and 'default', but 'value' is always sent; leave one of them out")
        is_shown_anew = self.name is not None or self.description is not None
        if is_shown_anew and self.removed:
            raise ConfigError("is removed from the schema, so 'name' and 'description' have no use")

    @property
    def sources(self) -> tuple[str, ...]:
        """The settings that give its value."""
        given = [] if self.value is msgspec.UNSET else ["value"]  # null is a value, too
        others = {"from": self.from_, "claim": self.claim, "state": self.state, "env": self.env}
        given += [name for name, setting in others.items() if setting is not None]
        return tuple(given)

    @property
    def removed(self) -> bool:
        """Whether models do not see it."""
        return self.hide or bool(self.sources)

    def to_mapping(self) -> Json:
        """Return it as a config states it."""
        return {name.rstrip("_"): value for name, value in _given(self)}

    def summary(self, argument: str) -> str:
        """Describe the change of an argument, without values that may be secret."""
        if self.sources:
            return f"always {self._described_source(argument)}"
        has_default = self.default is not msgspec.UNSET
        default = _shown(argument, self.default)
        if self.hide:
            if has_default:
                return f"always {default}"
            return "hidden, and not sent"
        changes: list[str] = []
        if self.name is not None:
            changes.append(f"named {self.name!r}")
        if self.description is not None:
            changes.append("described anew")
        if has_default:
            changes.append(f"optional, {default} by default")
        return ", ".join(changes)

    def _described_source(self, argument: str) -> str:
        if self.value is not msgspec.UNSET:
            return _shown(argument, self.value)
        if self.from_ is not None:
            return "the caller's principal"
        if self.claim is not None:
            return f"the claim {self.claim!r} of the caller"
        if self.state is not None:
            return f"{self.state!r} of the state"
        return f"the environment variable {self.env}"


class ShapeRule(Value, frozen=True, kw_only=True):
    r"""One rule: conditions on tools, and changes of their definitions. A condition that is not given fits all.

    Attributes:
        tools: Globs (`*`, `?`, `[...]`) of names: a tool's own, the one it is exposed by, or `server:tool`.
        regex: A regular expression that a whole name fits; its groups may stand in `name` as `\1` or `\g<word>`.
        servers: Globs of servers by their names in the config.
        annotations: Hints that a tool must have, such as `{"readOnlyHint": true}`. A missing hint counts as the
            specification says: not read-only, destructive, not idempotent, open world.
        tags: Tags of which a tool must have one, from its `_meta`.
        predicate: A function of the definition, from code alone.
        name: Its name for the model.
        title: Its readable title.
        description: Its description for the model.
        hide: Not offered, and not called either.
        arguments: Changes to its arguments, by their names as the rules before leave them.
    """

    tools: Sequence[str] = ()
    regex: str | None = None
    servers: Sequence[str] = ()
    annotations: Mapping[str, bool] = msgspec.field(default_factory=dict[str, bool])
    tags: Sequence[str] = ()
    predicate: Callable[[Any], bool] | None = None
    name: str | None = None
    title: str | None = None
    description: str | None = None
    hide: bool = False
    arguments: Mapping[str, ArgumentRule] = msgspec.field(default_factory=dict[str, ArgumentRule])

    def __post_init__(self) -> None:
        _check_members(self, _RULE)
        self._check_regex()
        self._check_predicate()
        has_new_text = any(text is not None for text in (self.name, self.title, self.description))
        changes = has_new_text or len(self.arguments) > 0
        if changes and self.hide:
            raise ConfigError("hides its tools, so it has no use for other changes", field="hide")
        if not changes and not self.hide:
            raise ConfigError("changes nothing; it needs name, title, description, hide or arguments")
        self._check_arguments()

    def _check_predicate(self) -> None:
        if self.predicate is None:
            return
        if not callable(self.predicate):
            raise ConfigError(f"'predicate' must be a function, not {kind_of(self.predicate)}", field="predicate")
        if inspect.iscoroutinefunction(self.predicate):
            # It is not awaited, and a coroutine counts as true.
            raise ConfigError("'predicate' must be a plain function, not an async one", field="predicate")

    def _check_regex(self) -> None:
        if self.regex is not None:
            try:
                re.compile(self.regex)
            except (re.error, RecursionError, OverflowError) as exc:
                raise ConfigError(f"'regex' is not a regular expression: {exc}", field="regex") from None
        if self.name is None:
            return
        if self.regex is None:
            plain = self.name
        else:
            plain = _GROUPS.sub("x", self.name)
        if _NAME.fullmatch(plain) is None:
            raise ConfigError(
                "'name' must be at most 128 letters, digits, '_', '-' and '.', and groups as \\1 beside 'regex'",
                field="name",
            )
        if self.regex is not None:
            self._check_groups(re.compile(self.regex), self.name)

    def _check_groups(self, pattern: re.Pattern[str], name: str) -> None:
        for group in _GROUPS.findall(name):
            key = group[3:-1] if group.startswith("\\g") else group[1:]
            if key.isdigit():
                exists = int(key) <= pattern.groups
            else:
                exists = key in pattern.groupindex
            if not exists:
                raise ConfigError(f"'name' has the group {group}, which 'regex' does not have", field="name")

    def _check_arguments(self) -> None:
        for argument, rule in check_object(self.arguments, "arguments").items():
            if not isinstance(rule, ArgumentRule):
                where = f"arguments.{argument}"
                raise ConfigError(f"{where!r} must be an ArgumentRule(...), not {kind_of(rule)}", field=where)
        taken: dict[str, str] = {}
        for argument, rule in self.arguments.items():
            if rule.name is None:
                continue
            if rule.name in taken:
                text = f"names two arguments {rule.name!r}: {taken[rule.name]!r} and {argument!r}"
                raise ConfigError(text, field=f"arguments.{argument}.name")
            taken[rule.name] = argument

    def to_mapping(self) -> Json:
        """Return it as a config states it; a function is shown by its type."""
        out = dict(_given(self))
        for member in ("tools", "servers", "tags"):
            if member in out:
                out[member] = list(out[member])
        if self.arguments:
            out["arguments"] = {name: rule.to_mapping() for name, rule in self.arguments.items()}
        return out


def _shown(argument: str, value: object) -> str:
    if looks_secret(argument) or isinstance(value, Secret):
        return MASK
    return repr(value)


def with_secrets(rules: Iterable[ShapeRule], sensitive: Iterable[Secret]) -> tuple[ShapeRule, ...]:
    """Return rules whose constants are secrets where they hold one of these values."""
    # The constants of a rule are sent to the server, so they stay what they are. As secrets they are only hidden from
    # views, logs and errors.
    known = list(map(reveal, sensitive))

    def hidden(value: object) -> object:
        if isinstance(value, str) and any(secret in value for secret in known):
            return Secret(value)
        return value

    out: list[ShapeRule] = []
    for rule in rules:
        arguments = {
            name: argument.replace(value=hidden(argument.value), default=hidden(argument.default))
            for name, argument in rule.arguments.items()
        }
        out.append(rule.replace(arguments=arguments))
    return tuple(out)


def _given(rule: Value) -> Iterable[tuple[str, Any]]:
    for name in rule.__struct_fields__:
        value = getattr(rule, name)
        # Null, false and "" are values that an argument may have. Of any other setting they mean that it is not given.
        is_given = value is not msgspec.UNSET if name in ("value", "default") else bool(value)
        if is_given:
            yield name, value


def read_shape(value: object, field: str) -> tuple[ShapeRule, ...]:
    """Return the rules of a config.

    Raises:
        ConfigError: A rule is wrong; its field is the path to the mistake.
    """
    items = as_sequence(value)
    if items is None:
        raise ConfigError(f"{field!r} must be a list of rules, not {kind_of(value)}", field=field)
    rules = [read_rule(item, f"{field}[{index}]") for index, item in enumerate(items)]
    _check_new_names(rules, field)
    return tuple(rules)


def _check_new_names(rules: Sequence[ShapeRule], field: str) -> None:
    """Check that no two rules give different tools one name; rules for some servers only may do so."""
    named: dict[str, int] = {}
    for index, rule in enumerate(rules):
        if rule.name is None or not _names_tools_literally(rule):
            continue
        first = named.setdefault(rule.name, index)
        tools = rules[first].tools
        is_for_some_servers = bool(rule.servers) or bool(rules[first].servers)
        if tools != rule.tools and not is_for_some_servers:
            where = f"{field}[{index}]"
            text = f"{where!r} names {rule.tools[0]!r} as '{field}[{first}]' names {tools[0]!r}: {rule.name!r}"
            raise ConfigError(text, field=f"{where}.name")


def _names_tools_literally(rule: ShapeRule) -> bool:
    """Return whether a rule is for tools that it names, not for all that fit a pattern or other conditions."""
    if rule.regex is not None or not rule.tools:
        return False
    return not any(map(_WILDCARDS.search, rule.tools))


def read_rule(item: object, where: str) -> ShapeRule:
    """Return a rule that is one, or written as in a config.

    Raises:
        ConfigError: It is wrong; its field is the path to the mistake.
    """
    if isinstance(item, ShapeRule):
        return item
    return _read_rule(check_object(item, where), where)


def _read_rule(given: JsonObject, where: str) -> ShapeRule:
    known = [name for name in ShapeRule.__struct_fields__ if name != "predicate"]
    found = dict(_members(given, where, known, _RULE))
    if "arguments" in given:
        arguments: dict[str, ArgumentRule] = {}
        for name, item in check_object(given["arguments"], f"{where}.arguments").items():
            arguments[str(name)] = _read_argument(item, f"{where}.arguments.{name}")
        found["arguments"] = arguments
    return _made(ShapeRule, found, where)


def _read_argument(item: object, where: str) -> ArgumentRule:
    known = ["from" if name == "from_" else name for name in _ARGUMENT]
    found = dict(_members(check_object(item, where), where, known, _ARGUMENT))
    return _made(ArgumentRule, found, where)


def _members(
    given: JsonObject, where: str, known: Sequence[str], checks: Mapping[str, Check]
) -> Iterable[tuple[str, object]]:
    for key, item in given.items():
        if key not in known:
            raise ConfigError(f"{where!r} has no setting {key!r}; {suggestion(key, known)}", field=f"{where}.{key}")
        member = "from_" if key == "from" else str(key)
        if member in checks:
            yield member, checks[member](item, f"{where}.{key}")


def _made(kind: Callable[..., Rule], found: JsonObject, where: str) -> Rule:
    try:
        return kind(**found)
    except ConfigError as error:
        field = f"{where}.{error.field}" if error.field else where
        raise ConfigError(f"{where!r} {error.message}", field=field) from None


def _check_members(rule: Value, checks: Mapping[str, Check]) -> None:
    """Check the members of a rule from code as those of a file are, and keep them in canonical form."""
    for name, check in checks.items():
        value = getattr(rule, name)
        if value is not None and value is not msgspec.UNSET:
            msgspec.structs.force_setattr(rule, name, check(value, name.rstrip("_")))


def _globs(value: object, field: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return check_texts(value, field)


def _annotations(value: object, field: str) -> dict[str, bool]:
    hints: dict[str, bool] = {}
    for name, item in check_object(value, field).items():
        hints[check_choice(name, field, _HINTS)] = check_flag(item, f"{field}.{name}")
    return hints


def _word(value: object, field: str) -> str:
    text = check_text(value, field, controls=False)
    if not text:
        raise ConfigError(f"{field!r} is empty", field=field)
    return text


def _json(value: object, field: str) -> object:
    return value


def _principal(value: object, field: str) -> str:
    return check_choice(value, field, ("principal",))


_RULE: dict[str, Check] = {
    "tools": _globs,
    "regex": check_text,
    "servers": _globs,
    "annotations": _annotations,
    "tags": _globs,
    "name": _word,
    "title": check_text,
    "description": check_text,
    "hide": check_flag,
}
_ARGUMENT: dict[str, Check] = {
    "name": _word,
    "description": check_text,
    "hide": check_flag,
    "value": _json,
    "default": _json,
    "from_": _principal,
    "claim": _word,
    "state": _word,
    "env": _word,
}
