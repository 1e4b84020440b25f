"""The server halves of the designs Axiom MCP and kitn, a test for each of their rows, in both eras of the protocol."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import anyio
import mcp_types
import pytest
from pydantic import BaseModel, Field

from tests.programs import ran
from toolweave import (
    Callbacks,
    CallContext,
    ErrorKind,
    McpConnection,
    McpServer,
    Progress,
    ProtocolError,
    Tool,
    ToolError,
    ToolRegistry,
    ToolResult,
    ToolsChanged,
    connect_mcp,
    create_mcp_server,
    tool,
)
from toolweave.connect import LogMessage
from toolweave.errors import SchemaError
from toolweave.serve import HttpOptions

BOUND = 60
ERAS = ["2025-06-18", "2025-11-25", "2026-07-28"]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    """A protocol revision."""
    return request.param


@asynccontextmanager
async def client(
    server: McpServer, era: str = "auto", callbacks: Callbacks | None = None
) -> AsyncGenerator[McpConnection]:
    """Connect to a server in this process, sending whatever arguments the test gives."""
    entry = {"server": server, "protocol": era, "validate_input": False, "validate_output": "off"}
    with anyio.fail_after(BOUND):
        async with connect_mcp(entry, name="s", callbacks=callbacks or Callbacks()) as connection:
            yield connection


def served(*tools: Any, **options: Any) -> McpServer:
    return create_mcp_server(name="my-service", version="1.0.0", tools=tools, **options)


async def call(connection: McpConnection, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool and return the result as it came."""
    return await connection.request("tools/call", {"name": name, "arguments": arguments})


def add(a: int, b: int = 2) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


def echo(text: str) -> str:
    """Say it again."""
    return text


class Agent:
    """What a server knows of an agent: a name, and itself as a tool."""

    name = "helper"

    def __init__(self) -> None:
        self.conversation: list[str] = []

    def as_tool(self) -> Any:
        async def ask(message: str) -> str:
            """Ask the helper."""
            if message == "fail":
                raise ToolError("the model refused")
            self.conversation.append(message)
            return f"answer {len(self.conversation)}"

        return tool(ask, name="helper")


@pytest.mark.requirement("R83")
def test_a_server_is_made_of_a_name_a_version_tools_and_agents() -> None:
    server = create_mcp_server(name="my-service", version="1.0.0", tools=[add], agents=[Agent()])

    assert [spec.name for spec in server.tools.snapshot()] == ["add", "agent_helper"]


@pytest.mark.requirement("R84", "C18")
async def test_every_tool_is_listed_by_itself_and_answers_as_text(era: str) -> None:
    @tool
    def nothing() -> None:
        """Return nothing."""

    @tool
    def numbers() -> list[int]:
        """Return numbers."""
        return [1, 2]

    registry = ToolRegistry([nothing, numbers])
    async with client(served(add, echo, registry), era) as connection:
        listed = await connection.list_tools()
        assert set(listed.names) == {"add", "echo", "nothing", "numbers"}
        assert listed["add"].description == "Add two numbers."
        assert listed["add"].input_schema["required"] == ["a"]
        texts = [(await call(connection, name))["content"][0]["text"] for name in ("nothing", "numbers")]
        assert (texts[0], json.loads(texts[1])) == ("null", [1, 2])
        assert (await call(connection, "echo", text="verbatim"))["content"] == [{"type": "text", "text": "verbatim"}]
        result = await call(connection, "add", a=1)
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"] == {"sum": 3}


@pytest.mark.requirement("R85", "C22", "C23", "D24")
async def test_an_agent_takes_one_message_and_keeps_its_conversation(era: str) -> None:
    async with client(served(agents=[Agent()]), era) as connection:
        listed = await connection.list_tools()
        assert listed.names == ("agent_helper",)
        schema = listed["agent_helper"].input_schema
        assert (list(schema["properties"]), schema["required"]) == (["message"], ["message"])
        answers = [(await connection.call_tool("agent_helper", {"message": "hello"})).text for _ in range(2)]
        assert answers == ["answer 1", "answer 2"]
        failed = await connection.call_tool("agent_helper", {"message": "fail"})
        assert (failed.is_error, failed.text) == (True, "the model refused")


