"""A toolset in the real LangChain. It needs no LangGraph, so it runs with the lowest version of the extra."""

from __future__ import annotations

import re
from typing import Any

import anyio
import anyio.to_thread
import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool

from tests.export.offers import ODD_SCHEMAS, PNG, registry
from tests.servers.fixtures import echo_command
from tests.tools.doubles import Scripted, spec
from toolweave import CallContext, ToolRegistry, Toolset, connect_mcp, tool
from toolweave.errors import ToolExecutionError
from toolweave.export import calling, langchain_tools


def by_name(toolset: Toolset, **options: Any) -> dict[str, BaseTool]:
    return {one.name: one for one in langchain_tools(toolset, **options)}


def call(name: str, call_id: str = "c1", **args: Any) -> dict[str, Any]:
    return {"type": "tool_call", "name": name, "args": args, "id": call_id}


@pytest.mark.requirement("C1")
def test_tools_carry_legal_names_their_own_schema_and_where_they_come_from() -> None:
    annotated = spec("read.file", annotations={"readOnlyHint": True}, description="Reads.")
    tools = by_name(registry())
    (read,) = langchain_tools(Scripted([annotated]))

    assert list(tools) == ["add", "broken", "picture", "whoami", "odd_name"]
    assert all(isinstance(one, BaseTool) for one in tools.values())
    assert tools["add"].args_schema == registry().snapshot()[0].input_schema
    assert tools["add"].args["b"]["default"] == 2
    function = convert_to_openai_tool(tools["add"])["function"]
    assert function["name"] == "add"
    assert function["description"] == "Adds two numbers."
    assert set(function["parameters"]["properties"]) == {"a", "b"}
    assert read.metadata == {"name": "read.file", "server": "files", "annotations": {"readOnlyHint": True}}


async def test_a_call_answers_with_text_and_an_artifact() -> None:
    @tool
    def fields() -> dict[str, int]:
        """Returns fields."""
        return {"x": 1}

    message = await by_name(registry(fields))["fields"].ainvoke(call("fields"))

    assert isinstance(message, ToolMessage)
    assert message.content == '{"x": 1}'
    assert message.artifact == {"structured_content": {"x": 1}, "meta": {}}
    assert (message.status, message.tool_call_id) == ("success", "c1")


@pytest.mark.requirement("D16")
async def test_parameters_may_have_the_names_that_langchain_uses_itself() -> None:
    arguments = {"self": "1", "config": "2", "run_manager": "3", "name": "4", "a-b": "5", "class": "6"}

    text = await by_name(registry())["odd_name"].ainvoke(arguments)

    assert text == "a-b=5, class=6, config=2, name=4, run_manager=3, self=1"


@pytest.mark.requirement("C17")
async def test_an_image_is_a_content_block_of_langchain() -> None:
    message = await by_name(registry())["picture"].ainvoke(call("picture"))

    assert message.content == [
        {"type": "text", "text": "here it is"},
        {"type": "image", "base64": PNG, "mime_type": "image/png"},
    ]
    assert [block["type"] for block in message.content_blocks] == ["text", "image"]


@pytest.mark.requirement("D18")
async def test_an_error_is_a_message_that_says_so_or_an_exception_with_the_whole_result() -> None:
    message = await by_name(registry())["broken"].ainvoke(call("broken", reason="rain"))

    assert message.status == "error"
    assert "it broke: rain" in message.content
    with pytest.raises(ToolException, match="it broke: rain") as raised:
        await by_name(registry(), handle_tool_error=False)["broken"].ainvoke({"reason": "rain"})
    cause = raised.value.__cause__
    assert isinstance(cause, ToolExecutionError)
    assert cause.result.is_error


def test_invoke_works_in_a_script() -> None:
    tools = by_name(registry())

    assert tools["add"].invoke({"a": 1}) == "3"
    assert tools["broken"].invoke(call("broken", reason="rain")).status == "error"
    assert tools["odd_name"].invoke({"run_manager": "x"}) == "run_manager=x"


async def test_invoke_in_a_thread_runs_on_the_loop_that_has_the_connection() -> None:
    async with connect_mcp(echo_command()) as connection:
        echo = by_name(connection)["echo"]

        assert await anyio.to_thread.run_sync(lambda: echo.invoke({"text": "hi"})) == "hi"
        with pytest.raises(RuntimeError, match="ainvoke"):
            echo.invoke({"text": "hi"})


