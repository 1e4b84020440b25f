"""The routes of an application that publishes no OpenAPI document, as one: of Starlette and of Django.

Neither framework is imported: if a framework is not loaded, an application cannot be an application of it.
"""

# The two halves of this module find the routes of one framework each and do not use each other. Frameworks keep some
# facts in attributes without documentation, so these are read with a default, and a route that cannot be read is only
# missing itself.

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from toolweave._json_types import Json, JsonObject, as_object, object_or_empty
from toolweave.openapi._document import escaped
from toolweave.openapi._operations import OperationProblem

_READING = frozenset(("get", "query"))
_METHODS = ("get", "query", "post", "put", "patch", "delete")
_ANSWER: Json = {"200": {"description": "The response."}}
_TYPES: dict[str, Json] = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "uuid": {"type": "string", "format": "uuid"},
    "path": {"type": "string"},
}
"""Schemas of path parameters, by the name that both frameworks give a converter."""
_SEGMENT: Json = {"type": "string", "pattern": "^[^/]+$"}
_QUERY: Json = {
    "name": "query",
    "in": "query",
    "description": "Members of the query string, if the route reads any.",
    "schema": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
}
_BODY: Json = {
    "description": "The body, as JSON, if the route reads one.",
    "content": {"application/json": {"schema": {}}},
}
_MAX_DEPTH = 32
_REGEX_MARKS = re.compile(r"^\^|\(\?|\$$")
"""Matches a part that patterns of regular expressions have, and paths of Django lack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """One method of one route.

    Attributes:
        path: The path, with its parameters in braces.
        name: The name of the route, or "".
        handler: The function whose docstring describes the route.
        parameters: The schemas of the path parameters.
    """

    method: str
    path: str
    name: str
    handler: Any
    parameters: Mapping[str, Json]


@dataclass(slots=True)
class RoutesDocument:
    """A document made from the routes of an application.

    Attributes:
        document: The OpenAPI document.
        problems: Routes that are not in the document, with the reasons.
    """

    document: Json
    problems: list[OperationProblem] = field(default_factory=list[OperationProblem])


def document_of_routes(app: object) -> RoutesDocument | None:
    """Return a document of an application's routes, or None if its framework is unknown.

    Routes do not declare which query and body they read, so both are open arguments.
    """
    problems: list[OperationProblem] = []
    if _is_django(app):
        routes = list(_django_routes(problems))
    elif _is_starlette(app):
        routes = list(_starlette_routes(app, "", {}, 0))
    else:
        return None
    named = Counter(route.name for route in routes)
    paths: Json = {}
    for route in routes:
        operation_id = route.name if named[route.name] == 1 else ""
        paths.setdefault(route.path, {}).setdefault(route.method, _operation(route, operation_id))
    title = str(getattr(app, "title", None) or "application")
    return RoutesDocument({"openapi": "3.1.0", "info": {"title": title, "version": "0"}, "paths": paths}, problems)


def framework_origin(app: object) -> str | None:
    """Return the origin of a Django application, by its settings; None for every other application."""
    if not _is_django(app):
        return None
    settings = import_module("django.conf").settings
    named = [str(host).removeprefix(".") for host in settings.ALLOWED_HOSTS if "*" not in str(host)]
    if not named or "localhost" in named:
        host = "localhost"
    else:
        host = named[0]
    scheme = "https" if settings.SECURE_SSL_REDIRECT else "http"
    return f"{scheme}://{host}"


def asgi_of(app: object) -> Any:
    """Return the ASGI application of the same project for Django's WSGI application, and every other value as it is."""
    handler = _class("django.core.handlers.wsgi", "WSGIHandler")
    if handler is None or not isinstance(app, handler):
        return app
    return import_module("django.core.asgi").get_asgi_application()


def is_asgi(value: object) -> bool:
    """Return whether a value is called as an application of ASGI, by its class or by the names of its parameters."""
    if _is_django(asgi_of(value)) or _is_starlette(value):
        return True
    return _parameters_of(value) == ["scope", "receive", "send"]


def is_wsgi(value: object) -> bool:
    """Return whether a value is called as an application of WSGI, by the names of its parameters."""
    return _parameters_of(value)[-1:] == ["start_response"]