@pytest.mark.requirement("R85", "C22")
def test_what_is_no_agent_is_refused_and_an_agents_author_may_name_its_tool() -> None:
    class Named(Agent):
        def as_tool(self) -> Any:
            return tool(echo, name="ask_me")

    assert [spec.name for spec in served(agents=[Named()]).tools.snapshot()] == ["ask_me"]
    with pytest.raises(TypeError, match="agents="):
        served(agents=[object()])


@pytest.mark.requirement("R86")
async def test_limits_and_authorization_are_hooks_and_no_policy_is_built_in() -> None:
    seen: list[str] = []

    def limiter(app: Any) -> Any:
        async def limited(scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["path"])
            await app(scope, receive, send)

        return limited

    started = anyio.Event()
    urls: list[str] = []

    def on_started(url: str) -> None:
        urls.append(url)
        started.set()

    server = served(add)
    options: HttpOptions = {"middleware": [limiter]}
    async with anyio.create_task_group() as tasks:

        async def serve() -> None:
            await server.serve_http("127.0.0.1", 0, on_started=on_started, **options)

        tasks.start_soon(serve)
        await started.wait()
        async with connect_mcp(f"{urls[0]}/mcp", name="s") as connection:
            assert (await connection.call_tool("add", {"a": 1})).structured_content == {"sum": 3}
        tasks.cancel_scope.cancel()
    assert seen
    assert set(seen) == {"/mcp"}


@pytest.mark.slow
@pytest.mark.requirement("R87")
@pytest.mark.parametrize(
    "half, other",
    [("toolweave.serve._server", ("toolweave.connect", "toolweave.hub")), ("toolweave.connect", ("toolweave.serve",))],
)
def test_each_half_is_imported_without_the_other(half: str, other: tuple[str, ...]) -> None:
    program = f"import sys, {half}; print([name for name in sys.modules if name.startswith({other!r})])"
    done = ran([sys.executable, "-c", program], check=True)

    assert done.stdout == "[]\n"


@pytest.mark.slow
@pytest.mark.requirement("R88", "C4", "C12")
def test_over_stdio_each_answer_is_json_rpc_and_a_results_content_is_result_content(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from toolweave import create_mcp_server\n"
        "server = create_mcp_server(name='my-service', version='1.2.3', logging=True)\n"
        "@server.tool\ndef echo(text: str) -> str:\n    return text\n"
        "@server.resource('notes://all')\ndef notes() -> str:\n    return 'x'\n"
        "server.run_stdio()\n"
    )
    asked: list[tuple[str, dict[str, Any]]] = [
        (
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
        ),
        ("tools/list", {}),
        ("tools/call", {"name": "echo", "arguments": {"text": "hello"}}),
        ("resources/list", {}),
        ("logging/setLevel", {"level": "info"}),
    ]
    requests = [{"id": number, "method": method, "params": params} for number, (method, params) in enumerate(asked)]
    messages = [requests[0], {"method": "notifications/initialized"}, *requests[1:]]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)

    done = ran([sys.executable, "mine.py"], cwd=tmp_path, given=lines, check=True)

    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert all(answer.keys() == {"jsonrpc", "id", "result"} for answer in answers.values())
    assert answers[0]["result"]["serverInfo"] == {"name": "my-service", "version": "1.2.3"}
    assert answers[0]["result"]["capabilities"]["logging"] == {}
    assert answers[2]["result"]["content"] == [{"type": "text", "text": "hello"}]
    assert "result" not in answers[2]["result"]


