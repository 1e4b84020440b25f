"""The objects of a module that can be served: servers, applications, toolsets, agents, functions. Serves nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_type_hints

from toolweave._json_types import Json, JsonObject
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._screen import note

USUAL = ("server", "mcp", "app", "application")
"""Names of objects to try when none is given."""
_SDK_PACKAGES = ("mcp", "fastmcp")
_MAX_SHOWN = 12
_WHAT_WORKS = (
    "a server, an application of FastAPI, Starlette or Django, a server object of FastMCP or the official SDK, a "
    "Toolset, an agent, a function, or a list of these is served"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPath:
    """The location of the object to serve.

    Attributes:
        file: The Python file, absolute; None for a module.
        module: The module's name; the file's stem for a file.
        path: The dotted name of the object inside; `""` when none was given.
        folder: The folder, absolute, whose files are served; None for a file or a module.
    """

    file: Path | None
    module: str
    path: str
    folder: Path | None = None

    @property
    def name(self) -> str:
        """The default name of a server."""
        if self.folder is not None:
            return self.folder.name or self.module
        if self.path not in ("", *USUAL):
            return self.path.rpartition(".")[2]
        return self.module.rpartition(".")[2]

    def __str__(self) -> str:
        source = self.file or self.folder or self.module
        return f"{source}:{self.path}" if self.path else str(source)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedObject:
    """The imported object, by kind.

    Attributes:
        place: Its location.
        server: The object, if it is a server already; else None.
        sdk_server: The object, if it is a server of the official SDK or of FastMCP; else None.
        api: The operations of an application, if the object is one; else None.
        tools: The tools and toolsets, for `create_mcp_server(tools=...)`.
        agents: The agents, for `create_mcp_server(agents=...)`.
        folder: The parts that the files of a folder are, for `create_mcp_server(folder=...)`; else None.
        version: The module's `__version__`, or `"0"`.
    """

    place: ObjectPath
    server: Any = None  # an McpServer or a Gateway; the commands are imported before serve is
    sdk_server: Any = None
    api: Any = None  # an OpenApiToolset; as above
    tools: tuple[Any, ...] = ()
    agents: tuple[Any, ...] = ()
    folder: Any = None  # a ServedFolder; as above
    version: str = "0"


def object_of_module(place: ObjectPath, module: ModuleType) -> ServedObject:
    """Return the object to serve of a module when none is named.

    That is the only server, else the object with a usual name, else the functions under `@tool`, else the only
    application, server object or toolset, else the public functions.

    Raises:
        CommandError: It has nothing that can be served, or several objects.
    """
    found = _only(place, _named(module, _is_server), named_as="servers")
    if found is not None:
        return ServedObject(place=place, server=found)
    for name in USUAL:
        if name in vars(module):
            return served_object(place, module, vars(module)[name], name)
    tools = tuple(_own_tools(module))
    if tools:
        return ServedObject(place=place, tools=tools)
    sources = _named(module, _is_source)
    found = _only(place, sources, named_as="objects that can be served")
    if found is not None:
        name = next(name for name, value in sources.items() if value is found)
        return served_object(place, module, found, name)
    return ServedObject(place=place, tools=_plain_tools(place, module))


def served_object(place: ObjectPath, module: ModuleType, value: Any, name: str) -> ServedObject:
    """Return one object of a module as it is served.

    Raises:
        CommandError: It cannot be served.
    """
    if _is_factory(value):
        value = value()
    if _is_server(value):
        return ServedObject(place=place, server=value)
    if is_sdk_server(value):
        return ServedObject(place=place, sdk_server=value)
    if _is_application(value):
        return ServedObject(place=place, api=_api(place, value, name))
    items = items_of(value)
    reason = _reason_not_to_serve(items)
    if reason is not None:
        raise CommandError(f"{place}: {name!r} is {reason}", hint=_hint(place, module))
    agents: list[Any] = []
    tools: list[Any] = []
    for item in items:
        (agents if is_agent(item) else tools).append(item)
    _check(place, module, tuple(tools), name)
    return ServedObject(place=place, tools=tuple(tools), agents=tuple(agents))


def _reason_not_to_serve(items: Sequence[object]) -> str | None:
    """Return why these items cannot be served as tools; None if their kinds may be."""
    if not items:
        return "empty"
    for item in items:
        if isinstance(item, ModuleType):
            return "a module"
        if isinstance(item, type):
            return f"the class {item.__name__}"
    return None


def items_of(value: object) -> tuple[Any, ...]:
    """Return the items of a list or another iterable of tools and toolsets; any other value as the only item."""
    from toolweave.tools import Toolset  # --help imports this module

    if isinstance(value, Iterable) and not isinstance(value, (Toolset, str, bytes, Mapping)):
        return tuple(cast("Iterable[Any]", value))
    return (cast("Any", value),)


def is_agent(value: object) -> bool:
    """Return whether a value is served as an agent: it has a `name` and `as_tool()`."""
    if isinstance(value, type) or not callable(getattr(value, "as_tool", None)):
        return False
    return isinstance(getattr(value, "name", None), str)


def is_sdk_server(value: object) -> bool:
    """Return whether a value is a server object of the official SDK or of FastMCP."""
    from toolweave.serve._folder.plain_functions import packages_of  # as above

    if packages_of(type(value)).isdisjoint(_SDK_PACKAGES):
        return False
    return callable(getattr(value, "run", None))


def _check(place: ObjectPath, module: ModuleType, tools: tuple[Any, ...], name: str) -> None:
    """Reject values that are not tools."""
    from toolweave.errors import ToolweaveError  # as above
    from toolweave.tools import as_toolset

    try:
        as_toolset(tools)
    except (TypeError, ToolweaveError) as error:
        message = f"{place}: {name!r} cannot be served: {error}"
        raise CommandError(message, hint=_hint(place, module)) from None


def _api(place: ObjectPath, value: Any, name: str) -> Any:
    from toolweave.errors import ConfigError  # as above
    from toolweave.openapi import openapi_tools
    from toolweave.serve import HttpApp

    if isinstance(value, HttpApp):
        raise CommandError(
            f"{place}: {name!r} is the application of an MCP server",
            hint=f"name the server itself, or run the application: uvicorn {place.module}:{name}",
        )
    try:
        return openapi_tools(value)
    except ConfigError as error:
        raise CommandError(f"{place}: {name!r} cannot be served: {error}") from None


def _is_server(value: object) -> bool:
    from toolweave.serve._runners import ServerRunners  # as above

    return isinstance(value, ServerRunners)


def _is_application(value: object) -> bool:
    from toolweave.openapi._routes import is_asgi, is_wsgi  # as above

    return is_asgi(value) or is_wsgi(value)


def _is_source(value: object) -> bool:
    """Return whether a value offers tools and is not a function: an application, a server object, a toolset."""
    from toolweave.openapi import OpenApiToolset  # as above
    from toolweave.tools import Toolset

    if isinstance(value, (type, ModuleType)):
        return False
    if isinstance(value, (Toolset, OpenApiToolset)):
        return True
    return is_sdk_server(value) or _is_application(value)


def _is_factory(value: object) -> bool:
    """Return whether a value is a function that its annotation declares to return a server or an application.

    Only functions without required arguments count.
    """
    if not inspect.isfunction(value):
        return False
    parameters = inspect.signature(value).parameters.values()
    if any(parameter.default is parameter.empty for parameter in parameters):
        return False
    try:
        made = get_type_hints(value).get("return")
    except Exception:  # boundary: annotations are the author's code
        return False
    if not isinstance(made, type):
        return False
    from toolweave.serve._folder.plain_functions import packages_of  # as above
    from toolweave.serve._runners import ServerRunners

    kind: type[object] = made
    if issubclass(kind, ServerRunners):
        return True
    return not packages_of(kind).isdisjoint((*_SDK_PACKAGES, "starlette", "django"))


def _named(module: ModuleType, wanted: Callable[[object], bool]) -> Json:
    found: Json = {}
    for name, value in vars(module).items():
        if not name.startswith("__") and wanted(value):
            found[name] = value
    return found


def _only(place: ObjectPath, named: JsonObject, *, named_as: str) -> Any:
    """Return the only object, or of several the one with a usual name; None without any.

    Raises:
        CommandError: There are several objects without a usual name.
    """
    # One object may have several names in a module.
    different = {id(value): value for value in named.values()}
    if len(different) < 2:
        return next(iter(different.values()), None)
    for name in USUAL:
        if name in named:
            return named[name]
    raise CommandError(f"{place}: it has several {named_as}", hint=f"name one: {place}:{' or :'.join(named)}")


def _own_tools(module: ModuleType) -> Iterator[Any]:
    """Return the module's functions under `@tool`, in their order; those it imported are another module's."""
    from toolweave.tools import FunctionTool  # as above

    for value in vars(module).values():
        if isinstance(value, FunctionTool) and value.function.__module__ == module.__name__:  # pyright: ignore[reportUnknownMemberType]
            yield value  # pyright: ignore[reportUnknownVariableType]


def _plain_tools(place: ObjectPath, module: ModuleType) -> tuple[Any, ...]:
    from toolweave.serve._folder.plain_functions import plain_functions  # as above

    tools, problems = plain_functions(module)
    if not tools:
        faults = "".join(f"\n- {problem}" for problem in problems)
        raise CommandError(f"{place}: nothing in it can be served{faults}", hint=_hint(place, module))
    for problem in problems:
        note(f"{place}: {problem}")
    names = ", ".join(tool.name for tool in tools)
    note(f"{place}: no function is marked with @tool, so its public functions are served: {names}")
    return tuple(tools)


def _hint(place: ObjectPath, module: ModuleType) -> str:
    """Return a hint with the public names of a module and the kinds that are served."""
    shown: list[str] = []
    for name, value in vars(module).items():
        if not name.startswith("_") and not isinstance(value, ModuleType):
            shown.append(f"{name} ({_kind(value)})")
    has = f"it has {', '.join(shown[:_MAX_SHOWN])}" if shown else "it has no public names"
    return f"{has}; {_WHAT_WORKS}: name one as in {_example(place)}:NAME"


def _example(place: ObjectPath) -> str:
    if place.file is None:
        return place.module
    return place.file.name


def _kind(value: object) -> str:
    if isinstance(value, type):
        return "a class"
    if inspect.isfunction(value):
        return "a function"
    return type(value).__name__
