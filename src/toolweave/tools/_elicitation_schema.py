"""Forms of models: the JSON Schema of flat fields for a pydantic model or dataclass, and the instance of an answer.

The schema that elicitation allows is `protocol/client_requests.py`; knows nothing of who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from toolweave.errors import ErrorKind, SchemaError, ToolError
from toolweave.protocol.client_requests import check_form

__all__ = ["form_of", "read_form"]

_Json = dict[str, Any]

_FORMATS = frozenset({"date", "date-time", "email", "uri"})
_FIELD_KEYS = (
    *("type", "title", "description", "default", "enum", "enumNames", "oneOf", "items"),
    *("minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"),
)


def form_of(schema: Mapping[str, Any] | type | None) -> _Json:
    """Return the JSON Schema of a form.

    Args:
        schema: An object schema of flat fields, which is checked and kept as it is; a pydantic model, dataclass or
            TypedDict, of which one is made; None for a question without fields.

    Raises:
        SchemaError: It has a field that no form can have, such as an object; names the field.
    """
    if schema is None:
        return {"type": "object", "properties": {}}
    return check_form(schema) if isinstance(schema, Mapping) else _derived(schema)


def read_form(schema: Mapping[str, Any] | type | None, content: Mapping[str, Any]) -> Any:
    """Return the values of a filled-in form: an instance of the form's model, else the content as received.

    Raises:
        ToolError: It does not match the form; the message says where.
    """
    if isinstance(schema, type):
        return _read_model(schema, content)
    from toolweave.schema._validate import Validator, describe  # compiled code; only a question needs it

    problems = Validator(form_of(schema)).problems(content)
    if problems:
        raise ToolError(f"the answer does not fit the form: {describe(problems)}", kind=ErrorKind.INVALID_INPUT)
    return content


def _read_model(model: type, content: Mapping[str, Any]) -> Any:
    from pydantic import TypeAdapter, ValidationError  # 40 ms; only a question with a model needs it

    from toolweave.schema._problems import Problem, describe, path_text

    try:
        return TypeAdapter(model).validate_python(dict(content))
    except ValidationError as exc:
        errors = exc.errors(include_input=False, include_url=False, include_context=False)
    said = describe(tuple(Problem(path=path_text(error["loc"]), message=error["msg"]) for error in errors))
    raise ToolError(f"the answer does not fit the form: {said}", kind=ErrorKind.INVALID_INPUT)


@lru_cache(maxsize=256)
def _derived(model: type) -> _Json:
    from toolweave.schema._signature import schema_of

    name = model.__name__
    whole = schema_of(model, what=f"the form {name!r}")
    if whole.get("type") != "object":
        raise SchemaError(f"the form {name!r} is no object with fields")
    definitions: Mapping[str, Any] = whole.get("$defs", {})
    fields: Mapping[str, Any] = whole.get("properties", {})
    form: _Json = {
        "type": "object",
        "properties": {field: _field(schema, definitions) for field, schema in fields.items()},
    }
    if whole.get("required"):
        form["required"] = whole["required"]
    return check_form(form, what=f"the form {name!r}")


def _nullable(field: Mapping[str, Any]) -> bool:
    return any(option == {"type": "null"} for option in field.get("anyOf", ()))


def _field(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> _Json:
    """Return a model's field in the restricted schema of forms: no references, no null, no constants."""
    found: _Json = dict(schema)
    if _nullable(found):
        some = [option for option in found.pop("anyOf") if option != {"type": "null"}]
        found = {**(some[0] if len(some) == 1 else {}), **found}
        if found.get("default", ...) is None:
            del found["default"]
    reference = found.pop("$ref", None)
    if reference is not None:
        found = {**definitions.get(str(reference).removeprefix("#/$defs/"), {}), **found}
        found.pop("title", None)  # the name of a Python class
    if "const" in found:
        found["enum"] = [found["const"]]
    if found.get("type") == "array" and isinstance(found.get("items"), Mapping):
        found["items"] = _field(found["items"], definitions)
    made = {key: found[key] for key in _FIELD_KEYS if key in found}
    if found.get("format") in _FORMATS:
        made["format"] = found["format"]
    return made