@pytest.mark.requirement("R89", "R100")
async def test_a_definition_has_everything_that_the_specification_knows_of_a_tool(era: str) -> None:
    @dataclass
    class Found:
        names: list[str]

    @tool(
        title="Search",
        annotations={"readOnlyHint": True, "openWorldHint": False},
        meta={"vendor/key": 1},
    )
    def search(query: Annotated[str, Field(description="What to look for")]) -> Found:
        """Find things."""
        return Found(names=[query])

    async with client(served(search), era) as connection:
        page = await connection.request("tools/list")
        (definition,) = page["tools"]
        mcp_types.Tool.model_validate(definition)
        assert {"name", "title", "description", "inputSchema", "outputSchema", "annotations"} <= definition.keys()
        assert definition["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
        assert definition["_meta"]["vendor/key"] == 1
        schema = definition["inputSchema"]
        assert schema["title"]
        assert schema["additionalProperties"] is False
        assert schema["properties"]["query"]["description"] == "What to look for"


@pytest.mark.requirement("R90", "C11")
def test_schemas_of_models_are_strict_all_the_way_down_and_defaults_are_not_required() -> None:
    class Place(BaseModel):
        city: str
        country: str = "NO"

    @tool
    def visit(place: Place, nights: int = 1) -> str:
        """Visit a place."""
        return place.city

    (spec,) = served(visit).tools.snapshot()
    text = json.dumps(spec.input_schema)
    assert "$schema" not in text
    assert text.count('"additionalProperties": false') == 2
    assert spec.input_schema["required"] == ["place"]
    assert '"required": ["city"]' in text


@pytest.mark.requirement("R91", "C16")
async def test_a_result_may_be_given_whole_with_any_blocks_and_structure(era: str) -> None:
    def whole(fails: bool) -> ToolResult:
        """Return a whole result."""
        return ToolResult.of("words") if not fails else ToolResult.failure("no luck")

    async with client(served(whole), era) as connection:
        good, bad = await call(connection, "whole", fails=False), await call(connection, "whole", fails=True)
        assert good["content"] == [{"type": "text", "text": "words"}]
        assert not good.get("isError", False)
        assert (bad["isError"], bad["content"][0]["text"]) == (True, "no luck")


@pytest.mark.requirement("R92", "D25", "C14")
async def test_failures_of_tools_are_results_with_a_code_and_only_protocol_faults_are_errors(era: str) -> None:
    def fail(how: str) -> str:
        """Fail."""
        if how == "timeout":
            raise TimeoutError("it took too long")
        kind = ErrorKind.NOT_FOUND if how == "missing" else ErrorKind.EXECUTION_FAILED
        raise ToolError(f"it is {how}", kind=kind)

    async with client(served(fail), era) as connection:
        seen = {how: await call(connection, "fail", how=how) for how in ("broken", "missing", "timeout")}
        seen["invalid"] = await call(connection, "fail", wrong=1)
        assert all(result["isError"] is True for result in seen.values())
        codes = {how: json.dumps(result["_meta"]) for how, result in seen.items()}
        assert "EXECUTION_FAILED" in codes["broken"]
        assert "RESOURCE_NOT_FOUND" in codes["missing"]
        assert "TIMEOUT" in codes["timeout"]
        assert "INVALID_INPUT" in codes["invalid"]
        faults: list[tuple[str, dict[str, Any], int]] = [
            ("tools/call", {"name": "nobody", "arguments": {}}, -32602),
            ("no/such", {}, -32601),
            ("tools/list", {"cursor": "bad"}, -32602),
        ]
        for method, params, code in faults:
            with pytest.raises(ProtocolError) as caught:
                await connection.request(method, params)
            assert caught.value.code == code


@pytest.mark.requirement("R93", "C12")
async def test_only_what_is_offered_is_declared_and_what_is_declared_works(era: str) -> None:
    async with client(served(add), era) as connection:
        assert connection.capabilities == {"tools": {"listChanged": True}}
        for method in ("resources/list", "prompts/list", "completion/complete"):
            with pytest.raises(ProtocolError) as caught:
                await connection.request(method)
            assert caught.value.code == -32601
    full = served(add)
    full.resource("a://b", name="b")(lambda: "x")
    full.prompt(name="p")(lambda: "x")
    async with client(full, era) as connection:
        assert connection.capabilities["resources"] == {"subscribe": True, "listChanged": True}
        assert connection.capabilities["prompts"] == {"listChanged": True}
        assert (await connection.list_resources())[0].uri == "a://b"
        assert (await connection.list_prompts())[0].name == "p"


@pytest.mark.requirement("R94", "R95")
async def test_a_handler_receives_valid_arguments_only_and_what_is_wrong_is_named(era: str) -> None:
    received: list[Any] = []

    def book(city: Annotated[str, Field(min_length=1)], nights: Annotated[int, Field(ge=1, le=30)] = 1) -> str:
        """Book a room."""
        received.append((city, nights))
        return "booked"

    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "city"),
        ({"city": ""}, "city"),
        ({"city": "Oslo", "nights": 99}, "nights"),
        ({"city": "Oslo", "nights": "two"}, "nights"),
        ({"city": "Oslo", "extra": True}, "extra"),
    ]
    async with client(served(book), era) as connection:
        for arguments, name in wrong:
            refused = await call(connection, "book", **arguments)
            assert refused["isError"] is True
            assert name in refused["content"][0]["text"]
        assert received == []
        assert (await call(connection, "book", city="Oslo", nights=3))["content"][0]["text"] == "booked"
        assert received == [("Oslo", 3)]


