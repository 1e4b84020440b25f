"""Conversion of a Swagger 2.0 document to OpenAPI 3.0. Pure.

Only the parts that 3.0 writes in another form are rewritten: servers, parameters, bodies, responses and security
schemes. Schemas stay where they are, in `definitions`, so the document's references to them keep working.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, cast

from toolweave.protocol.json_types import as_array, as_object, as_text
from toolweave.schema._limits import local_target

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


def is_swagger(document: Mapping[str, Any]) -> bool:
    """Return whether a document is one of Swagger 2.0; YAML may hold the version as a number."""
    return str(document.get("swagger")) in ("2.0", "2")


def converted(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Swagger 2.0 document as one of OpenAPI 3.0.3."""
    made = {name: value for name, value in document.items() if name not in _REWRITTEN}
    made["openapi"] = "3.0.3"
    made["servers"] = _servers(document)
    schemes = as_object(document.get("securityDefinitions")) or {}
    made["components"] = {"securitySchemes": {name: _scheme(as_object(one) or {}) for name, one in schemes.items()}}
    paths = document.get("paths", {})
    if isinstance(paths, Mapping):
        converter = _PathConverter(document)
        made["paths"] = {path: converter.item(item) for path, item in cast("Mapping[str, Any]", paths).items()}
    else:
        made["paths"] = paths  # the reader reports it
    return made


