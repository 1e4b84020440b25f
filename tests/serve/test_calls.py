"""Tools of a server, as its clients see and call them."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Self

import anyio
import msgspec
import pytest
from pydantic import BaseModel

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from toolweave import ErrorKind, ProtocolError, Tool, ToolError, ToolResult, tool
from toolweave.errors import RequestError, SchemaError
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext, ToolCall, ToolRegistry, ToolSnapshot, ToolSpec


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Size:
    wide: int
    high: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def serve(*tools: Any, **options: Any) -> McpServer:
    return create_mcp_server(name="sums", version="1.2.3", tools=list(tools), **options)


@EACH_CARRIER
@pytest.mark.requirement("R83", "R84", "R88")
async def test_a_function_is_a_tool_on_every_carrier_in_every_era(carrier: str, era: str) -> None:
    async with connected(serve(add), carrier, era) as connection:
        tools = await connection.list_tools()
        result = await tools["add"].execute({"a": 2, "b": 3})

    assert connection.protocol_version == era
    assert (connection.server_info["name"], connection.server_info["version"]) == ("sums", "1.2.3")
    assert tools["add"].description == "Add two numbers."
    assert result.text == "5"


@pytest.mark.requirement("R89", "R90", "C11")
async def test_a_definition_of_ours_is_strict_and_complete() -> None:
    @tool(title="Move", annotations={"readOnlyHint": True}, icons=[{"src": "https://x.test/i.png"}], meta={"a": 1})
    def move(to: Point, fast: bool = False) -> Point:
        """Move it.

        Args:
            to: Where to.
        """
        return to

    async with connected(serve(move)) as connection:
        (listed,) = await connection.list_tools()

    schema = listed.input_schema
    assert (listed.title, listed.description) == ("Move", "Move it.")
    assert schema["type"] == "object"
    assert schema["title"] == "Move"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["to"]
    assert "where to" in str(schema).lower()
    assert schema["properties"]["fast"]["default"] is False
    assert listed.output_schema is not None
    assert listed.annotations == {"readOnlyHint": True}
    assert listed.icons == ({"src": "https://x.test/i.png"},)
    assert listed.raw["_meta"] == {"a": 1}


@pytest.mark.requirement("C11", "R97")
async def test_a_schema_that_is_given_travels_unchanged() -> None:
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"n": {"$anchor": "n", "type": "number"}},
        "properties": {"n": {"$ref": "#n"}},
        "if": {"required": ["n"]},
        "then": {"minProperties": 1},
    }

    @tool(input_schema=schema)
    def anything(arguments: Mapping[str, Any]) -> str:
        return f"got {dict(arguments)}"

    async with connected(serve(anything)) as connection:
        tools = await connection.list_tools()
        result = await tools["anything"].execute({"n": 1, "other": [None]})
    async with connected(serve(anything), validate_input=False) as connection:
        wrong = await connection.call_tool("anything", {"n": "x"})

    assert tools["anything"].raw["inputSchema"] == schema
    assert list(tools["anything"].raw["inputSchema"]) == list(schema)
    assert result.text == "got {'n': 1, 'other': [None]}"
    assert wrong.is_error


@EACH_CARRIER
@pytest.mark.requirement("R94", "C14", "R104")
async def test_arguments_that_do_not_fit_are_an_error_result_that_says_why(carrier: str, era: str) -> None:
    async with connected(serve(add), carrier, era, validate_input=False) as connection:
        wrong = await connection.call_tool("add", {"a": "x", "c": 1})

    assert wrong.is_error
    assert "expected integer" in wrong.text
    assert '"c"' in wrong.text
    answered = wrong.meta["io.toolweave/error"]
    assert answered["code"] == "INVALID_INPUT"
    assert answered["data"]["problems"]


@EACH_CARRIER
@pytest.mark.requirement("C14")
async def test_an_unknown_tool_is_a_protocol_error(carrier: str, era: str) -> None:
    async with connected(serve(add), carrier, era) as connection:
        with pytest.raises(ProtocolError, match="Unknown tool: nope") as caught:
            await connection.call_tool("nope", {})

    assert caught.value.code == -32602


@EACH_ERA
@pytest.mark.requirement("C4", "C18", "R91")
@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ("verbatim", "verbatim", None),
        (None, "null", None),
        (True, "true", None),
        (1.5, "1.5", None),
        ([1, 2], "[1, 2]", None),
        ({"a": None}, '{"a": null}', {"a": None}),
        (Size(wide=1, high=2), '{"wide": 1, "high": 2}', {"wide": 1, "high": 2}),
        (Point(x=1), '{"x": 1, "y": 0}', {"x": 1, "y": 0}),
    ],
)
async def test_what_a_tool_returns_is_text_and_an_object_is_structured_too(
    era: str, value: Any, text: str, structured: Any
) -> None:
    @tool
    def give() -> Any:
        return value

    async with connected(serve(give), era=era) as connection:
        result = await connection.call_tool("give", {})

    raw: dict[str, Any] = result.raw
    assert raw["content"] == [{"type": "text", "text": text}]
    assert "result" not in raw
    assert result.structured_content == structured
    assert ("structuredContent" in raw) == (structured is not None)


@EACH_ERA
@pytest.mark.requirement("C15", "R96")
async def test_a_typed_result_has_a_schema_and_is_held_to_it(era: str) -> None:
    @tool
    def good() -> Point:
        return Point(x=1)

    @tool(output_schema={"type": "object", "required": ["x"]})
    def bad() -> dict[str, int]:
        return {"y": 1}

    async with connected(serve(good, bad), era=era) as connection:
        tools = await connection.list_tools()
        fits = await tools["good"].execute({})
        broken = await tools["bad"].execute({})

    assert fits.structured_content == {"x": 1, "y": 0}
    assert tools["good"].output_schema is not None
    assert broken.is_error
    assert "output schema" in broken.text


async def test_a_list_is_the_member_of_an_object_for_handshake_era_clients_which_read_only_objects() -> None:
    @tool(output_schema={"type": "array", "items": {"type": "integer"}})
    def numbers() -> list[int]:
        return [1, 2]

    listed: dict[str, Any] = {}
    results: dict[str, ToolResult] = {}
    for era in ("2025-11-25", "2026-07-28"):
        async with connected(serve(numbers), era=era) as connection:
            (listed[era],) = await connection.list_tools()
            results[era] = await connection.call_tool("numbers", {})

    assert listed["2026-07-28"].output_schema == {"type": "array", "items": {"type": "integer"}}
    assert results["2026-07-28"].structured_content == [1, 2]
    assert listed["2025-11-25"].output_schema == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"type": "integer"}}},
        "required": ["result"],
        "additionalProperties": False,
        "x-fastmcp-wrap-result": True,
    }
    assert results["2025-11-25"].structured_content == {"result": [1, 2]}
    assert results["2025-11-25"].data == [1, 2]
    assert {result.text for result in results.values()} == {"[1, 2]"}


@EACH_CARRIER
@pytest.mark.requirement("R92", "R68", "D25")
async def test_a_tool_error_is_a_result_with_its_code_and_no_stack(carrier: str, era: str) -> None:
    @tool
    def fail() -> None:
        raise ToolError("the disk is full", kind=ErrorKind.EXECUTION_FAILED, data={"free": 0})

    @tool
    async def late() -> None:
        raise TimeoutError("no answer from the printer")

    async with connected(serve(fail, late), carrier, era) as connection:
        failed = await connection.call_tool("fail", {})
        timed_out = await connection.call_tool("late", {})

    assert failed.is_error
    assert failed.text == "the disk is full"
    assert failed.meta["io.toolweave/error"] == {
        "code": "EXECUTION_FAILED",
        "kind": "execution_failed",
        "data": {"free": 0},
    }
    assert timed_out.meta["io.toolweave/error"]["code"] == "TIMEOUT"
    assert "Traceback" not in msgspec.json.encode([failed.raw, timed_out.raw]).decode()


@pytest.mark.requirement("C31", "R104")
@pytest.mark.parametrize(
    ("carrier", "expose", "shown"),
    [
        ("inprocess", None, True),
        ("inprocess", "masked", False),
        ("http", None, False),
        ("http", "message", True),
    ],
)
async def test_an_unexpected_exception_is_masked_where_strangers_call(
    carrier: str, expose: Any, shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def boom() -> None:
        raise KeyError("postgres://admin:hunter2@db")

    async with connected(serve(boom, expose_errors=expose), carrier) as connection:
        result = await connection.call_tool("boom", {})

    assert result.is_error
    assert ("hunter2" in result.text) is shown
    assert "boom" in result.text or shown
    (record,) = [record for record in caplog.records if record.name == "toolweave.tools"]
    assert record.exc_info is not None


@EACH_CARRIER
@pytest.mark.requirement("C14")
async def test_a_handler_may_answer_with_a_protocol_error(carrier: str, era: str) -> None:
    @tool
    def refuse() -> None:
        raise RequestError("not today", code=-31999, data={"why": "rain"})

    async with connected(serve(refuse), carrier, era) as connection:
        with pytest.raises(ProtocolError, match="not today") as caught:
            await connection.call_tool("refuse", {})

    assert (caught.value.code, caught.value.data) == (-31999, {"why": "rain"})


@EACH_CARRIER
@pytest.mark.requirement("R98")
async def test_every_page_of_a_long_list_arrives_in_order(carrier: str, era: str) -> None:
    registry = ToolRegistry([tool(add, name=f"tool_{number}") for number in range(25)])

    async with connected(serve(registry, page_size=7), carrier, era) as connection:
        tools = await connection.list_tools()
        last = await tools["tool_24"].execute({"a": 1, "b": 1})

    assert tools.names == tuple(f"tool_{number}" for number in range(25))
    assert last.text == "2"


@pytest.mark.requirement("R96", "R89")
@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "object", "properties": {"a": {"type": "nonsense"}}}, "/properties/a/type"),
        ({"type": "array"}, "/type"),
        ({"type": "object", "properties": {"a": {"$ref": "https://x.test/s.json"}}}, ""),
    ],
)
async def test_a_wrong_schema_is_refused_at_registration_by_name_and_pointer(
    schema: dict[str, Any], pointer: str
) -> None:
    @tool(name="crooked", input_schema=schema)
    def crooked(arguments: Mapping[str, Any]) -> None:
        del arguments

    with pytest.raises(SchemaError, match="tool 'crooked': inputSchema") as caught:
        serve(crooked)
    with pytest.raises(SchemaError, match="tool 'crooked': inputSchema"):
        serve().tool(crooked)

    assert caught.value.pointer.startswith(pointer)


async def test_a_wrong_output_schema_is_refused_at_registration() -> None:
    @tool(name="crooked", output_schema={"type": "nonsense"})
    def crooked() -> None: ...

    with pytest.raises(SchemaError, match="tool 'crooked': outputSchema"):
        serve(crooked)


class Changing:
    """A toolset of somebody else's whose definitions are wrong from some moment on."""

    def __init__(self) -> None:
        self.specs = [ToolSpec(name="sound"), ToolSpec(name="crooked", input_schema={"type": "nonsense"})]
        self.answer = ToolResult.of("fine")

    def snapshot(self) -> ToolSnapshot:
        return ToolSnapshot(self.specs, version=1)

    def subscribe(self, listener: Any) -> Any:
        return lambda: None

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        return self.answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None


