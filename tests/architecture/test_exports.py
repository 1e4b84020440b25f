"""What a module says it offers is what it offers."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import re

import pytest

import toolweave
import toolweave.sync
from tests.architecture.source import modules

NAMES = [module.name for module in modules()]
ROOT: set[str] = set(getattr(toolweave, "__all__", ()))
PUBLIC = [name for name in NAMES if not any(part.startswith("_") for part in name.split("."))]


def constants_classes_functions(name: str) -> tuple[int, str]:
    """Sort as ruff's RUF022 does."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_module_has_a_sorted_list_of_real_names(name: str) -> None:
    module = importlib.import_module(name)

    exported = getattr(module, "__all__", None)

    assert exported is not None, f"{name} has no __all__"
    assert list(exported) == sorted(exported, key=constants_classes_functions), f"{name}.__all__ is not sorted"
    assert len(set(exported)) == len(exported), f"{name}.__all__ repeats a name"
    missing = [attribute for attribute in exported if not hasattr(module, attribute)]
    assert not missing, f"{name}.__all__ names what does not exist"


ROOMS = ["toolweave", *(name for name in PUBLIC if name.count(".") == 1)]
DOUBLES = {"Agent", "OnConflict", "Prompt"}
"""Names that mean two things today. None may be added; one that means a single thing is taken out."""


def test_no_class_that_a_room_offers_is_named_like_that_of_another() -> None:
    meanings: dict[str, list[object]] = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            found = meanings.setdefault(name, [])
            value = getattr(module, name)
            if name[:1].isupper() and not name.isupper() and not any(value is one for one in found):
                found.append(value)

    assert {name for name, found in meanings.items() if len(found) > 1} == DOUBLES


@pytest.mark.parametrize("room", ROOMS)
def test_help_shows_every_class_and_function_that_a_room_offers(room: str) -> None:
    module = importlib.import_module(room)
    offered = [getattr(module, name) for name in module.__all__]

    for one in offered:
        if inspect.isclass(one) or inspect.isroutine(one):
            assert one.__name__ in pydoc.plain(pydoc.render_doc(one))


@pytest.mark.parametrize("agent", [toolweave.Agent, toolweave.sync.Agent])
def test_help_of_an_agent_explains_each_of_its_arguments(agent: type) -> None:
    shown = pydoc.plain(pydoc.render_doc(agent))

    parameters = inspect.signature(agent).parameters
    assert len(parameters) >= 19
    assert [name for name in parameters if not re.search(rf"^[| ]+{name}: \S", shown, re.MULTILINE)] == []


MOST_ROOT_NAMES = 60
"""How many names the root offers at most: what few programs need is its room's."""


def test_the_root_offers_no_more_names_than_it_did() -> None:
    assert len(ROOT) <= MOST_ROOT_NAMES


def test_every_name_of_the_root_resolves_and_is_listed_by_dir() -> None:
    for name in ROOT:
        assert getattr(toolweave, name) is not None
        assert name in dir(toolweave)


def test_a_name_the_root_does_not_have_is_an_attribute_error() -> None:
    name = "no_such_name"

    with pytest.raises(AttributeError, match=name):
        getattr(toolweave, name)


def test_the_root_offers_no_name_of_ours_that_it_does_not_list() -> None:
    ours = {name for name, value in vars(toolweave).items() if getattr(value, "__module__", "").startswith("toolweave")}

    assert {name for name in ours if not name.startswith("_")} <= ROOT


@pytest.mark.parametrize(
    ("room", "name"),
    [
        ("export", "AnthropicTools"),
        ("export", "OpenAIChatTools"),
        ("export", "OpenAIResponsesTools"),
        ("schema", "LoweredSchema"),
        ("schema", "SchemaProfile"),
        ("schema", "lower"),
        ("tools", "WireTools"),
    ],
)
def test_a_name_that_moved_is_found_where_it_was_and_listed_where_it_is(room: str, name: str) -> None:
    before = importlib.import_module(f"toolweave.{room}")
    now = importlib.import_module("toolweave.providers")

    assert getattr(before, name) is getattr(now, name)
    assert name in now.__all__
    assert name not in before.__all__
