"""Conversion of a Swagger 2.0 document to OpenAPI 3.0. Pure.

Only the parts that 3.0 writes in another form are rewritten: servers, parameters, bodies, responses and security
schemes.
"""

# Schemas stay in `definitions`, so the document's references to them stay valid. Nothing is reported: a malformed part
# is copied unchanged, and the reader of OpenAPI 3 reports it with the pointer of the document.

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_array,
    as_object,
    object_or_empty,
    only_members,
    text_entries,
    text_or_empty,
    without_members,
)
from toolweave.schema.limits import local_target

_METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
_REWRITTEN = frozenset(
    ("swagger", "host", "basePath", "schemes", "consumes", "produces", "securityDefinitions", "parameters")
)
_JSON = "application/json"
_MULTIPART = "multipart/form-data"
_FORM = "application/x-www-form-urlencoded"
_MAX_HOPS = 16
_NOT_OF_SCHEMA = frozenset(
    ("name", "in", "description", "required", "schema", "collectionFormat", "allowEmptyValue", "x-example")
)
_STYLES = {"ssv": "spaceDelimited", "pipes": "pipeDelimited"}
"""Styles of OpenAPI 3 for a `collectionFormat` of the query."""
_SEPARATORS = {"ssv": "spaces", "tsv": "tabs", "pipes": "'|'"}
_FLOWS = {
    "implicit": "implicit",
    "password": "password",
    "application": "clientCredentials",
    "accessCode": "authorizationCode",
}


def is_swagger(document: JsonObject) -> bool:
    """Return whether a document is one of Swagger 2.0; YAML may hold the version as a number."""
    return str(document.get("swagger")) in ("2.0", "2")


def converted(document: JsonObject) -> Json:
    """Return a Swagger 2.0 document as one of OpenAPI 3.0.3."""
    made = without_members(document, *_REWRITTEN)
    made["openapi"] = "3.0.3"
    made["servers"] = _servers(document)
    schemes = object_or_empty(document.get("securityDefinitions"))
    made["components"] = {"securitySchemes": {name: _scheme(object_or_empty(one)) for name, one in schemes.items()}}
    paths = as_object(document.get("paths", {}))
    if paths is None:
        # malformed: the reader reports it
        made["paths"] = document["paths"]
    else:
        converter = _PathConverter(document)
        made["paths"] = {path: converter.item(item) for path, item in paths.items()}
    return made


def _servers(document: JsonObject) -> list[Json]:
    """Return the server; without a host it is relative to the document's own URL."""
    host = text_or_empty(document.get("host"))
    base = text_or_empty(document.get("basePath"))
    if not base.startswith("/"):
        base = f"/{base}"
    if not host:
        return [{"url": base}]
    schemes = array_or_empty(document.get("schemes"))
    if "http" in schemes and "https" not in schemes:
        scheme = "http"
    else:
        scheme = "https"
    return [{"url": f"{scheme}://{host}{base}"}]


def _scheme(old: JsonObject) -> Json:
    if old.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    if old.get("type") != "oauth2":
        return dict(old)
    flow = only_members(old, ("authorizationUrl", "tokenUrl"))
    flow["scopes"] = old.get("scopes") or {}
    kind = _FLOWS.get(str(old.get("flow")), "implicit")
    return {"type": "oauth2", "flows": {kind: flow}}


class _PathConverter:
    """Converts the paths of one document.

    Args:
        document: The document of Swagger 2.0.
    """

    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._consumes = _media_types(document.get("consumes"))
        self._produces = _media_types(document.get("produces"))

    def item(self, item: object) -> Any:
        """Return a path item; a malformed one is returned as it is, for the reader to report."""
        members = as_object(item)
        if members is None:
            return item
        node = dict(members)
        shared = array_or_empty(node.pop("parameters", None))
        for method in _METHODS:
            operation = as_object(node.get(method))
            if operation is not None:
                node[method] = self._operation(operation, shared)
        return node

    def _operation(self, operation: JsonObject, shared: Sequence[Any]) -> Json:
        node = dict(operation)
        own = array_or_empty(node.pop("parameters", None))
        consumes = _media_types(node.pop("consumes", None)) or self._consumes
        produces = _media_types(node.pop("produces", None)) or self._produces or [_JSON]
        if schemes := as_array(node.pop("schemes", None)):
            node["servers"] = _servers({**self._document, "schemes": schemes})
        given = self._resolved([*shared, *own])
        body = _body(given, consumes)
        if body is not None:
            node["requestBody"] = body
        node["parameters"] = [_parameter(one) for one in given if not _is_of_body(one)]
        responses = object_or_empty(node.get("responses"))
        node["responses"] = {str(status): self._response(one, produces) for status, one in responses.items()}
        return node

    def _resolved(self, parameters: Sequence[Any]) -> list[Any]:
        """Return the parameters behind their references; of two with one name and location the last counts."""
        found: dict[object, Any] = {}
        for number, one in enumerate(parameters):
            node = self._target(one)
            known = as_object(node)
            if known is None:
                # malformed: the reader reports it
                found[number] = node
            else:
                found[known.get("name"), known.get("in")] = node
        return list(found.values())

    def _response(self, response: object, produces: Sequence[str]) -> object:
        node = as_object(self._target(response))
        if node is None:
            return response
        if "schema" not in node:
            return node
        kept = without_members(node, "schema", "examples")
        schema = _schema(object_or_empty(node["schema"]))
        # no reader of ours uses them, and their form differs
        kept["headers"] = {}
        kept["content"] = {kind: {"schema": schema} for kind in produces}
        return kept

    def _target(self, node: object) -> Any:
        """Return the target of a chain of references; one that leads nowhere stays, for the reader to report."""
        for _ in range(_MAX_HOPS):
            ref = object_or_empty(node).get("$ref")
            if not isinstance(ref, str) or not ref.startswith("#/"):
                return node
            found = local_target(dict(self._document), ref)
            if found is None:
                return node
            node = found
        return node