async def test_a_tool_that_turns_out_wrong_later_is_left_out_and_the_others_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    changing = Changing()
    wrong = changing.specs
    changing.specs = changing.specs[:1]
    server = serve(changing)
    changing.specs = wrong

    async with connected(server) as connection:
        tools = await connection.list_tools()
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await connection.call_tool("crooked", {})

    assert tools.names == ("sound",)
    assert "tool 'crooked'" in caplog.text


@pytest.mark.requirement("R95", "C29")
async def test_dependencies_reach_a_handler_by_its_context_and_by_closure() -> None:
    names = ["Ada"]

    @tool
    def greet(ctx: CallContext) -> str:
        return f"{ctx.state['greeting']} {names[0]}"

    async with connected(serve(greet, state={"greeting": "Hello"})) as connection:
        (listed,) = await connection.list_tools()
        result = await connection.call_tool("greet", {})

    assert listed.input_schema["properties"] == {}
    assert result.text == "Hello Ada"


class Greeter:
    def __init__(self, word: str) -> None:
        self.word = word

    def greet(self, name: str) -> str:
        return f"{self.word} {name}"


async def test_the_state_may_be_an_object_whose_type_the_handler_names() -> None:
    @tool
    def greet(ctx: CallContext[Greeter], name: str) -> str:
        return ctx.state.greet(name)

    async with connected(serve(greet, state=Greeter("Hello"))) as connection:
        (listed,) = await connection.list_tools()
        result = await connection.call_tool("greet", {"name": "Ada"})

    assert list(listed.input_schema["properties"]) == ["name"]
    assert result.text == "Hello Ada"


