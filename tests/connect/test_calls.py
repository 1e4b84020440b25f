"""Calls: what is checked before they are sent, how long they are waited for, what is reported on the way."""

from __future__ import annotations

import copy
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.connect.targets import MODERN, ChannelServer, Json, connected, eventually, initialized, state_of
from tests.servers.fixtures import echo_command, fault_command
from toolweave import (
    CallContext,
    ConnectionLostError,
    ErrorKind,
    McpConnection,
    Progress,
    ProtocolError,
    RequestTimeoutError,
    TextContent,
    ToolCall,
    ToolError,
    ToolResult,
)
from toolweave.protocol.meta import PROTOCOL_VERSION


def config(command: list[str], **settings: Any) -> Json:
    return {"command": command[0], "args": command[1:], **settings}


@pytest.mark.requirement("C10", "R46")
async def test_arguments_that_do_not_fit_are_not_sent_and_the_model_is_told_why() -> None:
    async with connected(echo_command()) as connection:
        wrong = await connection.call_tool("add", {"a": "one"})
        extra = await connection.call_tool("echo", {"text": "x", "loud": True})
        executed = await (await connection.list_tools())["add"].execute({"a": 1})
        calls = (await state_of(connection))["calls"]
    for result in (wrong, extra, executed):
        assert result.is_error
        assert result.error is not None
        assert (result.error.kind, result.error.retryable) == (ErrorKind.INVALID_INPUT, False)
    assert "tool 'add'" in wrong.text
    assert "a" in wrong.text
    assert "b" in executed.text
    assert "loud" in extra.text
    assert calls == {"state": 1}


@pytest.mark.requirement("C10", "R46")
async def test_arguments_are_not_checked_when_the_config_says_so() -> None:
    async with connected(config(echo_command(), validate_input=False)) as connection:
        result = await connection.call_tool("add", {"a": 1})
        assert (result.text, result.is_error) == ("Missing arguments: ['b']", True)
        assert (await state_of(connection))["calls"]["add"] == 1


@pytest.mark.requirement("R61")
async def test_a_tool_that_is_not_there_is_an_error_result_that_names_those_that_are() -> None:
    async with connected(echo_command(), name="srv") as connection:
        result = await connection.call(ToolCall(name="ecko", arguments={}), CallContext())
    assert result.error is not None
    assert result.error.kind is ErrorKind.NOT_FOUND
    assert "no tool 'ecko'" in result.text
    assert "echo" in result.text


@pytest.mark.requirement("R41")
async def test_a_tool_is_called_by_its_name_or_an_alias() -> None:
    async with connected(echo_command(), name="srv") as connection:
        for name in ("echo", "srv:echo", "srv/echo"):
            assert (await connection.call_tool(name, {"text": name})).text == name


@pytest.mark.requirement("D16")
async def test_parameters_may_have_any_name() -> None:
    arguments = {"self": 1, "name": 2, "arguments": 3, "tool_name": 4, "ctx": 5, "timeout": 6, "": 7}
    async with connected(echo_command()) as connection:
        result = await (await connection.list_tools())["args"].execute(arguments)
    assert result.structured_content["arguments"] == arguments


@pytest.mark.parametrize("arguments", [[1], "text", 7])
async def test_arguments_that_are_no_mapping_are_a_mistake_of_the_caller(arguments: Any) -> None:
    async with connected(echo_command()) as connection:
        with pytest.raises(TypeError, match="arguments must be one mapping"):
            await connection.call_tool("echo", arguments)


@pytest.mark.parametrize("value", [object(), 1j, iter(()), float("nan"), [float("inf")], {"a": -float("inf")}])
async def test_arguments_that_are_no_json_are_an_error_of_that_call_only(value: Any) -> None:
    async with connected(config(echo_command(), validate_input=False)) as connection:
        tools = await connection.list_tools()
        result = await tools["args"].execute({"x": value})
        fine = await tools["args"].execute({"x": [1.5, None, True, "ü", {}]})
    assert fine.structured_content["arguments"] == {"x": [1.5, None, True, "ü", {}]}
    assert result.error is not None
    assert result.error.kind is ErrorKind.INVALID_INPUT
    assert "not JSON" in result.text


async def test_arguments_larger_than_any_pipe_arrive_whole() -> None:
    text = "0123456789abcdef" * 250_000
    async with connected(echo_command()) as connection:
        result = await connection.call_tool("echo", {"text": text})
    assert result.text == text