def _parameters_of(value: object) -> list[str]:
    if inspect.isclass(value) or not callable(value):
        return []
    try:
        return list(inspect.signature(value).parameters)
    except (TypeError, ValueError):  # built in, or it refuses
        return []


def _operation(route: _Route, operation_id: str) -> Json:
    text, members = _described(route.handler)
    parameters: list[JsonObject] = []
    for name, schema in route.parameters.items():
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    made: Json = {"parameters": [*parameters, _QUERY], "responses": _ANSWER}
    if route.method not in (*_READING, "delete"):
        made["requestBody"] = _BODY
    if operation_id:
        made["operationId"] = operation_id
    if text:
        summary, _, rest = text.partition("\n")
        made["summary"] = summary.strip()
        made["description"] = rest.strip()
    return {**made, **members}


def _described(handler: object) -> tuple[str, Mapping[str, Any]]:
    """Return the text of a docstring, and the members of an operation after `---` in it, as Starlette reads them."""
    if not inspect.isroutine(handler):
        return "", {}
    docstring = inspect.getdoc(handler) or ""
    text, separator, below = docstring.partition("---\n")
    if not separator:
        return text.strip(), {}
    import yaml  # few docstrings have it

    try:
        return text.strip(), object_or_empty(yaml.safe_load(below))
    except yaml.YAMLError:
        return text.strip(), {}


# Starlette and FastAPI


def _is_starlette(app: object) -> bool:
    classes = (_class("starlette.applications", "Starlette"), _class("starlette.routing", "Router"))
    return isinstance(app, tuple(filter(None, classes)))


def _starlette_routes(app: Any, prefix: str, parameters: Mapping[str, Json], depth: int) -> Iterator[_Route]:
    # an application may be mounted in itself
    if depth > _MAX_DEPTH:
        return
    routing = sys.modules["starlette.routing"]
    for one in getattr(app, "routes", ()):
        if not isinstance(one, (routing.Mount, routing.Route)):
            continue
        own = {name: _schema_of(converter, "Convertor") for name, converter in one.param_convertors.items()}
        if isinstance(one, routing.Route):
            if one.include_in_schema:
                yield from _methods_of_route(one, prefix, {**parameters, **own})
            continue
        # the rest of the path, which the routes below describe
        del own["path"]
        below = prefix + one.path_format.removesuffix("/{path}")
        yield from _starlette_routes(one, below, {**parameters, **own}, depth + 1)


def _methods_of_route(route: Any, prefix: str, parameters: Mapping[str, Json]) -> Iterator[_Route]:
    endpoint = route.endpoint
    if inspect.isclass(endpoint):
        handlers = {method: getattr(endpoint, method) for method in _METHODS if hasattr(endpoint, method)}
    else:
        allowed = route.methods or {"GET"}
        handlers = {method: endpoint for method in _METHODS if method.upper() in allowed}
    for method, handler in handlers.items():
        yield _Route(
            method=method,
            path=prefix + route.path_format,
            name=_name_of_method(route.name, method, handlers),
            handler=handler,
            parameters=parameters,
        )


def _name_of_method(name: str, method: str, methods: Collection[str]) -> str:
    """Return the name of one method of a route, with the method in it if the route has several."""
    if len(methods) > 1:
        return f"{method}_{name}"
    return name


def _schema_of(converter: object, ending: str) -> Json:
    """Return the schema of a path parameter, by the class of its converter, else by its pattern."""
    word = type(converter).__name__.removesuffix(ending).lower()
    known = _TYPES.get({"integer": "int"}.get(word, word))
    if known is not None:
        return known
    pattern = getattr(converter, "regex", None)
    if not isinstance(pattern, str) or pattern == "[^/]+":
        return _SEGMENT
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


# Django


def _is_django(app: object) -> bool:
    handler = _class("django.core.handlers.asgi", "ASGIHandler")
    return handler is not None and isinstance(app, handler)