@pytest.mark.requirement("R33")
async def test_only_what_is_included_is_offered_and_what_is_excluded_is_not_callable() -> None:
    def one() -> int:
        return 1

    def two() -> int:
        return 2

    async with connected(serve(one, two, include=["one"])) as connection:
        included = (await connection.list_tools()).names
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await connection.call_tool("two", {})
    async with connected(serve(one, two, exclude=["one"])) as connection:
        left = (await connection.list_tools()).names

    assert (included, left) == (("one",), ("two",))


@pytest.mark.requirement("R102")
async def test_an_old_name_still_works_is_counted_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    server = serve(add)
    server.alias("plus", "add", deprecated="use 'add'")

    async with connected(server) as connection:
        listed = (await connection.list_tools()).names
        results = [(await connection.call_tool("plus", {"a": 1, "b": 1})).text for _ in range(2)]

    assert listed == ("add",)
    assert results == ["2", "2"]
    assert server.aliases["plus"].uses == 2
    assert caplog.text.count("tool name 'plus' is deprecated") == 1


@pytest.mark.requirement("R102")
@EACH_CARRIER
async def test_a_client_learns_of_a_deprecated_name_from_the_list_and_from_each_result(carrier: str, era: str) -> None:
    server = serve(add)
    server.alias("plus", "add", deprecated="use 'add'", sunset=date(2999, 1, 1))
    server.alias("sum", "add", deprecated="use 'add'", sunset=date(2020, 1, 1))

    async with connected(server, carrier, era) as connection:
        (tool,) = await connection.list_tools()
        answered = await connection.call_tool("plus", {"a": 1, "b": 1})
        gone = await connection.call_tool("sum", {"a": 1, "b": 1})

    notice = {"name": "plus", "use": "add", "message": "use 'add'", "sunset": "2999-01-01"}
    assert tool.raw["_meta"]["io.toolweave/deprecated"][0] == notice
    assert (answered.text, answered.meta["io.toolweave/deprecated"]) == ("2", notice)
    assert gone.require_error().kind is ErrorKind.NOT_FOUND
    assert "gone since 2020-01-01: use 'add'" in gone.text
    assert gone.meta["io.toolweave/deprecated"]["sunset"] == "2020-01-01"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("TIMEOUT", ErrorKind.TIMEOUT),
        ("INVALID_INPUT", ErrorKind.INVALID_INPUT),
        ("RESOURCE_NOT_FOUND", ErrorKind.NOT_FOUND),
        ("EXECUTION_FAILED", ErrorKind.EXECUTION_FAILED),
        ("TEAPOT", ErrorKind.EXECUTION_FAILED),
    ],
)
async def test_the_code_of_an_error_alone_decides_its_kind(code: str, kind: ErrorKind) -> None:
    def fail() -> str:
        raise ToolError("no", code=code)

    assert ToolError("no", code=code, kind="denied").kind is ErrorKind.DENIED
    async with connected(serve(fail)) as connection:
        error = (await connection.call_tool("fail", {})).require_error()
    assert (error.code, error.kind) == (code, kind)