async def test_metadata_of_a_call_is_sent_beside_the_protocols_own() -> None:
    seen: list[Json] = []

    def answer(message: Json) -> Json | None:
        if message["method"] == "tools/call":
            seen.append(message["params"].get("_meta", {}))
        return {"result": {"tools": [], "content": []}}

    async with connected(ChannelServer(initialized(answer))) as connection:
        await connection.call_tool("x", meta={"example.com/trace": "1"})
        await connection.call_tool("x")
        await connection.call_tool("x", meta={"a": 1}, on_progress=lambda progress: None)
    assert seen[0] == {"example.com/trace": "1"}
    assert seen[1] == {}
    assert set(seen[2]) == {"a", "progressToken"}


async def test_metadata_of_a_call_replaces_nothing_of_the_envelope_of_its_session() -> None:
    seen: list[Json] = []

    def script(message: Json) -> Json | None:
        if message.get("method") == "server/discover":
            return {"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}
        if message["method"] == "tools/call":
            seen.append(message["params"])
        return {"result": {"tools": [], "content": []}}

    async with connected(ChannelServer(script)) as connection:
        await connection.call_tool("x", {"a": 1})
        own: Json = {**dict.fromkeys(seen[0]["_meta"], "other"), "example.com/trace": "1"}
        await connection.call_tool("x", {"a": 1}, meta=own)
    assert PROTOCOL_VERSION in seen[0]["_meta"]
    assert seen[1] == {**seen[0], "_meta": {**seen[0]["_meta"], "example.com/trace": "1"}}
    assert (seen[1]["name"], seen[1]["arguments"]) == ("x", {"a": 1})


async def test_a_silent_call_is_given_up_after_its_own_bound_and_cancelled_on_the_server() -> None:
    async with connected(echo_command(), name="srv", timeout={"call": 60}) as connection:
        with pytest.raises(RequestTimeoutError) as late:
            await connection.call_tool("hang", timeout=0.2)
        assert str(late.value) == "server 'srv': no answer to the call of tool 'hang' within 0.2 s"
        assert late.value.seconds == 0.2
        assert isinstance(late.value, TimeoutError)

        async def cancelled() -> bool:
            return len((await state_of(connection))["cancelled"]) == 1

        await eventually(cancelled)


async def test_an_executed_call_that_is_too_slow_is_an_error_result() -> None:
    async with connected(echo_command(), timeout={"call": 0.2}) as connection:
        result = await (await connection.list_tools())["hang"].execute()
    assert result.error is not None
    assert result.error.kind is ErrorKind.TIMEOUT
    assert result.text.startswith("MCP error: server 'run': no answer to the call of tool 'hang' within 0.2 s")


@pytest.mark.slow
async def test_progress_is_a_sign_of_life() -> None:
    # 12 steps of 0.1 s: silent for less than the bound each time, longer than the bound in all
    async with connected(echo_command()) as connection:
        arguments = {"seconds": 1.2, "steps": 12}
        result = await connection.call_tool("slow", arguments, timeout=1.0, on_progress=lambda progress: None)
    assert result.text == "done in 12 steps"


@pytest.mark.slow
async def test_a_bound_of_the_whole_call_holds_against_progress() -> None:
    target = config(echo_command(), timeout={"call": 30, "call_total": 0.4})
    async with connected(target) as connection:
        with pytest.raises(RequestTimeoutError):
            await connection.call_tool("slow", {"seconds": 20, "steps": 400})


@pytest.mark.parametrize("method", ["list_resources", "list_prompts", "ping", "refresh"])
async def test_every_other_request_has_a_bound_too(method: str) -> None:
    hushed = {"resources/list", "prompts/list", "ping", "tools/list"}
    quiet = threading.Event()

    def answer(message: Json) -> Json | None:
        return None if quiet.is_set() and message["method"] in hushed else {"result": {"tools": []}}

    capabilities: Json = {"tools": {}, "resources": {}, "prompts": {}}
    server = ChannelServer(initialized(answer, capabilities=capabilities))
    async with connected(server, name="mute", timeout={"list": 0.2, "read": 0.2}) as connection:
        quiet.set()
        with pytest.raises(RequestTimeoutError, match=r"server 'mute': no answer to \S+ within 0.2 s"):
            await getattr(connection, method)()


async def test_lines_that_were_no_answer_are_mentioned_when_none_came() -> None:
    failures: list[str] = []

    async def call() -> None:
        with pytest.raises(RequestTimeoutError) as failure:
            await connection.call_tool("echo", {"text": "x"})
        failures.append(str(failure.value))

    target = connected(fault_command("wrong_id"), timeout={"call": 0.3})
    async with target as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(call)  # of two, neither knows whose the answer is
        tasks.start_soon(call)
    assert ["987654" in failure for failure in failures] == [True, True]


def odd_answers(how: Callable[[Json], Json | None]) -> ChannelServer:
    """Return a server whose answer to a call is sent as it is, with the id that it names."""

    def answer(message: Json) -> Json | None:
        if message["method"] == "tools/list":
            return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
        if message["method"] == "tools/call" and (said := how(message)) is not None:
            server.send({"jsonrpc": "2.0"} | said)
        return None

    server = ChannelServer(initialized(answer))
    return server


REFUSED: Json = {"error": {"code": -32603, "message": "broken"}}
DONE: Json = {"result": {"content": [{"type": "text", "text": "whose?"}]}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"id": None} | REFUSED, "broken"),
        (REFUSED, "broken"),
        ({"id": 99999} | REFUSED, "broken"),
        ({"id": 99999} | DONE, "its id is '99999', which no request had"),
        ({"id": "mine"} | DONE, "its id is 'mine', which no request had"),
        ({"id": None} | DONE, "it has no id"),
    ],
    ids=str,
)
async def test_an_answer_that_can_only_be_meant_for_the_one_pending_call_ends_it_at_once(
    said: Json, words: str
) -> None:
    async with connected(odd_answers(lambda message: said)) as connection:
        with pytest.raises(ProtocolError, match=words):
            await connection.call_tool("t")