def _django_routes(problems: list[OperationProblem]) -> Iterator[_Route]:
    settings = import_module("django.conf").settings
    is_csrf_checked = "CsrfViewMiddleware" in " ".join(map(str, settings.MIDDLEWARE))
    for path, parameters, one in _django_patterns(import_module("django.urls").get_resolver(), "", {}, 0):
        view = one.callback
        methods = _django_methods(view)
        for method in methods:
            if is_csrf_checked and _requires_token(view, method):
                reason = "its view requires a CSRF token, which only a form of the site has; mark it @csrf_exempt"
                problems.append(_problem(method, path, reason))
                continue
            name = str(one.name or getattr(view, "__name__", ""))
            yield _Route(
                method=method,
                path=path,
                name=_name_of_method(name, method, methods),
                handler=_django_handler(view, method),
                parameters=parameters,
            )


def _requires_token(view: Any, method: str) -> bool:
    return method not in _READING and not getattr(view, "csrf_exempt", False)


def _django_patterns(
    resolver: Any, prefix: str, parameters: Mapping[str, Json], depth: int
) -> Iterator[tuple[str, Mapping[str, Json], Any]]:
    """Yield path, parameters and pattern of every view except those of Django's admin, which are for a browser."""
    simplified = import_module("django.contrib.admindocs.views").simplify_regex
    for one in resolver.url_patterns:
        is_admin = getattr(one, "app_name", None) == "admin"
        if is_admin or depth > _MAX_DEPTH:
            continue
        text = str(one.pattern)
        converters = one.pattern.converters
        if _REGEX_MARKS.search(text):
            text = simplified(text).lstrip("/")
        for name in converters:
            text = text.replace(f"<{_declared(text, name)}>", f"{{{name}}}")
        # the names of a regular expression
        text = text.replace("<", "{").replace(">", "}")
        own = {name: _schema_of(converter, "Converter") for name, converter in converters.items()}
        known = {**parameters, **own}
        if hasattr(one, "url_patterns"):
            yield from _django_patterns(one, prefix + text, known, depth + 1)
        else:
            yield f"/{prefix}{text}", known, one


def _declared(text: str, name: str) -> str:
    """Return a parameter as its route writes it: `int:number` or `number`."""
    for part in text.split("<")[1:]:
        written = part.partition(">")[0]
        if written.rpartition(":")[2] == name:
            return written
    return name


def _django_methods(view: Any) -> Sequence[str]:
    """Return the methods of a view: those of its class, those that its decorator requires, or GET."""
    # a view set of Django REST framework
    actions = as_object(getattr(view, "actions", None))
    if actions is not None:
        return [method for method in _METHODS if method in actions]
    owner = _django_class(view)
    if owner is not None:
        return [method for method in _METHODS if hasattr(owner, method)]
    required = _required_methods(view)
    if required is None:
        # A view that is exempt from the check of forms is meant for programs that post to it.
        if getattr(view, "csrf_exempt", False):
            return ["get", "post"]
        return ["get"]
    return [method for method in _METHODS if method.upper() in required]


def _django_class(view: Any) -> Any:
    return getattr(view, "view_class", None) or getattr(view, "cls", None)


def _django_handler(view: Any, method: str) -> Any:
    owner = _django_class(view)
    if owner is None:
        if inspect.isfunction(view):
            return inspect.unwrap(view)
        return view
    actions = object_or_empty(getattr(view, "actions", None))
    handler = getattr(owner, actions.get(method, method), None)
    if getattr(handler, "__doc__", None):
        return handler
    return view


def _required_methods(view: Any) -> Iterable[str] | None:
    """Return the methods that `require_http_methods` allows, which only the closure of its wrapper holds."""
    while inspect.isfunction(view):
        required: Iterable[str] | None = inspect.getclosurevars(view).nonlocals.get("request_method_list")
        if required is not None:
            return required
        view = getattr(view, "__wrapped__", None)
    return None


def _problem(method: str, path: str, reason: str) -> OperationProblem:
    pointer = f"/paths/{escaped(path)}/{method}"
    return OperationProblem(operation=f"{method.upper()} {path}", pointer=pointer, reason=reason)


def _class(module: str, name: str) -> Any:
    """Return a class of a module that is loaded; None for every other module."""
    return getattr(sys.modules.get(module), name, None)
