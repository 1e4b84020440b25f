"""The objects of a module that can be served: servers, applications, toolsets, agents, functions. Serves nothing."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast, get_type_hints

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
        return f"{self.file or self.folder or self.module}{':' if self.path else ''}{self.path}"


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
    agents = tuple(item for item in items if is_agent(item))
    tools = tuple(item for item in items if not is_agent(item))
    what = next((item for item in tools if isinstance(item, (type, ModuleType))), None)
    if what is not None or not items:
        if what is None:
            kind = "empty"
        elif isinstance(what, ModuleType):
            kind = "a module"
        else:
            kind = f"the class {what.__name__}"
        raise CommandError(f"{place}: {name!r} is {kind}", hint=_hint(place, module))
    _check(place, module, tools, name)
    return ServedObject(place=place, tools=tools, agents=agents)


def items_of(value: object) -> tuple[Any, ...]:
    """Return the items of a list or another iterable of tools and toolsets; any other value as the only item."""
    from toolweave.tools import Toolset  # --help imports this module

    if isinstance(value, Iterable) and not isinstance(value, (Toolset, str, bytes, Mapping)):
        return tuple(cast("Iterable[Any]", value))
    return (cast("Any", value),)


def is_agent(value: object) -> bool:
    """Whether a value is served as an agent: it has a `name` and `as_tool()`."""
    return (
        not isinstance(value, type)
        and isinstance(getattr(value, "name", None), str)
        and callable(getattr(value, "as_tool", None))
    )


def is_sdk_server(value: object) -> bool:
    """Whether a value is a server object of the official SDK or of FastMCP."""
    from toolweave.serve._folder.plain_functions import packages_of  # as above

    return bool(packages_of(type(value)).intersection(_SDK_PACKAGES)) and callable(getattr(value, "run", None))


def _check(place: ObjectPath, module: ModuleType, tools: tuple[Any, ...], name: str) -> None:
    """Reject values that are no tools."""
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
    """Whether a value offers tools and is no function: an application, a server object, a toolset."""
    from toolweave.openapi import OpenApiToolset  # as above
    from toolweave.tools import Toolset

    if isinstance(value, (type, ModuleType)):
        return False
    return is_sdk_server(value) or isinstance(value, (Toolset, OpenApiToolset)) or _is_application(value)


def _is_factory(value: object) -> bool:
    """Whether a value is a function that, by its annotation, makes a server or an application of no arguments."""
    if not inspect.isfunction(value):
        return False
    if any(one.default is one.empty for one in inspect.signature(value).parameters.values()):
        return False
    try:
        made = get_type_hints(value).get("return")
    except Exception:  # boundary: annotations are the author's code
        return False
    if not isinstance(made, type):
        return False
    from toolweave.serve._folder.plain_functions import packages_of  # as above
    from toolweave.serve._runners import ServerRunners

    of_framework = packages_of(made).intersection((*_SDK_PACKAGES, "starlette", "django"))
    return issubclass(made, ServerRunners) or bool(of_framework)


def _named(module: ModuleType, wanted: Any) -> dict[str, Any]:  # wanted: a predicate of any value
    return {name: value for name, value in vars(module).items() if not name.startswith("__") and wanted(value)}


def _only(place: ObjectPath, named: Mapping[str, Any], *, named_as: str) -> Any:
    """Return the only object, or of several the one with a usual name; None for none.

    Raises:
        CommandError: There are several, and none has a usual name.
    """
    different = {id(value): value for value in named.values()}
    if len(different) < 2:
        return next(iter(different.values()), None)
    usual = next((named[name] for name in USUAL if name in named), None)
    if usual is None:
        raise CommandError(f"{place}: it has several {named_as}", hint=f"name one: {place}:{' or :'.join(named)}")
    return usual


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
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    own = {name: value for name, value in public.items() if not isinstance(value, ModuleType)}
    shown = [f"{name} ({_kind(value)})" for name, value in list(own.items())[:_MAX_SHOWN]]
    if shown:
        has = f"it has {', '.join(shown)}"
    else:
        has = "it has no public names"
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
