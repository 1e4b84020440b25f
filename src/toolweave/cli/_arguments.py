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
from typing import Any

from toolweave._json_types import Json, JsonObject, array_or_empty, as_number, as_object, object_or_empty, text_entries
from toolweave._value import Value
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.schema.normalize import types_of, views

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

    whole: JsonObject | None
    words: Mapping[str, str]
    values: JsonObject

    def __bool__(self) -> bool:
        has_keys = len(self.words) + len(self.values) > 0
        return has_keys or self.whole is not None


def read_arguments(tokens: Sequence[str], *, json_args: str | None, stdin: Callable[[], str]) -> RawArguments:
    """Read the words after a tool's name; `stdin` is called when one of them is `-`.

    Raises:
        CommandError: Wrong usage: bad JSON, a key given twice, an unreadable file, two whole objects.
    """
    wholes: list[tuple[str, str]] = []
    if json_args is not None:
        wholes.append((as_utf8(json_args), "--json-args"))
    words: dict[str, str] = {}
    values: Json = {}
    for token in map(as_utf8, tokens):
        if token == "-":  # noqa: S105  # the usual name of standard input
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
        CommandError: The word is not UTF-8.
    """
    # Python decodes arguments by the locale, and bytes that it cannot decode become surrogates (PEP 383).
    if word.isascii() or not any("\udc80" <= char <= "\udcff" for char in word):
        return word
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeError:
        raise CommandError(f"{word!r} is not UTF-8: arguments are read as UTF-8 in every locale") from None


def parse_object(text: str, source: str) -> JsonObject:
    """Parse a JSON object with unique keys.

    Raises:
        CommandError: The text is not JSON, or another JSON value than an object.
    """
    value = _parse_json(text, source)
    members = as_object(value)
    if members is None:
        raise CommandError(f"{source}: expected a JSON object of arguments, got {_kind(value)}")
    return members


def fit_arguments(given: RawArguments, schema: JsonObject) -> Json:
    """Return the arguments object; single keys override the whole object's.

    A dotted key whose first part is an object parameter sets a member: `filter.owner=me`.

    Raises:
        CommandError: A word is not a value of the type that the schema asks for (exit code 1).
    """
    arguments: Json = {}
    if given.whole is not None:
        arguments.update(given.whole)
    for key, word in given.words.items():
        path = _path(key, schema, schema)
        _set(arguments, path, coerce(word, _at(schema, path), root=schema, key=key))
    for key, value in given.values.items():
        _set(arguments, _path(key, schema, schema), value)
    return arguments


def missing_arguments(arguments: JsonObject, schema: JsonObject) -> list[str]:
    """Return the required parameters that have no argument, in the schema's order."""
    names = text_entries(schema.get("required"))
    return [name for name in names if name not in arguments]


def coerce(word: str, schema: JsonObject, *, root: JsonObject, key: str) -> Any:
    """Return a word converted by a parameter's schema; a string stays unchanged.

    Raises:
        CommandError: The word is not a value of any type the schema allows (exit code 1).
    """
    # A choice is compared first: it may be a word that a type would read in another way, such as "1" or "null".
    for choice in choices_of(schema, root):
        if word == (choice if isinstance(choice, str) else json.dumps(choice)):
            return choice
    types = allowed_types(schema, root)
    if not types or "string" in types:
        return word
    # the narrowest type first
    for name in ("null", "boolean", "integer", "number", "array", "object"):
        value = _READERS[name](word) if name in types else _NOTHING
        if value is not _NOTHING:
            return value
    expected = " or ".join(sorted(types))
    hint = None
    if types & {"array", "object"}:
        hint = f"lists and objects are written as JSON: {key}:='[...]'"
    raise CommandError(f"argument {key!r}: expected {expected}, got {word!r}", code=ExitCode.TOOL_ERROR, hint=hint)


def allowed_types(schema: JsonObject, root: JsonObject) -> frozenset[str]:
    """Return the JSON types that a parameter's schema allows; empty when it does not restrict them."""
    found = (name for view in views(schema, root) for name in types_of(view))
    return frozenset(name for name in found if isinstance(name, str))  # pyright: ignore[reportUnnecessaryIsInstance]


def choices_of(schema: JsonObject, root: JsonObject) -> list[Any]:
    """Return the values that a parameter's schema lists; none when it does not."""
    choices: list[Any] = []
    for view in views(schema, root):
        choices += array_or_empty(view.get("enum"))
    return choices


def property_schema(schema: JsonObject, name: str, root: JsonObject) -> JsonObject:
    """Return the schema of one member of an object, empty for a member that is not described."""
    for view in views(schema, root):
        found = as_object(object_or_empty(view.get("properties")).get(name))
        if found is not None:
            return found
    return {}


def _read_pair(token: str, words: dict[str, str], values: Json) -> None:
    pair = re.fullmatch(_PAIR, token)
    if pair is None or not pair["key"]:
        from toolweave.cli._slips import word_hint  # only a slip needs it

        raise CommandError(f"argument {token!r} is not understood", hint=word_hint(token))
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
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        hint = None
        if not token.startswith("@"):
            hint = f"for a text that starts with @ write it as JSON: key:='\"@{name}\"'"
        raise CommandError(f"argument {token!r}: cannot read file {name!r}: {reason}", hint=hint) from None


def _parse_json(text: str, source: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except json.JSONDecodeError as exc:
        where = f"line {exc.lineno}, column {exc.colno}"
        raise CommandError(f"{source}: not valid JSON: {exc.msg} ({where})", hint=_nearly(text)) from None
    except (ValueError, RecursionError) as exc:
        raise CommandError(f"{source}: not valid JSON: {exc}") from None


def _nearly(text: str) -> str | None:
    from toolweave.cli._slips import json_hint  # only a slip needs it

    return json_hint(text)


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    result: Json = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"key {key!r} is given twice")
        result[key] = value
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isfinite(value):
        return value
    return _no_constant(text)


def _kind(value: object) -> str:
    names: dict[type[object], str] = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    kind: type[object] = type(value)
    return names.get(kind, "a number")


def _path(key: str, schema: JsonObject, root: JsonObject) -> tuple[str, ...]:
    first, _, rest = key.partition(".")
    is_dotted = first != "" and rest != ""
    # A parameter may have a dot in its own name, which then counts.
    if not is_dotted or property_schema(schema, key, root):
        return (key,)
    owner = property_schema(schema, first, root)
    if "object" in allowed_types(owner, root):
        return (first, *_path(rest, owner, root))
    return (key,)


def _at(schema: JsonObject, path: tuple[str, ...]) -> JsonObject:
    root = schema
    for name in path:
        schema = property_schema(schema, name, root)
    return schema


def _set(arguments: Json, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        # a copy: the object may be the caller's
        inner = dict(object_or_empty(arguments.get(name)))
        arguments[name] = inner
        arguments = inner
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
    number = as_number(value)
    return _NOTHING if number is None else number


def _integer(word: str) -> Any:
    value = _number(word)
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        return _NOTHING
    return value


def _null(word: str) -> Any:
    return None if word == "null" else _NOTHING


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
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "array": _json_of(list),
    "object": _json_of(dict),
}
