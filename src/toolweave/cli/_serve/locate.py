"""Import of the object to serve from `FILE.py[:object]`, `MODULE:OBJECT` or a folder. Starts and serves nothing."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, cast

from toolweave.cli._exit_codes import CommandError

if TYPE_CHECKING:
    from toolweave.serve import ServedFolder

USUAL = ("server", "mcp", "app")
"""Names of objects to try when none is given."""
_CONFIGS = (".json", ".jsonc", ".toml", ".yaml", ".yml")


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
        return self.path.rpartition(".")[2] if self.path not in ("", *USUAL) else self.module.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.file or self.folder or self.module}{':' if self.path else ''}{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedObject:
    """The imported object, by kind.

    Attributes:
        place: Its location.
        server: The object, if it is a server already; else None.
        tools: The tools and toolsets, for `create_mcp_server(tools=...)`.
        agents: The agents, for `create_mcp_server(agents=...)`.
        folder: The parts that the files of a folder are, for `create_mcp_server(folder=...)`; else None.
        version: The module's `__version__`, or `"0"`.
    """

    place: ObjectPath
    server: Any = None  # an McpServer or a Gateway; the commands are imported before serve is
    tools: tuple[Any, ...] = ()
    agents: tuple[Any, ...] = ()
    folder: Any = None  # a ServedFolder; as above
    version: str = "0"


def parse_place(target: str) -> ObjectPath:
    """Parse a target: a folder, or a file or a module, and the object in it.

    A name without a slash that is both a folder and a module here is the module.

    Raises:
        CommandError: There is no such file, or it is none of them.
    """
    if _is_folder(target):
        found = Path(target).expanduser().resolve()
        return ObjectPath(file=None, module="folder", path="", folder=found)
    head, colon, path = target.rpartition(":")
    if not colon or not path or not all(part.isidentifier() for part in path.split(".")) or not head:
        head, path = target, ""
    if "/" in head or "\\" in head or Path(head).suffix in (".py", *_CONFIGS):
        file = Path(head).expanduser().resolve()
        if not file.is_file():
            raise CommandError(
                f"there is no file {head!r}", hint="FILE.py, FILE.py:object, MODULE:OBJECT or a folder is expected"
            )
        if file.suffix != ".py":
            hint = f"a config is served with --config {head}" if file.suffix in _CONFIGS else None
            raise CommandError(f"{head!r} is no Python file", hint=hint)
        return ObjectPath(file=file, module=file.stem, path=path)
    if not all(part.isidentifier() for part in head.split(".")):
        raise CommandError(f"{target!r} is neither a Python file nor the name of a module")
    return ObjectPath(file=None, module=head, path=path)


def find(place: ObjectPath) -> ServedObject:
    """Import the code and return the object to serve.

    Raises:
        CommandError: The code cannot be imported, there is no such object, or it cannot be served.
    """
    if place.folder is not None:
        return ServedObject(place=place, folder=_parts_of_folder(place.folder))
    module = load(place)
    version = str(getattr(module, "__version__", "0"))
    if place.path:
        return replace(_served(place, _attribute(module, place), place.path), version=version)
    found = _only_server(module, place)
    if found is not None:
        return ServedObject(place=place, server=found)
    for name in USUAL:
        if name in vars(module):
            return replace(_served(place, vars(module)[name], name), version=version)
    tools = tuple(_own_tools(module))
    if not tools:
        hint = "name the object, as in FILE.py:object; or make one with create_mcp_server(...) or @tool"
        raise CommandError(f"{place}: found no server, no {', '.join(USUAL)}, and no @tool function", hint=hint)
    return ServedObject(place=place, tools=tools, version=version)


def named_objects(place: ObjectPath) -> tuple[Any, ...]:
    """Import the code and return the named object, or the items of the list that it is.

    Raises:
        CommandError: The code cannot be imported, or there is no such object.
    """
    return _items(_attribute(load(place), place))


def load(place: ObjectPath) -> ModuleType:
    """Import the file or module; a file's own folder is searched for its imports, as Python does for a script.

    Raises:
        CommandError: It cannot be imported; the traceback of its own code is in the message.
    """
    if place.folder is not None:
        raise CommandError(f"{place} is a folder", hint="name a file in it: FILE.py or FILE.py:object")
    try:
        return _import_file(place.file, place.module) if place.file else _import_module(place.module)
    except ModuleNotFoundError as error:
        if place.file is None and error.name is not None and f"{place.module}.".startswith(f"{error.name}."):
            raise CommandError(
                f"there is no module {error.name!r} here", hint="run it from the folder it is in, or name its file"
            ) from None
        raise _broken(place, error) from None
    except SystemExit as error:
        hint = "start servers below `if __name__ == '__main__':`"
        raise CommandError(f"{place}: it ended the program (exit {error.code!r}) while loading", hint=hint) from None
    except Exception as error:  # boundary: whatever the user's code raises
        raise _broken(place, error) from None


def _is_folder(target: str) -> bool:
    path = Path(target).expanduser()
    if not path.is_dir():
        return False
    here = (path / "__init__.py", path.parent / f"{target}.py")
    return not target.isidentifier() or not any(file.is_file() for file in here)


def _parts_of_folder(path: Path) -> ServedFolder:
    from toolweave.serve import folder  # --help imports this module

    try:
        return folder(path)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None


def is_agent(value: object) -> bool:
    """Whether a value is served as an agent: it has a `name` and `as_tool()`."""
    return (
        not isinstance(value, type)
        and isinstance(getattr(value, "name", None), str)
        and callable(getattr(value, "as_tool", None))
    )


def _import_file(file: Path, name: str) -> ModuleType:
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if not name.isidentifier() or name in sys.modules or name in sys.stdlib_module_names:  # `json.py` is not `json`
        name = f"toolweave_served_{name}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise CommandError(f"{str(file)!r} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import_module(name: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path and not sys.flags.safe_path:  # which editors' entries ask for
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def _attribute(module: ModuleType, place: ObjectPath) -> Any:
    value: Any = module
    for part in place.path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            names = ", ".join(sorted(name for name in vars(module) if not name.startswith("_"))[:20]) or "nothing"
            raise CommandError(f"{place}: there is no {part!r}; it has {names}") from None
    return value


def _only_server(module: ModuleType, place: ObjectPath) -> Any:
    from toolweave.serve._runners import ServerRunners  # --help imports this module

    named = {name: value for name, value in vars(module).items() if isinstance(value, ServerRunners)}
    different = {id(value): value for value in named.values()}
    if len(different) < 2:
        return next(iter(different.values()), None)
    usual = next((named[name] for name in USUAL if name in named), None)
    if usual is None:
        raise CommandError(f"{place}: it has several servers", hint=f"name one: {place}:{' or :'.join(named)}")
    return usual


def _own_tools(module: ModuleType) -> Iterator[Any]:
    """Return the module's functions under `@tool`, in their order; those it imported are another module's."""
    from toolweave.tools import FunctionTool  # as above

    for value in vars(module).values():
        if isinstance(value, FunctionTool) and value.function.__module__ == module.__name__:  # pyright: ignore[reportUnknownMemberType]
            yield value  # pyright: ignore[reportUnknownVariableType]


def _served(place: ObjectPath, value: Any, name: str) -> ServedObject:
    from toolweave.errors import ToolweaveError  # as above
    from toolweave.serve._runners import ServerRunners
    from toolweave.tools import as_toolset

    if isinstance(value, ServerRunners):
        return ServedObject(place=place, server=value)
    items = _items(value)
    agents = tuple(item for item in items if is_agent(item))
    tools = tuple(item for item in items if not is_agent(item))
    what = next((item for item in tools if isinstance(item, (type, ModuleType))), None)
    if what is not None or not items:
        kind = "empty" if what is None else "a module" if isinstance(what, ModuleType) else f"the class {what.__name__}"
        raise CommandError(f"{place}: {name!r} is {kind}; a server, a Toolset, a function or a list of them is served")
    try:
        as_toolset(tools)
    except TypeError as error:
        raise CommandError(f"{place}: {name!r} cannot be served: {error}{_of_others(value)}") from None
    except ToolweaveError as error:
        raise CommandError(f"{place}: {name!r} cannot be served: {error}") from None
    return ServedObject(place=place, tools=tools, agents=agents)


def _items(value: object) -> tuple[Any, ...]:
    """Return the items of a list or another iterable of tools and toolsets; any other value as the only item."""
    from toolweave.tools import Toolset  # as above

    if isinstance(value, Iterable) and not isinstance(value, (Toolset, str, bytes, Mapping)):
        return tuple(cast("Iterable[Any]", value))
    return (cast("Any", value),)


def _of_others(value: object) -> str:
    package = type(value).__module__.partition(".")[0]
    return f" (it belongs to the package {package!r}; run it with that)" if package in ("mcp", "fastmcp") else ""


def _broken(place: ObjectPath, error: Exception) -> CommandError:
    lines = traceback.format_exception(type(error), error, _of_the_user(error.__traceback__))
    return CommandError(f"{place}: it cannot be loaded\n{''.join(lines).rstrip()}")


def _of_the_user(frames: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the leading frames of ours and of the import machinery."""
    while frames is not None and _is_machinery(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames


def _is_machinery(filename: str) -> bool:
    return filename == __file__ or "importlib" in filename
