"""Rules that shape the definitions of tools, as a config states them: conditions and changes.

Values and their checks; the room `shaping` applies them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import msgspec

from toolweave._masking import MASK
from toolweave._value import Value
from toolweave.config._secret import Secret, looks_secret, reveal
from toolweave.config._validation import (
    check_choice,
    check_flag,
    check_object,
    check_text,
    check_texts,
    kind_of,
    suggestion,
)
from toolweave.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
"""A tool's name (MCP specification 2025-11-25, "Tool Names")."""
_GROUPS = re.compile(r"\\(?:\d|g<\w+>)")
_WILDCARDS = re.compile(r"[*?\[]")
_SOURCES = ("value", "from", "claim", "state", "env")
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

    quiet: ClassVar[frozenset[str]] = frozenset({"value", "default"})
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
        sources = self.sources
        if len(sources) > 1:
            raise ConfigError(f"has {' and '.join(map(repr, sources))}, but one of them gives the value")
        if "value" in sources and self.default is not msgspec.UNSET:
            raise ConfigError("has 'value' and 'default'; what is always sent needs no default")
        if (sources or self.hide) and (self.name is not None or self.description is not None):
            raise ConfigError("is removed from the schema, so 'name' and 'description' have no use")

    @property
    def sources(self) -> tuple[str, ...]:
        """The settings that give its value."""
        given = {"value": self.value is not msgspec.UNSET, "from": self.from_ is not None}
        given |= {name: getattr(self, name) is not None for name in ("claim", "state", "env")}
        return tuple(name for name in _SOURCES if given[name])

    @property
    def removed(self) -> bool:
        """Whether models do not see it."""
        return self.hide or bool(self.sources)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a config states it."""
        return {name.rstrip("_"): value for name, value in _given(self)}

    def said(self, argument: str) -> str:
        """Describe the change of an argument, without values that may be secret."""
        if "value" in self.sources:
            return f"always {_shown(argument, self.value)}"
        if self.sources:
            source = "the caller's principal" if self.from_ else ""
            source = source or (f"the claim {self.claim!r} of the caller" if self.claim is not None else "")
            source = source or (f"{self.state!r} of the state" if self.state is not None else "")
            return f"always {source or f'the environment variable {self.env}'}"
        if self.default is msgspec.UNSET:
            default = ""
        else:
            default = _shown(argument, self.default)
        if self.hide:
            if default:
                return f"always {default}"
            return "hidden, and not sent"
        said = [] if self.name is None else [f"named {self.name!r}"]
        said += [] if self.description is None else ["described anew"]
        return ", ".join([*said, *([f"optional, {default} by default"] if default else [])])


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
        title: Its title for people.
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
        for member in ("tools", "servers", "tags"):
            given: Sequence[str] = getattr(self, member)
            msgspec.structs.force_setattr(self, member, (given,) if isinstance(given, str) else tuple(given))
        self._check_regex()
        changes = [name for name in ("name", "title", "description") if getattr(self, name) is not None]
        if self.hide and (changes or self.arguments):
            raise ConfigError("hides its tools, so it has no use for other changes", field="hide")
        if not (self.hide or changes or self.arguments):
            raise ConfigError("changes nothing; it needs name, title, description, hide or arguments")
        self._check_arguments()

    def _check_regex(self) -> None:
        if self.regex is not None:
            try:
                re.compile(self.regex)
            except (re.error, RecursionError, OverflowError) as exc:
                raise ConfigError(f"'regex' is no regular expression: {exc}", field="regex") from None
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
            key = group[1:] if group[1] != "g" else group[3:-1]
            if not (int(key) <= pattern.groups if key.isdigit() else key in pattern.groupindex):
                raise ConfigError(f"'name' has the group {group}, which 'regex' does not have", field="name")

    def _check_arguments(self) -> None:
        taken: dict[str, str] = {}
        for argument, rule in self.arguments.items():
            if rule.name is None:
                continue
            if rule.name in taken:
                text = f"names two arguments {rule.name!r}: {taken[rule.name]!r} and {argument!r}"
                raise ConfigError(text, field=f"arguments.{argument}.name")
            taken[rule.name] = argument

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a config states it; a function is shown by its type."""
        out = dict(_given(self))
        if self.arguments:
            out["arguments"] = {name: rule.to_mapping() for name, rule in self.arguments.items()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in out.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _shown(argument: str, value: Any) -> str:
    if looks_secret(argument) or isinstance(value, Secret):
        return MASK
    return repr(value)


def with_secrets(rules: Iterable[ShapeRule], sensitive: Iterable[Secret]) -> tuple[ShapeRule, ...]:
    """Return rules whose constants are secrets where they hold one of these values."""
    known = [reveal(one) for one in sensitive]

    def hidden(value: Any) -> Any:
        if isinstance(value, str) and any(one in value for one in known):
            return Secret(value)
        return value

    return tuple(
        rule.replace(
            arguments={
                name: one.replace(value=hidden(one.value), default=hidden(one.default))
                for name, one in rule.arguments.items()
            }
        )
        for rule in rules
    )


def _given(rule: Value) -> Iterable[tuple[str, Any]]:
    for name in rule.__struct_fields__:
        value = getattr(rule, name)
        is_json = name in ("value", "default")  # where nothing else than what is not given stands for nothing
        if value is not msgspec.UNSET if is_json else value:
            yield name, value


def read_shape(value: Any, field: str) -> tuple[ShapeRule, ...]:  # Any: whatever a user wrote
    """Return the rules of a config.

    Raises:
        ConfigError: A rule is wrong; its field is the path to the mistake.
    """
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{field!r} must be a list of rules, not {kind_of(value)}", field=field)
    rules: list[ShapeRule] = []
    named: dict[str, tuple[int, tuple[str, ...]]] = {}
    for index, item in enumerate(cast("Sequence[Any]", value)):
        where = f"{field}[{index}]"
        rule = read_rule(item, where)
        rules.append(rule)
        if rule.name is None or rule.regex is not None or any(_WILDCARDS.search(one) for one in rule.tools):
            continue
        other, tools = named.setdefault(rule.name, (index, tuple(rule.tools)))
        if tools != tuple(rule.tools) and tools and rule.tools and not (rule.servers or rules[other].servers):
            text = f"{where!r} names {rule.tools[0]!r} as '{field}[{other}]' names {tools[0]!r}: {rule.name!r}"
            raise ConfigError(text, field=f"{where}.name")
    return tuple(rules)


def read_rule(item: Any, where: str) -> ShapeRule:  # Any: as above
    """Return a rule that is one, or written as in a config.

    Raises:
        ConfigError: It is wrong; its field is the path to the mistake.
    """
    if isinstance(item, ShapeRule):
        return item
    return _read_rule(check_object(item, where), where)


def _read_rule(given: Mapping[Any, Any], where: str) -> ShapeRule:
    known = [name for name in ShapeRule.__struct_fields__ if name != "predicate"]
    found = dict(_members(given, where, known, _RULE))
    if "arguments" in given:
        arguments = check_object(given["arguments"], f"{where}.arguments")
        found["arguments"] = {
            str(name): _read_argument(check_object(item, f"{where}.arguments.{name}"), f"{where}.arguments.{name}")
            for name, item in arguments.items()
        }
    return _made(ShapeRule, found, where)


def _read_argument(given: Mapping[Any, Any], where: str) -> ArgumentRule:
    found = dict(_members(given, where, ["from" if one == "from_" else one for one in _ARGUMENT], _ARGUMENT))
    return _made(ArgumentRule, found, where)


def _members(
    given: Mapping[Any, Any], where: str, known: Sequence[str], checks: Mapping[str, Callable[[Any, str], Any]]
) -> Iterable[tuple[str, Any]]:
    for key, item in given.items():
        if key not in known:
            raise ConfigError(f"{where!r} has no setting {key!r}; {suggestion(key, known)}", field=f"{where}.{key}")
        member = "from_" if key == "from" else str(key)
        if member in checks:
            yield member, checks[member](item, f"{where}.{key}")


def _made(kind: type[Any], found: Mapping[str, Any], where: str) -> Any:
    try:
        return kind(**found)
    except ConfigError as error:
        field = f"{where}.{error.field}" if error.field else where
        raise ConfigError(f"{where!r} {error.message}", field=field) from None


def _globs(value: Any, field: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return check_texts(value, field)


def _annotations(value: Any, field: str) -> dict[str, bool]:
    given = check_object(value, field)
    return {check_choice(name, field, _HINTS): check_flag(item, f"{field}.{name}") for name, item in given.items()}


def _word(value: Any, field: str) -> str:
    text = check_text(value, field, controls=False)
    if not text:
        raise ConfigError(f"{field!r} is empty", field=field)
    return text


def _json(value: Any, field: str) -> Any:
    return value


_RULE: dict[str, Callable[[Any, str], Any]] = {
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
_ARGUMENT: dict[str, Callable[[Any, str], Any]] = {
    "name": _word,
    "description": check_text,
    "hide": check_flag,
    "value": _json,
    "default": _json,
    "from_": lambda value, field: check_choice(value, field, ("principal",)),
    "claim": _word,
    "state": _word,
    "env": _word,
}
