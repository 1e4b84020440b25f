"""Import the Python files of a folder as one package, and offer their functions and objects.

Offered are the functions of a file under `@tool`, `@prompt`, `@resource` and `@skill`; of a folder that offers nothing
else, its public functions. A file that cannot be imported costs itself alone.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, cast

from toolweave.errors import DuplicateToolError
from toolweave.serve._folder.plain_functions import made_by_framework, plain_functions
from toolweave.serve._offers.folder import Folder
from toolweave.serve._offers.prompts import FunctionPrompt, PromptRegistry
from toolweave.serve._offers.resources import FunctionResource, ResourceRegistry
from toolweave.serve._offers.skills import FunctionSkill
from toolweave.serve._runners import ServerRunners
from toolweave.tools import FunctionTool, ToolRegistry

_log = logging.getLogger("toolweave.serve")

CODE_FOLDERS = ("tools", "prompts", "resources")
"""The folders whose Python files are imported, beside those of the folder itself."""
_SUFFIX = ".py"
_OTHERS = re.compile(r"_.*|test_.*|conftest\.py|setup\.py")
"""Python files of the folder that offer nothing. The others can import those that begin with `_`."""
_INIT = "__init__.py"

PythonPart: TypeAlias = (
    "FunctionTool[..., Any] | FunctionPrompt[..., Any] | FunctionResource[..., Any] | FunctionSkill[..., Any]"
)
"""A function that is offered."""


@dataclass(slots=True)
class PythonParts:
    """The parts of a server that Python files define.

    Attributes:
        problems: The files and functions that are left out, with the reasons.
        modules: The imported files, by their paths in the folder.
    """

    tools: list[FunctionTool[..., Any]] = field(default_factory=list[Any])
    prompts: list[FunctionPrompt[..., Any]] = field(default_factory=list[Any])
    resources: list[FunctionResource[..., Any] | FunctionSkill[..., Any]] = field(default_factory=list[Any])
    problems: list[str] = field(default_factory=list[str])
    modules: dict[str, ModuleType] = field(default_factory=dict[str, ModuleType])

    def add_plain_functions(self) -> None:
        """Offer the public functions of the files, for a folder in which nothing is marked."""
        registry = ToolRegistry()
        for place, module in self.modules.items():
            made = made_by_framework(module)
            # its functions are handlers of that
            if made is not None:
                self.problems.append(f"file {place!r} is left out: it makes {made}; serve that by its file")
                continue
            tools, problems = plain_functions(module)
            self.problems += [f"{problem} (in {place!r})" for problem in problems]
            for one in tools:
                try:
                    registry.add(one)
                except DuplicateToolError as error:
                    self.problems.append(f"a function of {place!r} is left out: {error}")
                    continue
                self.tools.append(one)
        if self.tools:
            names = ", ".join(one.name for one in self.tools)
            _log.warning("no function is marked with @tool, so the public functions are served: %s", names)


def python_parts(root: Path) -> PythonParts:
    """Import the Python files of a folder and return their parts.

    The folder is one package, so its files import one another by `from .other import name`.

    Args:
        root: The folder, resolved.
    """
    parts = PythonParts()
    files = list(_files(root))
    if not files:
        return parts
    try:
        package = _package(root)
    except (Exception, SystemExit) as error:  # boundary: the author's code
        parts.problems.append(f"Python files are left out, the package cannot be loaded: {_reason(error, root)}")
        _print_traceback(error)
        return parts
    collector = _Collector(parts)
    for file in files:
        place = file.relative_to(root)
        try:
            module = _module(package, place)
            functions = _functions(module)
        except (Exception, SystemExit) as error:  # boundary: the author's code
            reason = f"{_reason(error, root)}{_hint(error, file, root)}"
            parts.problems.append(f"file {place.as_posix()!r} is left out: {reason}")
            _print_traceback(error)
            continue
        parts.modules[place.as_posix()] = module
        for function in functions:
            collector.add(function, place.as_posix())
    return parts


def _files(root: Path) -> Iterator[Path]:
    """Return the files that are imported, in the order of their paths."""
    own = Folder(root, leave_out=lambda name: _OTHERS.fullmatch(name) is not None)
    for path, about in own.children(root):
        if about is not None and path.suffix == _SUFFIX:
            yield path
    for name in CODE_FOLDERS:
        below = root / name
        if below.is_symlink():
            continue
        yield from (path for path, _ in own.files(below) if path.suffix == _SUFFIX)


def _package(root: Path) -> str:
    """Make a package of a folder, replacing an earlier one of the same folder, and return its name."""
    digest = hashlib.sha256(str(root).encode(errors="surrogateescape")).hexdigest()[:8]
    name = f"toolweave_folder_{re.sub(r'[^A-Za-z0-9_]', '_', root.name)}_{digest}"
    for loaded in list(sys.modules):
        if loaded == name or loaded.startswith(f"{name}."):
            del sys.modules[loaded]
    importlib.invalidate_caches()
    init = root / _INIT
    where = [str(root)]
    spec: ModuleSpec | None = ModuleSpec(name, None, is_package=True)
    if init.is_file():
        spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=where)
    assert spec is not None
    spec.submodule_search_locations = where
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if spec.loader is not None:
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return name


def _module(package: str, place: Path) -> ModuleType:
    """Import a file of the package.

    Raises:
        ValueError: Its name cannot be the name of a module.
    """
    parts = place.with_suffix("").parts
    if any("." in part for part in parts):
        raise ValueError("a name with a dot before '.py', or in a folder, cannot be imported; rename it")
    return importlib.import_module(".".join((package, *parts)))


def _functions(module: ModuleType) -> list[PythonPart]:
    """Return the functions that a module offers, in their order; those it imports belong to other modules.

    Raises:
        ValueError: It makes another server.
    """
    made: dict[int, PythonPart] = {}
    for name, value in vars(module).items():
        if isinstance(value, ServerRunners):
            raise ValueError(
                f"it makes another server, {name!r}: serve that by its file, or define functions with @tool, "
                "@prompt and @resource instead"
            )
        if isinstance(value, (FunctionTool, FunctionPrompt, FunctionResource, FunctionSkill)):
            part = cast("PythonPart", value)
            if getattr(part.function, "__module__", None) == module.__name__:
                made.setdefault(id(part), part)
    return list(made.values())


class _Collector:
    """Adds functions to the parts; of two with one name the first stays.

    Args:
        parts: The parts.
    """

    def __init__(self, parts: PythonParts) -> None:
        self._parts = parts
        self._tools = ToolRegistry()
        self._prompts = PromptRegistry()
        self._resources = ResourceRegistry()
        self._skills: set[str] = set()

    def add(self, function: PythonPart, place: str) -> None:
        """Add a function of a file, or a problem."""
        try:
            self._add(function)
        except ValueError as error:
            # also a `DuplicateToolError`
            self._parts.problems.append(f"a function of {place!r} is left out: {error}")

    def _add(self, function: PythonPart) -> None:
        parts = self._parts
        if isinstance(function, FunctionTool):
            self._tools.add(function)
            parts.tools.append(function)
        elif isinstance(function, FunctionPrompt):
            self._prompts.add(function)
            parts.prompts.append(function)
        elif isinstance(function, FunctionResource):
            self._resources.add(function)
            parts.resources.append(function)
        else:
            uri = function.entry.uri
            if uri in self._skills:
                raise ValueError(f"skill {uri!r} is already offered")
            self._skills.add(uri)
            parts.resources.append(function)


# errors of code that cannot be loaded


def _reason(error: BaseException, root: Path) -> str:
    """Return the error, with its line in the folder."""
    if isinstance(error, SystemExit):
        return f"it ended the program (exit {error.code!r}) while it was loaded; that belongs below a check of __name__"
    if str(error):
        said = f"{type(error).__name__}: {error}"
    else:
        said = type(error).__name__
    if isinstance(error, SyntaxError):
        return said
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(root)]
    if lines:
        return f"line {lines[-1].lineno} of {Path(lines[-1].filename).name!r}: {said}"
    return str(error) or said


def _hint(error: BaseException, file: Path, root: Path) -> str:
    """Return how a file of the folder is imported, if that was the mistake."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    name = error.name.partition(".")[0]
    depth = len(file.relative_to(root).parts)
    for dots, folder in ((1, file.parent), (depth, root)):
        if (folder / f"{name}{_SUFFIX}").is_file() or (folder / name).is_dir():
            return f"; the folder is one package: write 'from {'.' * dots}{error.name} import ...'"
    return ""


def _print_traceback(error: BaseException) -> None:
    _log.info("%s", "".join(traceback.format_exception(error)).rstrip())