async def test_the_list_is_of_its_moment_and_calls_go_to_the_toolset_as_it_is() -> None:
    inner = ToolRegistry([tool(lambda: "old", name="one")])
    (one,) = langchain_tools(inner)

    inner.add(tool(lambda: "new", name="one"), on_conflict="replace")
    inner.add(tool(lambda: "two", name="two"))

    assert await one.ainvoke({}) == "new"
    assert [again.name for again in langchain_tools(inner)] == ["one", "two"]
    inner.remove("one")
    assert "no tool 'one'" in await one.ainvoke({})


async def test_an_export_neither_opens_nor_closes_what_it_borrowed() -> None:
    inner = Scripted([spec("one")])

    await langchain_tools(inner)[0].ainvoke({})

    assert inner.open == 0


async def test_tools_have_the_context_of_whoever_runs_the_agent_in_threads_too() -> None:
    seen = list[Any]()

    @tool
    async def act(context: CallContext) -> str:
        """Act."""
        await context.progress(1, 2)
        return f"{context.state['tenant']} {context.meta['trace']} {context.timeout:g}"

    (exported,) = langchain_tools(ToolRegistry([act]))
    outer = CallContext(state={"tenant": "acme"}, meta={"trace": "t", "kept": 1}, timeout=5)
    with calling(outer), calling(CallContext(meta={"trace": "u"}, on_progress=seen.append)):
        awaited = await exported.ainvoke({})
        blocking = await anyio.to_thread.run_sync(lambda: exported.invoke({}))

    assert [awaited, blocking] == ["acme u 5"] * 2
    assert [(one.progress, one.total) for one in seen] == [(1, 2)] * 2


ODD_NAMES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "filter[name]": {"type": "string"},
        "$top": {"type": "integer"},
        "@type": {"type": "string"},
        "x" * 70: {"type": "string"},
        "plain": {"type": "string"},
    },
    "required": ["filter[name]"],
}


async def test_arguments_have_names_that_every_model_api_accepts_and_reach_the_tool_under_their_own() -> None:
    seen: list[dict[str, Any]] = []

    def search(arguments: dict[str, Any]) -> str:
        seen.append(arguments)
        return "found"

    made = tool(search, input_schema=ODD_NAMES)
    (one,) = langchain_tools([made], confirm="never")
    parameters = convert_to_openai_tool(one)["function"]["parameters"]
    names = list(parameters["properties"])
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert len(set(names)) == 5
    assert parameters["required"] == names[:1]
    given: dict[str, Any] = dict(zip(names, ["a", 3, "b", "c", "d"], strict=True))
    wanted = {"filter[name]": "a", "$top": 3, "@type": "b", "x" * 70: "c", "plain": "d"}

    assert (await one.ainvoke(call("search", "c1", **given))).content == "found"
    assert (await anyio.to_thread.run_sync(lambda: one.invoke(call("search", "c1", **given)))).content == "found"
    assert (await one.ainvoke(call("search", "c1", **wanted))).content == "found"  # as a program calls it
    assert seen == [wanted, wanted, wanted]


@pytest.mark.parametrize("schema", ODD_SCHEMAS.values(), ids=ODD_SCHEMAS)
async def test_names_behind_references_and_combinations_are_legal_and_reach_the_tool_under_their_own(
    schema: dict[str, Any],
) -> None:
    seen: list[dict[str, Any]] = []

    def search(arguments: dict[str, Any]) -> str:
        seen.append(arguments)
        return "found"

    (one,) = langchain_tools([tool(search, input_schema=schema)], confirm="never")
    assert isinstance(one.args_schema, dict)
    assert set(one.args_schema["properties"]) >= {"filter_name", "top", "plain"}
    given = call("search", "c1", filter_name="a", top=3, plain="b")

    assert (await one.ainvoke(given)).content == "found"
    assert seen == [{"filter[name]": "a", "$top": 3, "plain": "b"}]


def test_a_schema_whose_names_are_legal_is_its_own() -> None:
    def legal(arguments: dict[str, Any]) -> str:
        return str(arguments)

    made = tool(legal, input_schema={"type": "object", "properties": {"a-b": {}, "c_d": {}}})
    (one,) = langchain_tools([made])

    assert one.args_schema == made.spec.input_schema
