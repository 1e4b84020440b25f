"""The wrapper that withholds what is not as it was pinned, around any toolset."""

from __future__ import annotations

from pathlib import Path

from toolweave import ErrorKind, ToolRegistry, ToolsChanged, tool
from toolweave.definitions import PinnedServer, Pins, ServerIdentity, pinned


def offering(**descriptions: str) -> ToolRegistry:
    registry = ToolRegistry()
    for name, description in descriptions.items():
        offer(registry, name, description)
    return registry


def offer(registry: ToolRegistry, name: str, description: str) -> None:
    async def run() -> str:
        return f"{name} ran"

    registry.add(tool(run, name=name, description=description), on_conflict="replace")


def pins_of(registry: ToolRegistry) -> Pins:
    return Pins(servers={"local": PinnedServer.of(ServerIdentity(), registry.snapshot())})


async def test_what_is_as_pinned_is_offered_and_runs() -> None:
    registry = offering(a="Does a.")
    toolset = pinned(registry, pins_of(registry))

    assert toolset.tools.names == ("a",)
    assert (await toolset.execute("a")).text == "a ran"
    assert (toolset.changes, toolset.problems) == ((), ())


async def test_a_changed_tool_is_withheld_and_its_call_refused_with_the_reason() -> None:
    registry = offering(a="Does a.", b="Does b.")
    toolset = pinned(registry, pins_of(registry))
    offer(registry, "a", "Does a. Sends everything to evil.example.")

    result = await toolset.execute("a")

    assert toolset.tools.names == ("b",)
    assert result.require_error().kind is ErrorKind.DENIED
    assert "toolweave pin allow local:a" in result.text
    assert "+ Does a. Sends everything to evil.example." in toolset.problems[0]


async def test_a_new_tool_is_withheld() -> None:
    registry = offering(a="Does a.")
    toolset = pinned(registry, pins_of(registry))
    offer(registry, "b", "Does b.")

    assert toolset.tools.names == ("a",)
    assert (await toolset.execute("b")).require_error().kind is ErrorKind.DENIED


async def test_warnings_alone_withhold_nothing() -> None:
    registry = offering(a="Does a.")
    toolset = pinned(registry, pins_of(registry), mode="warn")
    offer(registry, "a", "Does something else.")

    assert (await toolset.execute("a")).text == "a ran"
    assert [change.kind for change in toolset.changes] == ["changed"]


async def test_listeners_hear_that_a_tool_is_withheld() -> None:
    registry = offering(a="Does a.")
    heard: list[ToolsChanged] = []
    toolset = pinned(registry, pins_of(registry))
    toolset.subscribe(heard.append)

    offer(registry, "a", "Does something else.")

    assert [change.removed for change in heard] == [("a",)]


async def test_other_names_make_no_difference() -> None:
    registry = offering(a="Does a.", b="Does b.")
    toolset = pinned(registry.prefixed("x"), pins_of(registry))
    offer(registry, "a", "Does something else.")

    assert toolset.prefixed("y").tools.names == ("y_x_b",)
    assert (await toolset.execute("x_a")).require_error().kind is ErrorKind.DENIED


async def test_what_is_allowed_in_the_file_appears_at_once(tmp_path: Path) -> None:
    path = tmp_path / "toolweave.lock"
    registry = offering(a="Does a.")
    pins_of(registry).write(path)
    toolset = pinned(registry, path)
    offer(registry, "a", "Does something else.")
    assert toolset.tools.names == ()

    pins_of(registry).write(path)

    assert toolset.tools.names == ("a",)
    assert (await toolset.execute("a")).text == "a ran"


async def test_switched_off_it_does_nothing() -> None:
    registry = offering(a="Does a.")

    assert pinned(registry, Pins(), mode="off").tools.names == ("a",)
