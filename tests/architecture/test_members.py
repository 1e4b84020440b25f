"""What completion shows after a dot has a text: methods and properties one of their own, attributes in their class.

So an attribute that only other rooms of ours need cannot appear by accident. The members of values, such as
`ImageContent.data`, are named for what they are; theirs is a text where the name does not say it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source import modules

pytestmark = pytest.mark.slow

MODULES = {module.name: module for module in modules()}
ROOMS = [name for name in MODULES if name.count(".") <= 1 and not name.rpartition(".")[2].startswith("_")]


def body_of(cls: type) -> list[ast.stmt]:
    """Return the source of a class that is defined at the top of a module of ours; nothing for any other."""
    module = MODULES.get(cls.__module__)
    if module is None:
        return []
    found = [one.body for one in module.tree.body if isinstance(one, ast.ClassDef) and one.name == cls.__name__]
    return found[0] if found else []


def set_in_init(cls: type) -> Iterator[str]:
    """Yield the attributes that the `__init__` of a class sets."""
    for function in body_of(cls):
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            for node in ast.walk(function):
                match node:
                    case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                        yield name
                    case _:
                        pass


def undocumented(cls: type) -> Iterator[str]:
    """Yield the public members of a class that have no text."""
    ours = [base for base in cls.__mro__ if base.__module__ in MODULES]
    text = "\n".join(base.__doc__ or "" for base in ours)
    for name in {name for base in ours for name in set_in_init(base)}:
        if (
            not name.startswith("_")
            and not hasattr(cls, name)
            and not re.search(rf"^\s*{name}: \S", text, re.MULTILINE)
        ):
            yield name
    for name, member in inspect.getmembers_static(cls):
        function = member.fget if isinstance(member, property) else member
        ours_too = inspect.isfunction(function) and function.__module__ in MODULES
        if ours_too and not name.startswith("_") and not inspect.getdoc(getattr(cls, name)):
            yield name


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_member_of_what_a_room_exports_is_documented(room: str) -> None:
    module = importlib.import_module(room)
    exported = [value for name in getattr(module, "__all__", ()) if inspect.isclass(value := getattr(module, name))]

    found = {one.__name__: missing for one in exported if (missing := sorted({*undocumented(one)}))}

    assert found == {}, "name them in the `Attributes:` of the class, or make them private"
