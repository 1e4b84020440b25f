"""Forms made from JSON Schema: the fields of a tool's arguments, and the arguments that a sent form means. Pure.

A value without its own field, such as an object or array, is JSON in a text area; a whole form can also be JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from toolweave._json_types import (
    array_or_empty,
    as_array,
    as_number,
    as_object,
    as_text,
    object_or_empty,
    without_members,
)

_MAX_FIELDS = 100
_MAX_CHOICES = 200
_MAX_STEPS = 10
_LONG = re.compile(
    r"content|text|body|code|message|sql|prompt|script|markdown|html|diff|patch|comment|note", re.IGNORECASE
)
_WHOLE = re.compile(r"[+-]?\d{1,400}")

FieldKind = Literal["line", "text", "integer", "number", "choice", "json"]


class FormField(NamedTuple):
    """One field of a form.

    Attributes:
        key: Its name in the form.
        name: The property.
        kind: A line, lines of text, a number, one of `choices`, or JSON.
        title: Its human-readable name; empty for none.
        description: Its description; "" for none.
        required: Whether it has to be given.
        value: The text in it: its default; for a choice the index.
        choices: The values to choose from.
        hint: The kind of value that is expected, in words.
        minimum: The least number, or None.
        maximum: The largest number, or None.
    """

    key: str
    name: str
    kind: FieldKind
    title: str
    description: str
    required: bool
    value: str
    choices: tuple[Any, ...]
    hint: str
    minimum: float | None
    maximum: float | None

    @property
    def labels(self) -> Sequence[str]:
        """The values to choose from, as texts."""
        return [value if isinstance(value, str) and value else _compact(value) for value in self.choices]


def fields_of(schema: Mapping[str, Any]) -> tuple[FormField, ...] | None:
    """Return the fields of an object's schema, or None where it cannot be given by fields.

    Args:
        schema: The schema, which may be anything that a server calls one.
    """
    properties = schema.get("properties")
    if properties is None and not any(name in schema for name in ("anyOf", "oneOf", "allOf", "$ref")):
        return ()
    found = as_object(properties)
    # Nothing is shown instead of a part: a form that lacks fields would send arguments that lack them.
    if found is None or len(found) > _MAX_FIELDS:
        return None
    required = set(map(str, array_or_empty(schema.get("required"))))
    fields: list[FormField] = []
    for at, (name, part) in enumerate(found.items()):
        # The key is a number, because the name is the server's and may be any text.
        fields.append(_field(f"f{at}", str(name), part, schema, str(name) in required))
    return tuple(fields)


def read_fields(fields: Sequence[FormField], sent: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments that a sent form means, and the errors of fields, by their keys."""
    arguments: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for field in fields:
        text = sent.get(field.key, "")
        # A browser sends an empty text for a field that was left alone.
        if not text and not field.required:
            continue
        try:
            arguments[field.name] = _read(field, text)
        except ValueError as error:
            wrong[field.key] = str(error)
    return arguments, wrong


def read_json(text: str) -> dict[str, Any]:
    """Return the object of arguments in a JSON text; an empty text is an empty object.

    Raises:
        ValueError: It is something else, which the text names.
    """
    value: Any = _json(text) if text.strip() else {}
    found = as_object(value)
    if found is None:
        raise ValueError('a JSON object is expected, such as {"name": "value"}')
    return dict(found)


def _field(key: str, name: str, part: Any, root: Mapping[str, Any], required: bool) -> FormField:
    node = _plain(part, root)
    kind, choices = _kind(name, node)
    return FormField(
        key=key,
        name=name,
        kind=kind,
        title=_text(node, "title"),
        description=_text(node, "description"),
        required=required,
        value=_shown(node["default"], kind, choices) if "default" in node else "",
        choices=choices,
        hint=_hint(kind, node),
        minimum=_bound(node, "minimum"),
        maximum=_bound(node, "maximum"),
    )


