"""Parsing of tool arguments from the command line: `key=value`, `key:=json`, whole JSON objects, files.

Has two steps: `read_arguments` before any server is started (its errors are wrong usage), and `fit_arguments` once the
tool's schema is known (its errors are wrong arguments). Knows JSON Schema only as far as choosing a type for a word;
the library validates the object.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from toolweave._value import Value
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.schema._normalize import types_of, views

_PAIR = r"(?s)(?P<key>[^=]*?)(?P<sign>:=|=)(?P<value>.*)"
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class RawArguments(Value, frozen=True, kw_only=True):
    """The arguments as typed: parsed, but not yet converted by a tool's schema.

    Attributes:
        whole: The object from `--json-args`, an argument, `@file` or standard input, or None.
        words: Values still to be coerced by the tool's schema, by key.
        values: Values given as JSON, by key.
    """

    whole: Mapping[str, Any] | None
    words: Mapping[str, str]
    values: Mapping[str, Any]

    def __bool__(self) -> bool:
        return bool(self.whole is not None or self.words or self.values)


def read_arguments(tokens: Sequence[str], *, json_args: str | None, stdin: Callable[[], str]) -> RawArguments:
    """Read the words after a tool's name; `stdin` is called when one of them is `-`.

    Raises:
        CommandError: Wrong usage: bad JSON, a key given twice, an unreadable file, two whole objects.
    """
    if json_args is not None:
        wholes = [(as_utf8(json_args), "--json-args")]
    else:
        wholes = []
    words: dict[str, str] = {}
    values: dict[str, Any] = {}
    for token in map(as_utf8, tokens):
        if token == "-":  # noqa: S105  # the usual name of standard input, no secret
            wholes.append((stdin(), "standard input"))
        elif token.startswith("@"):
            wholes.append((_read_file(token[1:], token), f"file {token[1:]!r}"))
        elif token.lstrip().startswith("{"):
            wholes.append((token, "the argument in braces"))
        else:
            _read_pair(token, words, values)
    if len(wholes) > 1:
        sources = " and ".join(source for _, source in wholes)
        raise CommandError(f"the whole arguments object was given twice, by {sources}; give it once")
    whole = parse_object(*wholes[0]) if wholes else None
    return RawArguments(whole=whole, words=words, values=values)


def as_utf8(word: str) -> str:
    """Return a word of the command line decoded as UTF-8, in any locale.

    Raises:
        CommandError: It is no UTF-8.
    """
    if word.isascii() or not any("\udc80" <= char <= "\udcff" for char in word):
        return word
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeError:
        raise CommandError(f"{word!r} is not UTF-8: arguments are read as that, whatever the locale is") from None


def parse_object(text: str, source: str) -> Mapping[str, Any]:
    """Parse a JSON object with unique keys.

    Raises:
        CommandError: It is no JSON, or another JSON value than an object.
    """
    value = _parse_json(text, source)
    if not isinstance(value, dict):
        raise CommandError(f"{source}: expected a JSON object of arguments, got {_kind(value)}")
    return cast("dict[str, Any]", value)


def fit_arguments(given: RawArguments, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments object; single keys override the whole object's.

    A dotted key whose first part is an object parameter sets a member: `filter.owner=me`.

    Raises:
        CommandError: A word is no value of the type that the schema asks for (exit code 1).
    """
    arguments = dict(given.whole or {})
    for key, word in given.words.items():
        path = _path(key, schema, schema)
        _set(arguments, path, coerce(word, _at(schema, path), root=schema, key=key))
    for key, value in given.values.items():
        _set(arguments, _path(key, schema, schema), value)
    return arguments


def missing_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """Return the required parameters that have no argument, in the schema's order."""
    required = schema.get("required")
    if not isinstance(required, Sequence) or isinstance(required, str):
        return []
    names = cast("Sequence[Any]", required)
    return [name for name in names if isinstance(name, str) and name not in arguments]


def coerce(word: str, schema: Mapping[str, Any], *, root: Mapping[str, Any], key: str) -> Any:
    """Return a word converted by a parameter's schema; a string stays unchanged.

    Raises:
        CommandError: The word is no value of any type the schema allows (exit code 1).
    """
    for choice in choices_of(schema, root):
        if word == (choice if isinstance(choice, str) else json.dumps(choice)):
            return choice
    types = allowed_types(schema, root)
    if not types or "string" in types:
        return word
    for name in ("null", "boolean", "integer", "number", "array", "object"):
        if name in types:
            value = _READERS[name](word)
            if value is not _NOTHING:
                return value
    expected = " or ".join(sorted(types))
    if types & {"array", "object"}:
        hint = f"lists and objects are written as JSON: {key}:='[...]'"
    else:
        hint = None
    raise CommandError(f"argument {key!r}: expected {expected}, got {word!r}", code=ExitCode.TOOL_ERROR, hint=hint)


