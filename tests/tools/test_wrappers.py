"""Toolsets around toolsets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, StatusCode, Tracer

from tests.tools.doubles import Scripted, spec
from toolweave import (
    CallContext,
    ErrorKind,
    TextContent,
    Tool,
    ToolCall,
    ToolError,
    ToolRegistry,
    ToolResult,
    ToolsChanged,
    Toolset,
    ToolSpec,
    tool,
)
from toolweave.errors import DuplicateToolError
from toolweave.tools import (
    BaseToolset,
    ToolSnapshot,
    combined,
    enhanced,
    filtered,
    prefixed,
    renamed,
    tools_of,
    traced,
    transformed,
)


def names(toolset: Toolset) -> list[str]:
    return [one.name for one in toolset.snapshot()]


async def run(toolset: Toolset, name: str) -> ToolResult:
    return await toolset.call(ToolCall(name=name, arguments={"a": 1}, id="id-1"), CallContext(timeout=2))


@pytest.mark.requirement("R38", "R41", "D5")
async def test_a_prefix_is_for_us_only_the_producer_gets_its_own_name() -> None:
    inner = Scripted([spec("read_file", aliases=("files:read_file",))])
    outer = prefixed(inner, "fs")

    assert names(outer) == ["fs_read_file"]
    assert outer.snapshot()[0].original_name == "read_file"
    for name in ("fs_read_file", "files:read_file"):
        assert (await run(outer, name)).text == "read_file ran"
    assert [(call.name, call.arguments, call.id) for call, _ in inner.calls] == [("read_file", {"a": 1}, "id-1")] * 2
    assert names(prefixed(inner, "fs", separator=".")) == ["fs.read_file"]


@pytest.mark.requirement("R61")
async def test_a_name_that_the_wrapper_does_not_offer_is_not_found() -> None:
    outer = prefixed(Scripted([spec("read")]), "fs")

    result = await run(outer, "read")

    assert result.require_error().kind is ErrorKind.NOT_FOUND
    assert "'fs_read'" in result.text


@pytest.mark.requirement("R32", "R42", "R112")
async def test_names_are_changed_by_a_mapping_or_a_function() -> None:
    inner = Scripted([spec("read"), spec("write")])

    by_mapping = renamed(inner, {"read": "look", "nobody": "x"})
    by_function = renamed(inner, lambda one: f"{one.server}.{one.original_name}")

    assert names(by_mapping) == ["look", "write"]
    assert names(by_function) == ["files.read", "files.write"]
    assert (await run(by_mapping, "look")).text == "read ran"
    assert names(renamed(inner, lambda one: "same")) == ["same", "files_same"]


@pytest.mark.requirement("R30", "R31", "R112")
@pytest.mark.parametrize(
    "include, exclude, kept",
    [
        ((), (), ["fs_read", "fs_write", "fs_list"]),
        (["read"], (), ["fs_read"]),
        (["read", "write"], ["read"], ["fs_read", "fs_write"]),
        ((), ["read"], ["fs_write", "fs_list"]),
        (["files:read", "files/list"], (), ["fs_read", "fs_list"]),
        ((), ["files:read"], ["fs_write", "fs_list"]),
        (["fs_read"], (), ["fs_read"]),
        (["fs_read", "list", "files:write"], (), ["fs_read", "fs_write", "fs_list"]),
        ((), ["fs_read", "list"], ["fs_write"]),
        (["nobody"], (), []),
        ([], [], ["fs_read", "fs_write", "fs_list"]),
        ("read", (), ["fs_read"]),
        ((), "read", ["fs_write", "fs_list"]),
        ("*", (), ["fs_read", "fs_write", "fs_list"]),
        ((), ["*"], []),
        (["read"], ["*"], ["fs_read"]),
    ],
)
async def test_filters_match_exposed_and_original_names_and_include_wins(
    include: list[str], exclude: list[str], kept: list[str]
) -> None:
    inner = Scripted([spec("read"), spec("write"), spec("list")])

    assert names(filtered(prefixed(inner, "fs"), include, exclude)) == kept


async def test_a_filter_that_names_no_tool_is_logged_once_when_there_are_tools(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inner = Scripted([])
    kept = filtered(prefixed(inner, "fs"), ["fs_reed", "write"])

    assert names(kept) == []
    assert caplog.messages == []

    inner.offer(spec("read"), spec("write"))
    assert names(kept) == ["fs_write"]
    inner.offer(spec("read"), spec("write"), spec("list"))
    assert names(kept) == ["fs_write"]
    assert len(caplog.messages) == 1
    assert "no tool 'fs_reed'; did you mean 'fs_read'" in caplog.text


@pytest.mark.requirement("R32", "R112")
async def test_a_predicate_filters_too_and_what_is_filtered_out_cannot_be_called() -> None:
    inner = Scripted([spec("read", annotations={"readOnlyHint": True}), spec("write")])
    safe = filtered(inner, predicate=lambda one: one.hint("readOnlyHint") is True)

    assert names(safe) == ["read"]
    assert (await run(safe, "write")).require_error().kind is ErrorKind.NOT_FOUND
    assert inner.calls == []


@pytest.mark.requirement("R112")
def test_schemas_can_be_enhanced_and_a_failure_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def describe(one: ToolSpec) -> dict[str, Any]:
        if one.name == "bad":
            raise RuntimeError("no")
        return {**one.input_schema, "description": one.name}

    outer = enhanced(Scripted([spec("good"), spec("bad")]), describe)

    with caplog.at_level(logging.ERROR, "toolweave.tools"):
        schemas = [one.input_schema for one in outer.snapshot()]

    assert schemas == [
        {"type": "object", "properties": {}, "description": "good"},
        {"type": "object", "properties": {}},
    ]
    assert "'bad'" in caplog.text


@pytest.mark.requirement("R54", "R112")
async def test_results_can_be_transformed_by_plain_and_async_functions() -> None:
    inner = Scripted([spec("read")])

    def shout(result: ToolResult, one: ToolSpec) -> ToolResult:
        return result.replace_content([TextContent(text=f"{one.name}: {result.text.upper()}")])

    async def later(result: ToolResult, one: ToolSpec) -> ToolResult:
        return shout(result, one)

    def broken(result: ToolResult, one: ToolSpec) -> ToolResult:
        raise RuntimeError("no")

    assert (await run(transformed(inner, shout), "read")).text == "read: READ RAN"
    assert (await run(transformed(prefixed(inner, "x"), later), "x_read")).text == "x_read: X_READ RAN".replace(
        "X_READ", "READ"
    )
    assert (await run(transformed(inner, broken), "read")).text == "RuntimeError: no"


@pytest.mark.requirement("C20", "D15", "R22")
async def test_combined_toolsets_keep_their_order_and_rename_what_comes_later() -> None:
    first, second = Scripted([spec("read"), spec("a")]), Scripted([spec("read", server="web"), spec("b")])
    both = combined(first, second)

    assert names(both) == ["read", "a", "web_read", "b"]
    await run(both, "web_read")
    assert (len(first.calls), second.calls[0][0].name) == (0, "read")
    assert names(combined(first, second, on_conflict="skip")) == ["read", "a", "b"]
    assert names(combined()) == []


@pytest.mark.requirement("C20")
def test_a_conflict_is_an_error_when_asked_for_and_never_later() -> None:
    first, second = Scripted([spec("read")]), Scripted([spec("read", server="web")])

    with pytest.raises(DuplicateToolError, match="'read'"):
        combined(first, second, on_conflict="error")

    second.offer(spec("write"))
    both = combined(first, second, on_conflict="error")
    second.offer(spec("read", server="web"))
    assert names(both) == ["read", "web_read"]


@pytest.mark.requirement("C9", "D22")
def test_changes_are_told_in_the_wrappers_names_and_hidden_ones_not_at_all() -> None:
    inner = Scripted([spec("read"), spec("write")])
    outer = prefixed(filtered(inner, exclude=["secret"]), "fs")
    seen: list[ToolsChanged] = []
    unsubscribe = outer.subscribe(seen.append)

    inner.offer(spec("read", description="new"), spec("list"))
    inner.offer(spec("read", description="new"), spec("list"), spec("secret"))
    unsubscribe()
    inner.offer()

    assert seen == [ToolsChanged(added=("fs_list",), removed=("fs_write",), changed=("fs_read",), version=2)]
    assert names(outer) == []


def test_a_view_is_made_once_for_each_snapshot() -> None:
    inner = Scripted([spec("read")])
    outer = combined(prefixed(inner, "fs"), Scripted())

    first = outer.snapshot()

    assert outer.snapshot() is first
    inner.offer(spec("write"))
    assert outer.snapshot() is not first
    assert outer.snapshot().version > first.version


async def test_wrappers_are_entered_and_left_with_what_they_wrap() -> None:
    first, second = Scripted([spec("a")]), Scripted([spec("b")])
    outer = transformed(combined(prefixed(first, "x"), second), lambda result, one: result)

    async with outer:
        async with outer:
            assert (first.open, second.open) == (2, 2)
        assert (first.open, second.open) == (1, 1)

    assert (first.open, second.open) == (0, 0)
    assert "Scripted" in repr(outer)


async def test_when_one_toolset_cannot_be_entered_the_others_are_left() -> None:
    first = Scripted()

    with pytest.raises(ConnectionError):
        async with combined(first, Scripted(fault=ConnectionError("down"))):
            pass

    assert first.open == 0


@pytest.mark.requirement("C2", "R65")
async def test_a_toolset_that_raises_is_an_error_result_behind_every_wrapper() -> None:
    inner = Scripted([spec("read")], fault=ToolError("lost", kind="outcome_unknown"))

    for outer in (prefixed(inner, "x"), combined(inner), transformed(inner, lambda result, one: result)):
        result = await run(outer, names(outer)[0])
        assert result.require_error().kind is ErrorKind.OUTCOME_UNKNOWN


class RecordingSpan(NonRecordingSpan):
    """A span that keeps what is set on it."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        super().__init__(SpanContext(1, 1, is_remote=False))
        self.name = name
        self.attributes = attributes
        self.status: tuple[StatusCode, str] | None = None

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Any, description: str | None = None) -> None:
        self.status = (status, description or "")


