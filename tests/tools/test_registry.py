"""A registry: tools by name, added and removed at run time."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import pytest
from pydantic import Field

from tests.tools.doubles import Scripted, spec
from toolweave import CallContext, ErrorKind, Tool, ToolCall, ToolError, ToolRegistry, ToolsChanged, Toolset, tool
from toolweave.errors import DuplicateToolError, SchemaError


def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


@tool
def add(a: int, b: int) -> int:
    return a + b


def remote(name: str = "read", *, server: str | None = "files", fault: BaseException | None = None) -> Tool:
    definition = spec(name, server=server)
    return Tool(definition, Scripted([definition], fault=fault))


@pytest.mark.requirement("R48", "R50", "R108")
async def test_functions_and_tools_are_listed_and_executed_by_name() -> None:
    registry = ToolRegistry([greet, add])
    registry.add(remote())

    assert isinstance(registry, Toolset)
    assert registry.list().names == ("greet", "add", "read")
    assert (registry.list()[0].description, registry.list()[0].parameters["type"]) == ("Greet somebody.", "object")
    assert (await registry.execute("greet", {"name": "ada"})).text == "hello ada"
    assert (await registry.execute("add", {"a": 1, "b": 2})).structured_content == 3
    assert (await registry.execute("read")).text == "read ran"
    assert len(registry) == 3
    assert "add" in registry
    assert "nobody" not in registry
    assert 3 not in registry
    assert repr(registry) == "ToolRegistry(['greet', 'add', 'read'])"


def test_add_is_a_decorator_and_get_finds() -> None:
    registry = ToolRegistry()

    @registry.add
    def local() -> None: ...

    assert registry.get("local") is local
    assert registry.get("nobody") is None
    assert registry.get("Local") is None


@pytest.mark.requirement("D16")
async def test_arguments_of_any_name_arrive() -> None:
    registry = ToolRegistry()

    @registry.add
    def odd(self: str, name: str, tool_name: str, tool_call_id: str, ctx: str) -> list[str]:
        return [self, name, tool_name, tool_call_id, ctx]

    values = {"self": "1", "name": "2", "tool_name": "3", "tool_call_id": "4", "ctx": "5"}

    assert (await registry.execute("odd", values)).structured_content == ["1", "2", "3", "4", "5"]


@pytest.mark.requirement("R61")
async def test_an_unknown_tool_is_an_error_result_with_the_near_names() -> None:
    result = await ToolRegistry([greet]).execute("gret")

    assert result.require_error().kind is ErrorKind.NOT_FOUND
    assert result.text == "no tool 'gret'; did you mean 'greet'?"


@pytest.mark.requirement("R65", "C2", "R108")
async def test_a_toolset_that_raises_is_an_error_result() -> None:
    registry = ToolRegistry([remote(fault=ToolError("gone", kind="closed")), remote("write", fault=KeyError("k"))])

    assert (await registry.execute("read")).require_error().kind is ErrorKind.CLOSED
    assert (await registry.execute("write")).text == "KeyError: 'k'"


@pytest.mark.requirement("C20")
def test_two_local_tools_of_one_name_are_an_error_that_names_it() -> None:
    with pytest.raises(DuplicateToolError, match="'greet'"):
        ToolRegistry([greet, greet])


@pytest.mark.requirement("C20", "D15")
async def test_what_happens_to_a_taken_name_can_be_chosen() -> None:
    registry = ToolRegistry([remote()])

    skipped = registry.add(remote(), on_conflict="skip")
    renamed = registry.add(remote(server="web"), on_conflict="rename")
    registry.add(remote(server="web"), on_conflict="rename")
    replaced = registry.add(remote(server="disk"), on_conflict="replace")

    assert registry.list().names == ("read", "web_read", "read_2")
    assert registry.get("read") is replaced
    assert skipped.server == "files"
    assert (renamed.name, renamed.original_name, renamed.server) == ("web_read", "read", "web")
    assert (await registry.execute("web_read")).text == "read ran"
    assert (await renamed.execute()).text == "read ran"


def test_a_registry_takes_no_toolsets_and_no_strings() -> None:
    with pytest.raises(TypeError, match=r"Scripted.*combined"):
        ToolRegistry([Scripted()])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="str"):
        ToolRegistry(["read"])  # type: ignore[list-item]


@pytest.mark.requirement("C30")
def test_every_change_is_told_and_versions_grow() -> None:
    registry = ToolRegistry([greet])
    seen: list[ToolsChanged] = []
    unsubscribe = registry.subscribe(seen.append)

    registry.add(add)
    registry.remove("greet")
    registry.add(tool(add, description="New."), on_conflict="replace")
    unsubscribe()
    registry.remove("add")

    assert [(change.added, change.removed, change.changed, change.version) for change in seen] == [
        (("add",), (), (), 2),
        ((), ("greet",), (), 3),
        ((), (), ("add",), 4),
    ]
    assert len(registry.snapshot()) == 0


def test_removing_what_is_not_there_names_what_is() -> None:
    with pytest.raises(KeyError, match="greet"):
        ToolRegistry([greet]).remove("gret")


@pytest.mark.requirement("R102")
async def test_a_deprecated_alias_works_warns_once_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    registry = ToolRegistry([greet])
    registry.alias("say_hello", "greet", deprecated=True, sunset=date(2027, 1, 31))
    registry.alias("salute", "greet")

    with caplog.at_level(logging.WARNING, "toolweave.tools"):
        for _ in range(3):
            assert (await registry.execute("say_hello", {"name": "ada"})).text == "hello ada"
        await registry.execute("salute", {"name": "ada"})

    assert caplog.messages == ["tool name 'say_hello' is deprecated (goes away on 2027-01-31): use 'greet'"]
    assert {name: alias.uses for name, alias in registry.aliases.items()} == {"say_hello": 3, "salute": 1}
    assert registry.snapshot()[0].aliases == ("say_hello", "salute")
    found = registry.get("say_hello")
    assert found is not None
    assert (await found.execute({"name": "bob"})).text == "hello bob"


async def test_an_alias_may_say_what_to_do_instead(caplog: pytest.LogCaptureFixture) -> None:
    registry = ToolRegistry([greet])
    registry.alias("old", "greet", deprecated="the API changed")

    with caplog.at_level(logging.WARNING, "toolweave.tools"):
        await registry.execute("old", {"name": "ada"})

    assert caplog.messages == ["tool name 'old' is deprecated: the API changed"]


def test_an_alias_needs_a_free_name_and_a_tool() -> None:
    registry = ToolRegistry([greet, add])
    registry.alias("plus", "add")

    for name in ("greet", "plus"):
        with pytest.raises(DuplicateToolError, match=name):
            registry.alias(name, "add")
    with pytest.raises(KeyError, match="nobody"):
        registry.alias("x", "nobody")
    with pytest.raises(DuplicateToolError, match="plus"):
        registry.add(tool(greet, name="plus"), on_conflict="replace")


def test_an_alias_goes_with_its_tool() -> None:
    registry = ToolRegistry([greet, add])
    registry.alias("plus", "add")

    removed = registry.remove("add")

    assert removed.name == "add"
    assert "plus" not in registry
    assert registry.aliases == {}


@pytest.mark.requirement("C1")
async def test_a_servers_tool_is_found_by_its_qualified_names() -> None:
    definition = spec("fs_read", aliases=("fs:read", "fs/read"))
    registry = ToolRegistry([Tool(definition, Scripted([definition]))])

    for name in ("fs_read", "fs:read", "fs/read"):
        assert (await registry.execute(name)).text == "fs_read ran"


async def test_the_call_and_its_context_reach_the_tool_as_they_are() -> None:
    definition = spec("read")
    toolset = Scripted([definition])
    call, ctx = ToolCall(name="read", arguments={"a": 1}, id="call-7"), CallContext(timeout=3)

    async with ToolRegistry([Tool(definition, toolset)]) as registry:
        await registry.call(call, ctx)

    assert toolset.calls == [(call, ctx)]
    assert toolset.open == 0


def test_conflicting_names_of_the_constructor_follow_its_policy() -> None:
    def again() -> Any: ...

    registry = ToolRegistry([tool(again, name="x"), tool(again, name="x")], on_conflict="rename")

    assert registry.list().names == ("x", "x_2")


def test_definitions_stay_the_same_objects_while_other_tools_come_and_go() -> None:
    registry = ToolRegistry([greet, add])
    registry.alias("say_hello", "greet")
    before = registry.snapshot()

    registry.remove("add")

    assert registry.snapshot() is registry.snapshot()
    assert registry.snapshot()[0] is before[0]
    assert registry.snapshot().version > before.version


@pytest.mark.requirement("C9")
def test_each_change_is_told_by_its_names_and_version() -> None:
    registry, heard = ToolRegistry([greet]), list[ToolsChanged]()
    registry.subscribe(heard.append)

    registry.add(add)
    registry.alias("plus", "add")
    registry.add(tool(add, description="Other words."), on_conflict="replace")
    registry.add(add, on_conflict="skip")
    registry.remove("add")

    told = [(change.added, change.changed, change.removed) for change in heard]
    assert told == [(("add",), (), ()), ((), ("add",), ()), ((), ("add",), ()), ((), (), ("add",))]
    assert [change.version for change in heard] == [2, 3, 4, 5]
    assert registry.snapshot().version == 5


def test_a_method_without_its_object_is_refused() -> None:
    class Counter:
        def count(self, by: int) -> int:
            return by

        @tool
        def more(self, by: int) -> int:
            return by

    for method in (Counter.count, Counter.more):
        with pytest.raises(SchemaError, match="needs its self"):
            ToolRegistry([method])
    assert [one.name for one in ToolRegistry([Counter().count, Counter().more]).list()] == ["count", "more"]


def test_a_tool_is_no_name() -> None:
    with pytest.raises(TypeError, match="name='greet'"):
        tool("greet")  # type: ignore[call-overload]  # as another framework has it


@pytest.mark.requirement("R96")
@pytest.mark.parametrize("which", ["input_schema", "output_schema"])
async def test_a_schema_that_is_none_is_refused_when_its_tool_is_registered(which: str) -> None:
    def f(arguments: dict[str, Any]) -> str:
        return "ok"

    good: dict[str, Any] = {"type": "object"}
    schemas: dict[str, Any] = {"input_schema": good, which: {**good, "properties": {"a": {"type": "nonsense"}}}}
    registry = ToolRegistry()
    with pytest.raises(SchemaError, match=r"tool 'f': (in|out)putSchema") as caught:
        registry.add(tool(f, **schemas))
    assert caught.value.pointer.startswith("/properties/a")
    with pytest.raises(SchemaError, match="must have type 'object'"):
        registry.add(tool(f, input_schema={"type": "nonsense"}))
    assert len(registry) == 0
    registry.add(tool(f, input_schema=good, output_schema=good))


async def test_a_schema_that_comes_from_a_signature_is_checked_like_one_that_is_given() -> None:
    @tool
    def find(text: Annotated[str, Field(json_schema_extra={"pattern": "("})]) -> str:
        return text

    registry = ToolRegistry()
    with pytest.raises(SchemaError, match=r"tool 'find': inputSchema") as caught:
        registry.add(find)
    assert caught.value.pointer == "/properties/text/pattern"
    assert len(registry) == 0


@pytest.mark.requirement("R102")
async def test_a_caller_by_a_deprecated_name_is_told_until_its_sunset_and_refused_from_then_on() -> None:
    registry = ToolRegistry([add])
    today = datetime.now(UTC).date()
    registry.alias("plus", "add")
    registry.alias("sum", "add", deprecated="use 'add'", sunset=today + timedelta(days=2))
    registry.alias("total", "add", sunset=today)
    registry.alias("more", "add", deprecated="the API changed", sunset=date(2020, 1, 1))

    plain = await registry.execute("plus", {"a": 1, "b": 2})
    assert (plain.text, dict(plain.meta)) == ("3", {})
    told = await registry.execute("sum", {"a": 1, "b": 2})
    notice = {"name": "sum", "use": "add", "message": "use 'add'", "sunset": (today + timedelta(days=2)).isoformat()}
    assert told.text == "3"
    assert told.meta["io.toolweave/deprecated"] == notice
    for name, message in (("total", "use 'add'"), ("more", "the API changed")):
        gone = await registry.filtered(["add"]).execute(name, {"a": 1, "b": 2})
        assert gone.require_error().kind is ErrorKind.NOT_FOUND
        assert f"tool name {name!r} is gone since" in gone.text
        assert message in gone.text
        assert gone.meta["io.toolweave/deprecated"]["name"] == name
    (spec,) = registry.snapshot()
    assert [one["name"] for one in spec.meta["io.toolweave/deprecated"]] == ["sum", "total", "more"]
    assert (await registry.execute("add", {"a": 1, "b": 2})).meta == {}
    assert registry.aliases["more"].uses == 1
