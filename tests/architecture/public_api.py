"""The public interface as text, a line for each name, parameter list and member: `scripts/api` writes it.

The text is made from the source and not from imported objects, so that every Python writes the same lines. Public are
the modules that have a page in the reference and the names of their `__all__`. Members of a base class that is not
public count as members of its subclasses.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from inspect import ismodule
from pathlib import Path
from typing import Any

import griffe

from tests.docs.site import modules, names_of

__all__ = ["RENEW", "WRITTEN", "current_lines", "difference", "lines_of", "public_names", "written_lines"]

CHECKOUT = Path(__file__).resolve().parents[2]
WRITTEN = Path(__file__).with_name("public_api.txt")
RENEW = "scripts/api"
CALLED_BY_SYNTAX = frozenset(
    f"__{name}__"
    for name in ("init", "call", "getitem", "iter", "aiter", "len", "contains", "await", "enter", "aenter")
)
"""Methods with two underscores that a user calls without writing their name."""
MAX_VALUE = 300


@cache
def public_names() -> dict[str, list[str]]:
    """Return the public names by module: those of every module that the reference has a page or a part for."""
    found = {path: names_of(path) for path in modules().values()}
    for path, names in list(found.items()):
        inner = [name for name in names if ismodule(getattr(importlib.import_module(path), name))]
        found |= {f"{path}.{name}": names_of(f"{path}.{name}") for name in inner}
    return dict(sorted(found.items()))


def lines_of(source: Path, package: str, names: Mapping[str, list[str]]) -> list[str]:
    """Return the sorted lines of the public names of a package in a folder of sources.

    What two modules offer is described once, by the module that comes last in the alphabet.
    """
    root = griffe.load(package, search_paths=[source], resolve_aliases=False, docstring_parser=None)
    paths: dict[int, str] = {}
    found: dict[str, Any] = {}
    for path in sorted(names):
        for name in names[path]:
            found[f"{path}.{name}"] = target = _target(_module(root, path).members[name])
            paths[id(target)] = f"{path}.{name}"
    lines: list[str] = []
    for path, target in found.items():
        described = paths[id(target)]
        lines.extend(_lines(path, target, paths.keys()) if described == path else [f"{path} is {described}"])
    return sorted(lines)


def written_lines() -> list[str]:
    """Return the lines of the file that is checked in."""
    return WRITTEN.read_text(encoding="utf-8").splitlines()


def difference(before: list[str], after: list[str]) -> str:
    """Return what was removed and added, in the order of the names, and nothing if the two are equal."""
    compared = difflib.unified_diff(before, after, lineterm="", n=0)
    changed = [line for line in compared if not line.startswith(("---", "+++", "@@"))]
    return "\n".join(changed)


def _module(root: Any, path: str) -> Any:  # griffe's modules, here and below
    inner = path.partition(".")[2]
    return root[inner] if inner else root


def _target(found: Any) -> Any:
    return found.final_target if found.is_alias else found


def _lines(path: str, found: Any, public: AbstractSet[int]) -> Iterator[str]:
    target = _target(found)
    if target.is_module:
        yield f"{path}: module"
    elif target.is_function:
        yield from _function(path, target)
    elif target.is_class:
        yield from _class(path, target, public)
    else:
        yield _attribute(path, target)


def _function(path: str, function: Any) -> Iterator[str]:
    """Yield the forms of a function that type checkers offer: its overloads, or else itself."""
    decorators = "".join(f"@{one.value} " for one in function.decorators)
    for form in function.overloads or [function]:
        prefix = "async " if "async" in function.labels else ""
        yield f"{path}: {decorators}{prefix}def {form.signature()}".replace("@overload ", "")


def _class(path: str, described: Any, public: AbstractSet[int]) -> Iterator[str]:
    bases = ", ".join([*map(str, described.bases), *(f"{key}={value}" for key, value in described.keywords.items())])
    decorators = "".join(f"@{one.value} " for one in described.decorators)
    yield f"{path}: {decorators}class({bases})"
    for name, member in sorted(_members(described, public).items()):
        yield from _lines(f"{path}.{name}", member, public)


def _members(described: Any, public: AbstractSet[int]) -> dict[str, Any]:
    """Return the public members of a class, those of its bases included that are not public themselves."""
    found: dict[str, Any] = {}
    for base in reversed(described.resolved_bases):
        if id(_target(base)) not in public and _target(base).is_class:
            found |= _members(_target(base), public)
    own = {name: member for name, member in described.members.items() if _is_public(name)}
    return found | own


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in CALLED_BY_SYNTAX


def _attribute(path: str, attribute: Any) -> str:
    """Return the line of a constant, a field or a property; an attribute set in `__init__` has no value to promise."""
    annotation = "" if attribute.annotation is None else f": {attribute.annotation}"
    value = "" if attribute.value is None else " ".join(str(attribute.value).split())
    is_set_later = "instance-attribute" in attribute.labels and "class-attribute" not in attribute.labels
    if is_set_later or not value:
        return f"{path}{annotation}"
    return f"{path}{annotation} = {value if len(value) <= MAX_VALUE else '...'}"


@cache
def current_lines() -> list[str]:
    """Return the lines of the package as its sources are now."""
    return lines_of(CHECKOUT / "src", "toolweave", public_names())


def _main() -> int:
    text = "\n".join(current_lines()) + "\n"
    before = written_lines() if WRITTEN.exists() else []
    changed = difference(before, current_lines())
    WRITTEN.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{changed or 'nothing changed'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