class RecordingTracer(Tracer):
    """A tracer that keeps its spans."""

    def __init__(self) -> None:
        self.spans: list[RecordingSpan] = []

    def start_span(self, name: str, *args: Any, **kwargs: Any) -> RecordingSpan:
        span = RecordingSpan(name, dict(kwargs["attributes"]))
        self.spans.append(span)
        return span

    def start_as_current_span(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return nullcontext(self.start_span(name, *args, **kwargs))


@pytest.mark.requirement("R49")
async def test_every_call_is_a_span_with_its_server_tool_and_error() -> None:
    tracer = RecordingTracer()
    good = traced(prefixed(Scripted([spec("read")]), "fs"), tracer)
    bad = traced(Scripted([spec("write")], fault=ToolError("full", kind="too_large")), tracer)
    failing = traced(transformed(Scripted([spec("list")]), lambda result, one: ToolResult.failure("no")), tracer)

    await run(good, "fs_read")
    await run(bad, "write")
    await run(failing, "list")

    first, second, third = tracer.spans
    assert first.name == "tool:run"
    assert first.attributes == {
        "gen_ai.tool.name": "read",
        "toolweave.server": "files",
        "gen_ai.tool.call.id": "id-1",
    }
    assert first.status is None
    assert second.attributes["gen_ai.tool.name"] == "write"
    assert third.attributes["error.type"] == "execution_failed"
    assert third.status == (StatusCode.ERROR, "")  # the text may quote arguments or credentials


@pytest.mark.requirement("R49")
async def test_tracing_without_a_tracer_uses_the_global_one_and_local_tools_have_no_server() -> None:
    @tool
    def local(a: int) -> int:
        return a

    tracer = RecordingTracer()

    await traced(local.toolset, tracer).call(ToolCall(name="local", arguments={"a": 1}), CallContext())
    result = await traced(local.toolset).call(ToolCall(name="local", arguments={"a": 1}), CallContext())

    assert tracer.spans[0].attributes == {"gen_ai.tool.name": "local"}
    assert result.structured_content == 1


@pytest.mark.requirement("R112")
async def test_all_wrappers_stack() -> None:
    inner = Scripted([spec("read"), spec("write")])
    outer = traced(
        transformed(
            enhanced(renamed(prefixed(filtered(inner, ["read"]), "fs"), {"fs_read": "look"}), lambda one: {"a": 1}),
            lambda result, one: result,
        ),
        RecordingTracer(),
    )

    tools = tools_of(combined(outer, Scripted([spec("other")])))

    assert tools.names == ("look", "other")
    assert tools["look"].input_schema == {"a": 1}
    assert (await tools["look"].execute({})).text == "read ran"


def without_other(registry: Toolset) -> Toolset:
    return filtered(registry, exclude={"other"})


def under_another_name(registry: Toolset) -> Toolset:
    return renamed(registry, {"greet": "hello"})


def beside_a_server(registry: Toolset) -> Toolset:
    return combined(prefixed(registry, "my"), Scripted([spec("read")]))


@pytest.mark.requirement("R102")
@pytest.mark.parametrize("wrap", [without_other, under_another_name, beside_a_server])
async def test_uses_of_an_old_name_are_counted_behind_wrappers_too(wrap: Callable[[Toolset], Toolset]) -> None:
    def greet(a: int) -> int:
        return a

    registry = ToolRegistry([greet])
    registry.alias("say_hello", "greet")

    result = await run(wrap(registry), "say_hello")

    assert result.text == "1"
    assert registry.aliases["say_hello"].uses == 1


@pytest.mark.requirement("C1", "C20")
async def test_a_name_stays_with_its_tool_in_toolsets_that_are_joined() -> None:
    first, second = ToolRegistry(), ToolRegistry([tool(lambda: "second", name="pay")])
    both = combined(first, second)
    held = tools_of(both)["pay"]
    first.add(tool(lambda: "first", name="pay"))
    assert [spec.name for spec in both.snapshot()] == ["pay_2", "pay"]
    assert [(await held.execute()).text, (await tools_of(both)["pay_2"].execute()).text] == ["second", "first"]
    second.remove("pay")
    assert [spec.name for spec in both.snapshot()] == ["pay_2"]
    assert (await held.execute()).require_error().kind is ErrorKind.NOT_FOUND


@pytest.mark.requirement("C1")
async def test_a_tool_that_is_held_never_becomes_another_one() -> None:
    registry = ToolRegistry([Tool(ToolSpec(name="pay", server="bank"), ToolRegistry())])
    held = registry.list()["pay"]
    asked = Tool(held.spec, registry)
    registry.remove("pay")
    registry.add(Tool(ToolSpec(name="pay", server="evil"), ToolRegistry([tool(lambda: "evil", name="pay")])))
    refused = (await asked.execute()).require_error()
    assert refused.kind is ErrorKind.NOT_FOUND
    assert "from server 'bank'> is gone" in refused.message


async def test_definitions_that_did_not_change_stay_the_same_objects_in_every_wrapper() -> None:
    registry = ToolRegistry([tool(lambda: "a", name="a"), tool(lambda: "b", name="b")])
    views = [prefixed(registry, "p"), renamed(registry, {"a": "b"}), enhanced(registry, lambda _: {"type": "object"})]
    views.append(combined(registry, prefixed(registry, "")))
    before = [[spec for spec in view.snapshot() if spec.original_name == "a"] for view in views]
    registry.add(tool(lambda: "c", name="c"))
    after = [[spec for spec in view.snapshot() if spec.original_name == "a"] for view in views]
    assert [[id(spec) for spec in specs] for specs in before] == [[id(spec) for spec in specs] for specs in after]


class Static(BaseToolset):
    """A toolset of one tool, with no more than a toolset needs."""

    def snapshot(self) -> ToolSnapshot:
        return ToolSnapshot([spec("read")], version=1)

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        return ToolResult.of(f"{call.name} {dict(call.arguments)} ran")


async def test_a_toolset_of_ones_own_lists_runs_and_chains_with_two_methods() -> None:
    chained = Static().filtered(["read"]).prefixed("x").renamed({"x_read": "get"})

    async with chained as entered:
        assert entered is chained
    assert isinstance(chained, Toolset)
    assert Static().tools.names == ("read",)
    assert chained.tools.names == ("get",)
    assert (await chained.execute("get", {"a": 1})).text == "read {'a': 1} ran"
    assert (await chained.tools["get"].execute()).text == "read {} ran"
    assert chained.filtered(exclude=["read"]).tools.names == ()


async def test_every_wrapper_chains_in_any_order() -> None:
    plain = ToolRegistry([tool(add)])
    wrapped = (
        plain.traced()
        .transformed(lambda result, spec: ToolResult.of(f"{result.text}!"))
        .enhanced(lambda spec: {**spec.input_schema, "title": "Add"})
        .combined(Static())
        .prefixed("p")
    )

    assert wrapped.tools.names == ("p_add", "p_read")
    assert wrapped.tools["p_add"].input_schema["title"] == "Add"
    assert (await wrapped.execute("p_add", {"a": 1})).text == "1!"


async def test_a_chain_tells_of_the_changes_of_what_it_wraps() -> None:
    inner = ToolRegistry()
    seen: list[ToolsChanged] = []
    stop = inner.filtered(exclude=["hidden"]).prefixed("p").subscribe(seen.append)

    inner.add(tool(add))
    inner.add(tool(add, name="hidden"))
    stop()
    inner.remove("add")

    assert [change.added for change in seen] == [("p_add",)]


def add(a: int) -> int:
    return a