def _is_of_body(parameter: object) -> bool:
    return object_or_empty(parameter).get("in") in ("body", "formData")


def _body(parameters: Sequence[Any], consumes: Sequence[str]) -> Json | None:
    """Return the `requestBody` of an operation: its body parameter, or the fields of its form."""
    fields: dict[str, JsonObject] = {}
    for one in parameters:
        node = object_or_empty(one)
        if node.get("in") == "body":
            body = only_members(node, ("description", "required"))
            body["content"] = {kind: {"schema": node.get("schema", {})} for kind in consumes or [_JSON]}
            return body
        name = node.get("name")
        if node.get("in") == "formData" and isinstance(name, str):
            fields[name] = node
    if fields:
        return _form(fields, consumes)
    return None


def _form(fields: Mapping[str, JsonObject], consumes: Sequence[str]) -> Json:
    needed = [name for name, field in fields.items() if field.get("required") is True]
    schema: Json = {"type": "object", "properties": {}}
    if needed:
        schema["required"] = needed
    encoding: Json = {}
    for name, field in fields.items():
        own = _own_schema(field)
        if "description" in field:
            own["description"] = field["description"]
        schema["properties"][name] = own
        if field.get("type") == "array":
            separator = _separator_of(field, ())
            if separator is None:
                encoding[name] = {"style": "form", "explode": _is_repeated(field)}
            else:
                schema["properties"][name] = _separated(field, separator)
    forms = [kind for kind in consumes if kind.startswith((_MULTIPART, _FORM))]
    kind = next(iter(forms), _FORM)
    if any(field.get("type") == "file" for field in fields.values()):
        # the only form that can contain a file
        kind = _MULTIPART
    media: Json = {"schema": schema}
    if encoding and kind == _FORM:
        media["encoding"] = encoding
    return {"required": bool(needed), "content": {kind: media}}


def _parameter(parameter: object) -> Any:
    node = as_object(parameter)
    if node is None or "$ref" in node:
        return parameter
    made = only_members(node, ("name", "in", "description", "required"))
    made["schema"] = _own_schema(node)
    if node.get("type") != "array":
        return made
    styles: Mapping[str, str] = {}
    usual = "simple"
    if node.get("in") == "query":
        styles = _STYLES
        usual = "form"
    separator = _separator_of(node, styles)
    if separator is not None:
        made["schema"] = _separated(node, separator)
        return made
    made["style"] = styles.get(str(node.get("collectionFormat")), usual)
    made["explode"] = _is_repeated(node)
    return made


def _own_schema(parameter: JsonObject) -> Json:
    """Return the schema of a parameter, which Swagger 2.0 writes among its other members."""
    return _schema(without_members(parameter, *_NOT_OF_SCHEMA))


def _is_repeated(parameter: JsonObject) -> bool:
    return parameter.get("collectionFormat") == "multi"


def _separator_of(parameter: JsonObject, writable: Container[str]) -> str | None:
    """Return the separator of a list that OpenAPI 3 has no style for; None for every other list."""
    collection = text_or_empty(parameter.get("collectionFormat"))
    if collection in writable:
        return None
    return _SEPARATORS.get(collection)


def _separated(parameter: JsonObject, separator: str) -> Json:
    """Return the schema of a list that is written as one text."""
    description = text_or_empty(parameter.get("description")).strip()
    return {"type": "string", "description": f"{description} Several values, separated by {separator}.".strip()}


def _schema(old: JsonObject) -> Json:
    """Return a schema of a parameter or a response: a file is bytes, and `collectionFormat` is not a keyword."""
    made = without_members(old, "collectionFormat")
    if made.get("type") == "file":
        made["type"] = "string"
        made["format"] = "binary"
    if made.get("x-nullable") is True:
        made["nullable"] = True
    items = as_object(made.get("items"))
    if items is not None:
        made["items"] = _schema(items)
    return made


def _media_types(given: object) -> list[str]:
    if isinstance(given, str):
        return [given]
    return text_entries(given)