def allowed_types(schema: Mapping[str, Any], root: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types that a parameter's schema allows; empty when it does not restrict them."""
    found = (name for view in views(schema, root) for name in types_of(view))
    return frozenset(name for name in found if isinstance(name, str))  # pyright: ignore[reportUnnecessaryIsInstance]


def choices_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> list[Any]:
    """Return the values that a parameter's schema lists; none when it does not."""
    lists = (view.get("enum") for view in views(schema, root))
    return [choice for listed in lists if isinstance(listed, list) for choice in cast("list[Any]", listed)]


def property_schema(schema: Mapping[str, Any], name: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of one member of an object, empty when there is none."""
    for view in views(schema, root):
        properties = view.get("properties")
        if isinstance(properties, Mapping):
            found = cast("Mapping[str, Any]", properties).get(name)
        else:
            found = None
        if isinstance(found, Mapping):
            return cast("Mapping[str, Any]", found)
    return {}


def _read_pair(token: str, words: dict[str, str], values: dict[str, Any]) -> None:
    pair = re.fullmatch(_PAIR, token)
    if pair is None or not pair["key"]:
        raise CommandError(
            f"argument {token!r} is not understood",
            hint="write key=value, key:=JSON, key=@FILE, all arguments as one JSON "
            "object '{...}', @FILE for one in a file, or - for one on standard input",
        )
    key = pair["key"]
    text = pair["value"]
    if key in words or key in values:
        raise CommandError(f"argument {key!r} was given twice", hint=f"a list is written as JSON: {key}:='[1, 2]'")
    if text.startswith("@"):
        text = _read_file(text[1:], token)
    if pair["sign"] == ":=":
        values[key] = _parse_json(text, f"argument {key!r}")
    else:
        words[key] = text


def _read_file(name: str, token: str) -> str:
    try:
        return Path(name).expanduser().read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise CommandError(f"argument {token!r}: file {name!r} is not UTF-8 text") from None
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        if token.startswith("@"):
            hint = None
        else:
            hint = f"for a text that starts with @ write it as JSON: key:='\"@{name}\"'"
        raise CommandError(f"argument {token!r}: cannot read file {name!r}: {reason}", hint=hint) from None


def _parse_json(text: str, source: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as exc:
        where = f"line {exc.lineno}, column {exc.colno}"
        raise CommandError(f"{source}: not valid JSON: {exc.msg} ({where})") from None
    except (ValueError, RecursionError) as exc:
        raise CommandError(f"{source}: not valid JSON: {exc}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"key {key!r} is given twice")
        result[key] = value
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isfinite(value):
        return value
    return _no_constant(text)


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(cast("type[Any]", type(value)), "a number")


def _path(key: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[str, ...]:
    first, dot, rest = key.partition(".")
    if not dot or not first or not rest or property_schema(schema, key, root):
        return (key,)
    owner = property_schema(schema, first, root)
    if "object" in allowed_types(owner, root):
        return (first, *_path(rest, owner, root))
    return (key,)


def _at(schema: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    root = schema
    for name in path:
        schema = property_schema(schema, name, root)
    return schema


def _set(arguments: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        inner = arguments.get(name)
        arguments[name] = dict(cast("Mapping[str, Any]", inner)) if isinstance(inner, Mapping) else {}
        arguments = arguments[name]
    arguments[path[-1]] = value


_NOTHING: Any = object()


def _boolean(word: str) -> Any:
    if word.lower() in _TRUE:
        return True
    if word.lower() in _FALSE:
        return False
    return _NOTHING


def _number(word: str) -> Any:
    try:
        value = json.loads(word.removeprefix("+"), parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return _NOTHING
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return _NOTHING


def _integer(word: str) -> Any:
    value = _number(word)
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        return _NOTHING
    return value


def _json_of(kind: type) -> Callable[[str], Any]:
    def read(word: str) -> Any:
        try:
            value = json.loads(word, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
        except (ValueError, RecursionError):
            return _NOTHING
        if isinstance(value, kind):
            return value
        return _NOTHING

    return read


_READERS: Mapping[str, Callable[[str], Any]] = {
    "null": lambda word: None if word == "null" else _NOTHING,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "array": _json_of(list),
    "object": _json_of(dict),
}