@pytest.mark.slow
async def test_an_answer_whose_id_is_a_number_too_long_to_be_read_ends_the_one_pending_call_at_once() -> None:
    def answer(message: Json) -> None:
        server.send(b'{"jsonrpc": "2.0", "id": %s, "result": {"content": []}}' % (b"7" * 3_000_000))

    server = odd_answers(answer)
    async with connected(server) as connection:
        with pytest.raises(ProtocolError, match=r"its id is '7+', which no request had"):
            await connection.call_tool("t")


async def test_an_answer_under_a_foreign_id_costs_nothing_when_the_right_one_follows() -> None:
    def answer(message: Json) -> Json | None:
        for odd in ("0" * 1_000_000, 10**400, None, "mine"):
            server.send(json.dumps({"jsonrpc": "2.0", "id": odd} | REFUSED).encode())
        return {"id": message["id"]} | DONE

    server = odd_answers(answer)
    async with connected(server) as connection:
        assert (await connection.call_tool("t")).text == "whose?"


async def test_a_late_answer_is_never_taken_for_the_one_pending_call() -> None:
    calls: list[Json] = []

    def answer(message: Json) -> Json | None:
        calls.append(message)
        if len(calls) == 1:
            return None
        for odd in (None, calls[0]["id"], str(calls[0]["id"])):  # of the first call, which was given up
            server.send({"jsonrpc": "2.0", "id": odd} | REFUSED)
        return {"id": message["id"]} | DONE

    server = odd_answers(answer)
    async with connected(server) as connection:
        with pytest.raises(RequestTimeoutError):
            await connection.call_tool("t", timeout=0.1)
        calls[1:] = []
        assert (await connection.call_tool("t")).text == "whose?"


async def test_calls_run_side_by_side() -> None:
    async with connected(echo_command()) as connection, anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(connection.call_tool, "hold", {"key": str(number % 2)})
        await eventually(lambda: held(connection, 20))
        await connection.call_tool("release", {"key": "0"})
        await connection.call_tool("release", {"key": "1"})


async def held(connection: McpConnection, number: int) -> bool:
    return (await state_of(connection))["calls"].get("hold", 0) == number


async def test_a_limit_of_calls_in_flight_is_kept() -> None:
    running = most = 0
    gate = threading.Event()

    def answer(message: Json) -> Json | None:
        nonlocal running, most
        if message["method"] == "tools/call":
            running += 1
            most = max(most, running)
            if running == 3:
                gate.set()
            gate.wait(0.05)
            running -= 1
        return {"result": {"tools": [], "content": []}}

    server = ChannelServer(initialized(answer), blocks=lambda message: message.get("method") == "tools/call")
    target = {"transport": "inprocess", "server": server, "max_concurrency": 3}
    async with connected(target) as connection, anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(connection.call_tool, "x")
    assert most <= 3