@EACH_CARRIER
@pytest.mark.requirement("C30", "R93", "R97")
async def test_tools_that_come_and_go_are_told_to_connected_clients(carrier: str, era: str) -> None:
    server = serve(add)
    async with connected(server, carrier, era) as connection:
        assert connection.capabilities["tools"] == {"listChanged": True}
        changed = anyio.Event()
        await connection.list_tools()
        connection.subscribe(lambda _change: changed.set())

        @server.tool
        def multiply(a: int, b: int) -> int:
            return a * b

        with anyio.fail_after(20):
            await changed.wait()
        names = (await connection.list_tools()).names
        result = await connection.call_tool("multiply", {"a": 2, "b": 3})

    assert multiply(2, 3) == 6
    assert names == ("add", "multiply")
    assert result.text == "6"


class Parrot:
    """An agent, as far as a server knows."""

    def __init__(self, name: str, tool_name: str | None = None) -> None:
        self.name = name
        self._tool_name = tool_name or name

    def as_tool(self) -> Tool:
        def run(message: str) -> str:
            if message == "die":
                raise ToolError("the parrot is dead")
            return f"{self.name} says {message}"

        return tool(run, name=self._tool_name, description="Repeats a text.")


@pytest.mark.requirement("R85", "C22", "C23", "D24")
async def test_an_agent_is_a_tool_with_one_message() -> None:
    server = serve(add, agents=[Parrot("polly"), Parrot("lora", tool_name="ask_lora")])

    async with connected(server) as connection:
        tools = await connection.list_tools()
        said = await tools["agent_polly"].execute({"message": "hi"})
        failed = await tools["agent_polly"].execute({"message": "die"})

    assert tools.names == ("add", "agent_polly", "ask_lora")
    assert tools["agent_polly"].input_schema["required"] == ["message"]
    assert said.text == "polly says hi"
    assert failed.is_error
    assert failed.text == "the parrot is dead"


