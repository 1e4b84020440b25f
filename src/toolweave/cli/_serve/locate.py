"""Import of the object to serve from `FILE.py[:object]`, `MODULE:OBJECT` or a folder. Starts and serves nothing.

The kinds of objects, and how each is served, are in `kinds`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from toolweave._files import is_directory, is_file
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._serve.kinds import ObjectPath, ServedObject, items_of, object_of_module, served_object

if TYPE_CHECKING:
    from toolweave.serve import ServedFolder

_CONFIGS = (".json", ".jsonc", ".toml", ".yaml", ".yml")


def parse_place(target: str) -> ObjectPath:
    """Parse a target: a folder, or a file or a module, and the object in it.

    A name without a slash that is both a folder and a module here is the module.

    Raises:
        CommandError: The file does not exist, or the target is neither a folder, a Python file nor a module.
    """
    if _is_folder(target):
        found = Path(target).expanduser().resolve()
        return ObjectPath(file=None, module="folder", path="", folder=found)
    head, _, path = target.rpartition(":")
    # a colon may be in a path, such as `C:\\server.py`
    if not head or not _is_dotted_name(path):
        head = target
        path = ""
    if _looks_like_file(head):
        return ObjectPath(file=_python_file(head), module=Path(head).stem, path=path)
    if not _is_dotted_name(head):
        raise CommandError(f"{target!r} is neither a Python file nor the name of a module")
    return ObjectPath(file=None, module=head, path=path)


def _is_dotted_name(text: str) -> bool:
    return all(map(str.isidentifier, text.split(".")))


def _looks_like_file(text: str) -> bool:
    if "/" in text or "\\" in text:
        return True
    return Path(text).suffix in (".py", *_CONFIGS)


def _python_file(name: str) -> Path:
    file = Path(name).expanduser().resolve()
    if not is_file(file):
        expected = "FILE.py, FILE.py:object, MODULE:OBJECT or a folder is expected"
        raise CommandError(f"the file {name!r} does not exist", hint=expected)
    if file.suffix != ".py":
        hint = f"a config is served with --config {name}" if file.suffix in _CONFIGS else None
        raise CommandError(f"{name!r} is not a Python file", hint=hint)
    return file


def find(place: ObjectPath) -> ServedObject:
    """Import the code and return the object to serve.

    Raises:
        CommandError: The code cannot be imported, or the object does not exist or cannot be served.
    """
    if place.folder is not None:
        return ServedObject(place=place, folder=_parts_of_folder(place.folder))
    module = load(place)
    if place.path:
        found = served_object(place, module, _attribute(module, place), place.path)
    else:
        found = object_of_module(place, module)
    return replace(found, version=str(getattr(module, "__version__", "0")))


def named_objects(place: ObjectPath) -> tuple[Any, ...]:
    """Import the code and return the named object, or the items of the list that it is.

    Raises:
        CommandError: The code cannot be imported, or the object does not exist.
    """
    return items_of(_attribute(load(place), place))


def load(place: ObjectPath) -> ModuleType:
    """Import the file or module; a file's own folder is searched for its imports, as Python does for a script.

    Raises:
        CommandError: It cannot be imported; the message has the traceback of the user's code.
    """
    if place.folder is not None:
        raise CommandError(f"{place} is a folder", hint="name a file in it: FILE.py or FILE.py:object")
    try:
        if place.file:
            return _import_file(place.file, place.module)
        return _import_module(place.module)
    except ModuleNotFoundError as error:
        if place.file is None and f"{place.module}.".startswith(f"{error.name}."):
            raise CommandError(
                f"the module {error.name!r} was not found", hint="run it from the folder it is in, or name its file"
            ) from None
        raise _broken(place, error) from None  # a module that the user's code imports
    except SystemExit as error:
        hint = "start servers below `if __name__ == '__main__':`"
        raise CommandError(f"{place}: it ended the program (exit {error.code!r}) while loading", hint=hint) from None
    except Exception as error:  # boundary: whatever the user's code raises
        raise _broken(place, error) from None


def _is_folder(target: str) -> bool:
    path = Path(target).expanduser()
    if not is_directory(path):
        return False
    if not target.isidentifier():
        return True
    is_module = (path / "__init__.py").is_file() or (path.parent / f"{target}.py").is_file()
    return not is_module


def _parts_of_folder(path: Path) -> ServedFolder:
    from toolweave.serve import folder  # --help imports this module

    if (path / "manage.py").is_file():
        found = sorted(file.parent.name for file in path.glob("*/asgi.py"))
        hint = f"serve its application: toolweave serve {found[0]}.asgi" if found else "serve its asgi.py"
        raise CommandError(f"{str(path)!r} is a Django project", hint=hint)
    try:
        return folder(path)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from None


def _import_file(file: Path, name: str) -> ModuleType:
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    package = _package_of(file)
    if package is not None:
        root, whole_name = package
        if root not in sys.path:
            sys.path.insert(0, root)
        return importlib.import_module(whole_name)
    is_taken = name in sys.modules or name in sys.stdlib_module_names  # `json.py` is not `json`
    if is_taken or not name.isidentifier():
        name = f"toolweave_served_{name}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise CommandError(f"{str(file)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Before it runs, as `import` does: dataclasses and pickling look the module up meanwhile.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _package_of(file: Path) -> tuple[str, str] | None:
    """Return the folder above the package that a file is in, and the module's name; None for a file in no package.

    Files of a package import one another by its name. A package whose name is that of another module does not count.
    """
    parts = [file.stem]
    above = file.parent
    while _is_package(above):
        parts.insert(0, above.name)
        above = above.parent
    if len(parts) == 1 or not file.stem.isidentifier():
        return None
    if _is_name_taken(parts[0], above / parts[0]):
        return None
    return (str(above), ".".join(parts))


def _is_package(folder: Path) -> bool:
    return folder.name.isidentifier() and is_file(folder / "__init__.py")


def _is_name_taken(name: str, folder: Path) -> bool:
    """Return whether a module's name stands for another one than the package in a folder."""
    if name in sys.stdlib_module_names:
        return True
    loaded = sys.modules.get(name)
    if loaded is None:
        return False
    return folder not in [Path(place).resolve() for place in getattr(loaded, "__path__", ())]


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
            public = sorted(name for name in vars(module) if not name.startswith("_"))
            names = ", ".join(public[:20]) or "nothing"
            raise CommandError(f"{place}: it has no {part!r}, but {names}") from None
    return value


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