def _plain(part: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with its reference resolved, and without the null of an optional value."""
    node = object_or_empty(part)
    # Bounded, since a reference may lead back to itself.
    for _ in range(_MAX_STEPS):
        reference = node.get("$ref")
        own = without_members(node, "$ref")
        if isinstance(reference, str):
            node = {**object_or_empty(_at(root, reference)), **own}
            continue
        alternatives = as_array(node.get("anyOf", node.get("oneOf")))
        if alternatives is None:
            break
        others = list(map(object_or_empty, alternatives))
        others = [one for one in others if one.get("type") != "null"]
        # With null left out, one alternative is an optional value; several are a choice if all of them are fixed
        # values.
        if len(others) != 1:
            return _joined(node, others)
        node = {**others[0], **without_members(own, "anyOf", "oneOf")}
    return node


def _joined(node: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return alternatives that are all fixed values as one enumeration."""
    values: list[Any] = []
    for one in others:
        fixed = [one["const"]] if "const" in one else as_array(one.get("enum"))
        if fixed is None:
            # Without a type the field is shown as JSON, in which any of the alternatives can be written.
            return {**node, "type": None}
        values += fixed
    return {**node, "enum": values}


def _at(root: Mapping[str, Any], reference: str) -> Any:
    """Return the target of a reference within the schema; None for any other."""
    if not reference.startswith("#/"):
        return None
    found: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        found = object_or_empty(found).get(name)
    return found


def _kind(name: str, node: Mapping[str, Any]) -> tuple[FieldKind, tuple[Any, ...]]:
    values = [node["const"]] if "const" in node else array_or_empty(node.get("enum"))
    if 0 < len(values) <= _MAX_CHOICES:
        return "choice", tuple(values)
    match _type(node):
        case "string":
            long = _LONG.search(name) is not None and "format" not in node and "pattern" not in node
            return ("text" if long else "line"), ()
        case "integer":
            return "integer", ()
        case "number":
            return "number", ()
        case "boolean":
            return "choice", (True, False)
        case _:
            return "json", ()


def _type(node: Mapping[str, Any]) -> str | None:
    kind: Any = node.get("type")
    kinds = [one for one in array_or_empty(kind) if one != "null"]
    if len(kinds) == 1:
        kind = kinds[0]
    return as_text(kind)


def _hint(kind: FieldKind, node: Mapping[str, Any]) -> str:
    match kind:
        case "integer":
            return "a whole number"
        case "number":
            return "a number"
        case "choice":
            return ""
        case "json":
            named = {"array": "a list, as JSON", "object": "an object, as JSON"}
            return named.get(_type(node) or "", "any value, as JSON")
        case _:
            return _text(node, "format")


def _read(field: FormField, text: str) -> Any:
    match field.kind:
        case "line" | "text":
            # HTML forms send line ends as CRLF, whatever was typed.
            return text.replace("\r\n", "\n")
        case "integer":
            if not _WHOLE.fullmatch(text.strip()):
                raise ValueError("a whole number is expected, such as 3")
            return int(text)
        case "number":
            value = as_number(_json(text))
            if value is None:
                raise ValueError("a number is expected, such as 1.5")
            return value
        case "choice":
            # By position, as a value may be of any type, and 1 and "1" would be the same text.
            choices = {str(place): value for place, value in enumerate(field.choices)}
            if text not in choices:
                raise ValueError("one of the values is expected")
            return choices[text]
        case "json":
            return _json(text)


def _json(text: str) -> Any:
    # Python reads NaN and Infinity, which no server has to accept.
    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError("it is too deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg}, in line {error.lineno}, column {error.colno}") from None


def _shown(value: Any, kind: FieldKind, choices: Sequence[Any]) -> str:
    """Return the text of a default in a field; "" for one that does not fit."""
    match kind:
        case "choice":
            wanted = _compact(value)
            # Compared as JSON, in which true is not 1.
            return next((str(at) for at, one in enumerate(choices) if _compact(one) == wanted), "")
        case "line" | "text":
            if isinstance(value, str):
                return value
            return ""
        case "json":
            if value is None:
                return ""
            return _compact(value)
        case _:
            if as_number(value) is None:
                return ""
            return _compact(value)


def _compact(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return ""


def _text(node: Mapping[str, Any], name: str) -> str:
    value = node.get(name)
    if isinstance(value, str):
        return value
    return ""


def _bound(node: Mapping[str, Any], name: str) -> float | None:
    return as_number(node.get(name))