def _servers(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the server; without a host it is relative to the document's own URL."""
    host = as_text(document.get("host")) or ""
    base = as_text(document.get("basePath")) or "/"
    if not base.startswith("/"):
        base = f"/{base}"
    if not host:
        return [{"url": base}]
    schemes = [one for one in as_array(document.get("schemes")) or () if one in ("https", "http")]
    scheme = "http" if schemes == ["http"] else "https"
    return [{"url": f"{scheme}://{host}{base}"}]


def _scheme(old: Mapping[str, Any]) -> dict[str, Any]:
    if old.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    if old.get("type") != "oauth2":
        return dict(old)
    urls = {name: old[name] for name in ("authorizationUrl", "tokenUrl") if name in old}
    flow = _FLOWS.get(str(old.get("flow")), "implicit")
    return {"type": "oauth2", "flows": {flow: {**urls, "scopes": old.get("scopes") or {}}}}


class _PathConverter:
    """Converts the paths of one document.

    Args:
        document: The document of Swagger 2.0.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._consumes = _media_types(document.get("consumes"))
        self._produces = _media_types(document.get("produces"))

    def item(self, item: object) -> Any:
        """Return a path item; a malformed one is returned as it is, for the reader to report."""
        if not isinstance(item, Mapping):
            return item
        node = dict(cast("Mapping[str, Any]", item))
        shared = as_array(node.pop("parameters", None)) or []
        for method in _METHODS:
            operation = node.get(method)
            if isinstance(operation, Mapping):
                node[method] = self._operation(cast("Mapping[str, Any]", operation), shared)
        return node

    def _operation(self, operation: Mapping[str, Any], shared: Sequence[Any]) -> dict[str, Any]:
        node = dict(operation)
        own = as_array(node.pop("parameters", None)) or []
        consumes = _media_types(node.pop("consumes", None)) or self._consumes
        produces = _media_types(node.pop("produces", None)) or self._produces or [_JSON]
        if schemes := as_array(node.pop("schemes", None)):
            node["servers"] = _servers({**self._document, "schemes": schemes})
        given = self._resolved([*shared, *own])
        body = _body(given, consumes)
        if body is not None:
            node["requestBody"] = body
        node["parameters"] = [_parameter(one) for one in given if not _is_of_body(one)]
        responses = as_object(node.get("responses")) or {}
        node["responses"] = {str(status): self._response(one, produces) for status, one in responses.items()}
        return node

    def _resolved(self, parameters: Sequence[Any]) -> list[Any]:
        """Return the parameters behind their references; of two with one name and place the last counts."""
        found: dict[Any, Any] = {}
        for number, one in enumerate(parameters):
            node = self._target(one)
            known = as_object(node)
            key: Any = number if known is None else (known.get("name"), known.get("in"))
            found[key] = node
        return list(found.values())

    def _response(self, response: object, produces: Sequence[str]) -> Any:
        node = as_object(self._target(response))
        if node is None or "schema" not in node:
            if node is None:
                return response
            return node
        kept = {name: value for name, value in node.items() if name not in ("schema", "examples")}
        schema = _schema(as_object(node["schema"]) or {})
        kept["headers"] = {}  # no reader of ours uses them, and their form differs
        kept["content"] = {kind: {"schema": schema} for kind in produces}
        return kept

    def _target(self, node: object) -> Any:
        """Return the target of a chain of references; one that leads nowhere stays, for the reader to report."""
        for _ in range(_MAX_HOPS):
            known = as_object(node)
            ref = None if known is None else known.get("$ref")
            if not isinstance(ref, str):
                return node
            if ref.startswith("#/"):
                found = local_target(dict(self._document), ref)
            else:
                found = None
            if found is None:
                return node
            node = found
        return node


def _is_of_body(parameter: object) -> bool:
    return (as_object(parameter) or {}).get("in") in ("body", "formData")


def _body(parameters: Sequence[Any], consumes: Sequence[str]) -> dict[str, Any] | None:
    """Return the `requestBody` of an operation: its body parameter, or the fields of its form."""
    fields: dict[str, Mapping[str, Any]] = {}
    for one in parameters:
        node = as_object(one) or {}
        if node.get("in") == "body":
            content = {kind: {"schema": node.get("schema", {})} for kind in consumes or [_JSON]}
            about = {name: node[name] for name in ("description", "required") if name in node}
            return {**about, "content": content}
        name = node.get("name")
        if node.get("in") == "formData" and isinstance(name, str):
            fields[name] = node
    if fields:
        return _form(fields, consumes)
    return None


def _form(fields: Mapping[str, Mapping[str, Any]], consumes: Sequence[str]) -> dict[str, Any]:
    needed = [name for name, field in fields.items() if field.get("required") is True]
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    if needed:
        schema["required"] = needed
    encoding: dict[str, Any] = {}
    for name, field in fields.items():
        own = _schema({key: value for key, value in field.items() if key not in _NOT_OF_SCHEMA})
        if "description" in field:
            own["description"] = field["description"]
        schema["properties"][name] = own
        if field.get("type") == "array":
            separator = _separator_of(field, ())
            if separator is None:
                encoding[name] = {"style": "form", "explode": _is_repeated(field)}
            else:
                schema["properties"][name] = _separated(field, separator)
    has_file = any(field.get("type") == "file" for field in fields.values())
    forms = [kind for kind in consumes if kind.startswith((_MULTIPART, _FORM))]
    kind = _MULTIPART if has_file else next(iter(forms), _FORM)
    media: dict[str, Any] = {"schema": schema}
    if encoding and kind == _FORM:
        media["encoding"] = encoding
    return {"required": bool(needed), "content": {kind: media}}


def _parameter(parameter: object) -> Any:
    node = as_object(parameter)
    if node is None or "$ref" in node:
        return parameter
    schema = _schema({name: value for name, value in node.items() if name not in _NOT_OF_SCHEMA})
    made = {name: node[name] for name in ("name", "in", "description", "required") if name in node}
    made["schema"] = schema
    if node.get("type") != "array":
        return made
    in_query = node.get("in") == "query"
    separator = _separator_of(node, _STYLES if in_query else ())
    if separator is not None:
        made["schema"] = _separated(node, separator)
        return made
    usual = "form" if in_query else "simple"
    made["style"] = _STYLES.get(str(node.get("collectionFormat")), usual) if in_query else usual
    made["explode"] = _is_repeated(node)
    return made


def _is_repeated(parameter: Mapping[str, Any]) -> bool:
    return parameter.get("collectionFormat") == "multi"


def _separator_of(parameter: Mapping[str, Any], writable: Container[str]) -> str | None:
    """Return the separator of a list that OpenAPI 3 has no style for; None for every other list."""
    collection = as_text(parameter.get("collectionFormat")) or "csv"
    if collection in writable:
        return None
    return _SEPARATORS.get(collection)


def _separated(parameter: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """Return the schema of a list that is written as one text."""
    about = (as_text(parameter.get("description")) or "").strip()
    return {"type": "string", "description": f"{about} Several values, separated by {separator}.".strip()}


def _schema(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of a parameter or a response: a file is bytes, and a list's own format is no keyword."""
    made = {name: value for name, value in old.items() if name != "collectionFormat"}
    if made.get("type") == "file":
        made["type"], made["format"] = "string", "binary"
    if made.get("x-nullable") is True:
        made["nullable"] = True
    items = as_object(made.get("items"))
    if items is not None:
        made["items"] = _schema(items)
    return made


def _media_types(given: object) -> list[str]:
    if isinstance(given, str):
        return [given]
    return [one for one in as_array(given) or () if isinstance(one, str)]