async def test_a_call_does_not_wait_for_its_turn_longer_than_for_an_answer() -> None:
    came = anyio.Event()

    def silent(message: Json) -> Json | None:
        if message["method"] == "tools/call":
            came.set()
            return None
        return {"result": {"tools": []}}

    target = {"transport": "inprocess", "server": ChannelServer(initialized(silent)), "max_concurrency": 1}
    async with connected(target) as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(connection.call_tool, "first")
        await came.wait()
        with pytest.raises(RequestTimeoutError, match=r"tool 'late' was not sent: 1 others.*'max_concurrency'"):
            await connection.call_tool("late", timeout=0.1)
        tasks.cancel_scope.cancel()


async def test_what_a_progress_callback_gets_is_what_the_server_sent() -> None:
    sent: list[Json] = [
        {"progress": 1},
        {"progress": 2.5, "total": 10, "message": "half"},
        {"progress": "three"},
        {"progress": True},
        {"progress": 4, "total": "ten", "message": 5},
    ]

    def answer(message: Json) -> Json | None:
        if message["method"] == "tools/call":
            token = message["params"]["_meta"]["progressToken"]
            for params in sent:
                server.send(note({"progressToken": token, **params}))
            server.send(note({"progressToken": "somebody else's", "progress": 1}))
            server.send(note({}))
        return {"result": {"tools": [], "content": []}}

    def note(params: Json) -> Json:
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}

    server = ChannelServer(initialized(answer))
    seen: list[Progress] = []
    async with connected(server) as connection:
        await connection.call_tool("x", on_progress=seen.append)
    assert seen == [
        Progress(progress=1),
        Progress(progress=2.5, total=10, message="half"),
        Progress(progress=4, message="5"),
    ]


async def test_progress_after_the_answer_is_dropped() -> None:
    tokens: list[Any] = []

    def answer(message: Json) -> Json | None:
        if message["method"] == "tools/call":
            tokens.append(message["params"].get("_meta", {}).get("progressToken"))
        elif message["method"] == "ping":
            params = {"progressToken": tokens[0], "progress": 99}
            server.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        return {"result": {"tools": [], "content": []}}

    server = ChannelServer(initialized(answer))
    seen: list[Progress] = []
    async with connected(server) as connection:
        await connection.call_tool("x", on_progress=seen.append)
        await connection.ping()
    assert seen == []


async def test_an_error_of_a_call_with_progress_comes_out_as_itself() -> None:
    async with connected(echo_command()) as connection:
        result = await (await connection.list_tools())["rpc_error"].execute(
            {"message": "as itself"}, CallContext(on_progress=lambda progress: None)
        )
    assert isinstance(result.error, ToolError)
    assert "as itself" in result.error.message


async def test_what_a_server_asks_is_answered_or_refused_politely() -> None:
    async with connected(fault_command("roots_and_sampling_requests")) as connection:
        asked = (await connection.call_tool("echo", {"text": "x"})).structured_content
    assert asked["ping"]["result"] == {}
    for method in ("roots/list", "sampling/createMessage", "elicitation/create"):
        assert asked[method]["error"] == {"code": -32601, "message": f"this client does not offer {method}"}


async def test_a_message_larger_than_the_bound_of_the_config_is_refused_and_the_bound_named() -> None:
    async with connected(config(echo_command(), max_message_bytes=20_000, restart="never")) as connection:
        assert (await connection.call_tool("echo", {"text": "x" * 5_000})).text == "x" * 5_000
        with pytest.raises(ConnectionLostError, match=r"more than 20000 bytes.*'max_message_bytes'"):
            await connection.call_tool("echo", {"text": "x" * 30_000})


async def test_a_result_of_a_server_is_a_value_like_one_that_a_program_makes() -> None:
    async with connected(echo_command()) as connection:
        result = await (await connection.list_tools())["echo"].execute({"text": "x"})
    block = result.content[0]
    assert (type(result), type(block)) == (ToolResult, TextContent)
    assert result == ToolResult(content=(TextContent(text="x"),))
    assert repr(result) == repr(ToolResult(content=(TextContent(text="x"),)))
    for value in (result, block):
        assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value.replace() == value
        with pytest.raises(AttributeError):
            value.meta = {}  # type: ignore[misc]
        with pytest.raises(AttributeError):
            del value.meta  # type: ignore[misc]