@pytest.mark.requirement("R95", "R103", "C29")
async def test_dependencies_of_handlers_come_through_the_context_and_not_through_arguments(era: str) -> None:
    class Statuses:
        def __init__(self) -> None:
            self.seen: list[str] = []

    @tool
    def spawn(parent_prompt: str, ctx: CallContext) -> dict[str, int]:
        """Split a prompt into subtasks."""
        statuses: Statuses = ctx.state["statuses"]
        statuses.seen.append(parent_prompt)
        return {"subtasks": len(statuses.seen)}

    statuses = Statuses()
    async with client(served(spawn, state={"statuses": statuses}), era) as connection:
        assert list((await connection.list_tools())["spawn"].input_schema["properties"]) == ["parent_prompt"]
        assert (await call(connection, "spawn", parent_prompt="build"))["structuredContent"] == {"subtasks": 1}
        assert (await call(connection, "spawn", parent_prompt="build", ctx={"state": {}}))["isError"] is True
    assert statuses.seen == ["build"]


@pytest.mark.requirement("R96")
@pytest.mark.parametrize(
    "schemas, says",
    [
        ({"input_schema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}}, "inputSchema"),
        ({"input_schema": {"type": "string"}}, "inputSchema"),
        ({"output_schema": {"type": "object", "required": 5}}, "outputSchema"),
    ],
)
def test_both_schemas_are_checked_when_a_tool_is_registered(schemas: dict[str, Any], says: str) -> None:
    made = tool(echo, name="odd")
    odd = Tool(made.spec.replace(**schemas), made.toolset)

    with pytest.raises(SchemaError, match=f"'odd'.*{says}") as caught:
        served(odd)
    assert caught.value.pointer
    with pytest.raises(SchemaError, match=f"'odd'.*{says}"):
        served().tool(odd)


@pytest.mark.requirement("R96", "C15")
async def test_output_that_does_not_fit_is_a_tool_error(era: str) -> None:
    @tool(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    def count(right: bool) -> dict[str, Any]:
        """Count."""
        return {"n": 1} if right else {"n": "one"}

    async with client(served(count), era) as connection:
        assert (await call(connection, "count", right=True))["structuredContent"] == {"n": 1}
        wrong = await call(connection, "count", right=False)
        assert wrong["isError"] is True
        assert "structuredContent" not in wrong


@pytest.mark.requirement("R97", "C30")
async def test_a_tool_that_is_registered_later_reaches_clients_that_are_connected(era: str) -> None:
    server = served(add)
    async with client(server, era) as connection:
        changed = anyio.Event()

        def take(change: ToolsChanged) -> None:
            assert change.added == ("later",)
            changed.set()

        connection.on("tools_changed", take)
        server.tool(name="later", title="Later", description="Said later.")(echo)
        await changed.wait()
        assert (await connection.list_tools())["later"].description == "Said later."
        server.remove_tool("later")
        with pytest.raises(ProtocolError):
            await connection.request("tools/call", {"name": "later", "arguments": {"text": "x"}})


@pytest.mark.requirement("R98", "D28")
async def test_tools_are_listed_in_pages(era: str) -> None:
    tools = [tool(echo, name=f"t{number:03}") for number in range(25)]
    async with client(served(*tools, page_size=10), era) as connection:
        first = await connection.request("tools/list")
        second = await connection.request("tools/list", {"cursor": first["nextCursor"]})
        third = await connection.request("tools/list", {"cursor": second["nextCursor"]})
        assert [len(page["tools"]) for page in (first, second, third)] == [10, 10, 5]
        assert "nextCursor" not in third
        assert len(await connection.list_tools()) == 25


@pytest.mark.requirement("R99", "C13")
async def test_progress_in_percent_is_reported_with_a_total_of_100(era: str) -> None:
    @tool
    async def slow(ctx: CallContext) -> str:
        """Take steps."""
        for percent in (0, 50, 100):
            await ctx.percent(percent, f"at {percent}")
        return "done"

    seen: list[Progress] = []
    async with client(served(slow), era) as connection:
        assert (await connection.call_tool("slow", on_progress=seen.append)).text == "done"
    values = [one.progress for one in seen]
    assert values == sorted(set(values))
    assert values[-1] == 100
    assert {one.total for one in seen} == {100}


@pytest.mark.requirement("R101", "C14")
async def test_resources_are_listed_read_by_uri_and_unknown_ones_refused(era: str) -> None:
    server = served()

    @server.resource("notes://{number}")
    def note(number: int) -> str:
        """One note."""
        return f"note {number}"

    server.resource("notes://all", name="all")(lambda: "all notes")
    async with client(server, era) as connection:
        assert [one.uri for one in await connection.list_resources()] == ["notes://all"]
        assert [one.uri_template for one in await connection.list_resource_templates()] == ["notes://{number}"]
        raw = await connection.request("resources/read", {"uri": "notes://7"})
        assert raw["contents"][0]["text"] == "note 7"
        assert raw["contents"][0]["uri"] == "notes://7"
        with pytest.raises(ProtocolError) as caught:
            await connection.read_resource("other://thing")
        assert caught.value.code == (-32602 if era == "2026-07-28" else -32002)


@pytest.mark.requirement("R102")
async def test_old_names_work_beside_new_ones_are_counted_and_warned_of(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = served(tool(echo, name="echo_v2"))
    server.alias("echo", "echo_v2", deprecated="use echo_v2", sunset=date(2030, 1, 31))
    async with client(server, era) as connection:
        assert (await connection.list_tools()).names == ("echo_v2",)
        with caplog.at_level(logging.WARNING, "toolweave"):
            for name in ("echo", "echo", "echo_v2"):
                assert (await call(connection, name, text="x"))["content"][0]["text"] == "x"
        with pytest.raises(ProtocolError) as caught:
            await connection.request("tools/call", {"name": "echo_v3", "arguments": {}})
        assert caught.value.code == -32602
    assert server.aliases["echo"].uses == 2
    assert sum("2030-01-31" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.requirement("R104")
@pytest.mark.parametrize("expose, told", [("message", True), ("masked", False), (None, True)])
async def test_what_went_wrong_is_told_without_a_stack_trace(era: str, expose: Any, told: bool) -> None:
    def broken() -> str:
        """Break."""
        raise ZeroDivisionError("a reason of its own")

    async with client(served(broken, expose_errors=expose), era) as connection:
        text = json.dumps(await call(connection, "broken"))
    assert ("a reason of its own" in text) is told
    assert "Traceback" not in text
    assert __file__ not in text


@pytest.mark.requirement("R88", "C12")
async def test_logs_of_a_handler_reach_the_client_only_where_they_are_declared(era: str) -> None:
    @tool
    async def chatty(ctx: CallContext) -> str:
        """Say something beside the answer."""
        await ctx.log("warning", {"about": "something"})
        return "done"

    for enabled in (True, False):
        seen: list[LogMessage] = []
        callbacks = Callbacks(logging=seen.append, log_level="info")
        async with client(served(chatty, logging=enabled), era, callbacks) as connection:
            assert ("logging" in connection.capabilities) is enabled
            assert (await connection.call_tool("chatty")).text == "done"
        assert [message.data for message in seen] == ([{"about": "something"}] if enabled else [])