def test_what_is_no_agent_is_refused_by_type() -> None:
    with pytest.raises(TypeError, match="agents= takes"):
        create_mcp_server(name="x", version="1", agents=["polly"])  # type: ignore[list-item]


async def test_a_result_of_an_upstream_server_passes_with_everything_that_this_version_does_not_know() -> None:
    def odd(arguments: Mapping[str, Any]) -> ToolResult:
        del arguments
        raw = {
            "content": [{"type": "text", "text": "hi", "future": 1}, {"type": "hologram", "data": "x"}],
            "structuredContent": {"a": None},
            "vendor": {"x": None},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "upstream"}, "trace": "t"},
        }
        return ToolResult(raw=raw, structured_content={"a": None})

    async with connected(serve(tool(odd, input_schema={"type": "object"}))) as connection:
        result = await connection.call_tool("odd", {})

    raw: dict[str, Any] = result.raw
    assert raw["content"][0] == {"type": "text", "text": "hi", "future": 1}
    assert raw["content"][1] == {"type": "hologram", "data": "x"}
    assert raw["vendor"] == {"x": None}
    assert raw["structuredContent"] == {"a": None}
    assert raw["_meta"]["trace"] == "t"
    assert raw["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "sums"


@pytest.mark.requirement("R96")
def test_an_argument_that_no_header_can_mirror_is_refused_at_registration() -> None:
    where = {"type": "number", "x-mcp-header": "Region"}

    @tool(input_schema={"type": "object", "properties": {"where": where}})
    def region(arguments: Mapping[str, Any]) -> None:
        del arguments

    with pytest.raises(SchemaError, match="tool 'region': inputSchema: property 'where': x-mcp-header") as caught:
        serve(region)

    assert caught.value.pointer == "/properties/where"


@pytest.mark.requirement("R100")
@EACH_CARRIER
async def test_behaviour_hints_reach_the_client_as_they_are(carrier: str, era: str) -> None:
    @tool(annotations={"readOnlyHint": True, "destructiveHint": False, "vendorHint": "x"})
    def look() -> None: ...

    async with connected(serve(look), carrier, era) as connection:
        (listed,) = await connection.list_tools()

    assert listed.annotations == {"readOnlyHint": True, "destructiveHint": False, "vendorHint": "x"}


@pytest.mark.requirement("D23")
async def test_a_foreign_tool_is_listed_with_the_schema_that_its_server_gave_it() -> None:
    registry = ToolRegistry()
    async with connected(serve(add)) as upstream:
        for one in await upstream.list_tools(prefix="up"):
            registry.add(one)
        async with connected(serve(registry)) as connection:
            (listed,) = await connection.list_tools()
            result = await listed.execute({"a": 1, "b": 2})

    assert listed.name == "up_add"
    assert listed.parameters["required"] == ["a", "b"]
    assert result.text == "3"


@pytest.mark.requirement("C31")
@pytest.mark.parametrize("setting", [
    {"expose_errors": "Masked"},
    {"expose_errors": ""},
    {"page_size": 0},
    {"page_size": -1},
    {"ttl_ms": -1},
    {"cache_scope": "shared"},
])  # fmt: skip
def test_a_setting_that_is_none_is_refused_before_anything_is_served(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        create_mcp_server(name="x", version="1", **setting)


@pytest.mark.slow
async def test_tools_that_go_while_they_run_leave_nothing_behind() -> None:
    server = serve()

    def passing(number: int) -> Tool:
        async def go() -> dict[str, int]:
            server.remove_tool(f"passing_{number}")
            return {"number": number}

        return tool(go, name=f"passing_{number}")

    async with connected(server) as connection:
        for number in range(300):
            server.tool(passing(number))
            await connection.call_tool(f"passing_{number}")
        gc.collect()
        left = [one for one in gc.get_objects() if isinstance(one, ToolSpec) and one.name.startswith("passing_")]

    assert len(left) < 200
