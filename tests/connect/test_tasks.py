"""Calls that become tasks, in both eras: polled, given input, cancelled; the caller only sees a call."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from tests.connect.targets import MODERN, ChannelServer, Json, connected, eventually, initialized, serving, state_of
from toolweave import (
    Callbacks,
    ErrorKind,
    Progress,
    ProtocolError,
    RequestTimeoutError,
    ToolCall,
    ToolError,
    ToolResult,
)
from toolweave.connect import ElicitationRequest
from toolweave.testing import MemoryServer
from toolweave.tools import CallContext

TASK: Json = {
    "taskId": "t",
    "status": "completed",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00Z",
    "ttl": 60000,
}
KINDS = ("stdio", "http-json", "http-sse", "channel")
everywhere = pytest.mark.parametrize(("kind", "version"), [
    (kind, version) for kind in KINDS for version in ("2025-11-25", MODERN)
])  # fmt: skip


@everywhere
async def test_a_call_that_becomes_a_task_returns_its_result(kind: str, version: str) -> None:
    async with connected(serving(kind, version, "--asks")) as connection:
        added = await connection.call_tool("add_later", {"a": 1, "b": 2})
        failed = await connection.call_tool("fail_later")
        methods = (await state_of(connection))["methods"]

    assert json.loads(added.text) == {"sum": 3}
    assert (failed.is_error, failed.text) == (True, "it did not work out")
    assert methods.count("tools/call") == 3
    assert "tasks/get" in methods
    assert ("tasks/result" in methods) == (version != MODERN)


@everywhere
async def test_a_task_that_fails_is_the_calls_error(kind: str, version: str) -> None:
    async with connected(serving(kind, version, "--asks")) as connection:
        with pytest.raises(ProtocolError, match="broken on purpose") as broken:
            await connection.call_tool("break_later")

    assert (broken.value.code, broken.value.data) == (-32050, {"why": "on purpose"})


@pytest.mark.parametrize(("kind", "version"), [
    (kind, version) for kind in KINDS for version in ("2025-11-25", MODERN)
    if version == MODERN or not kind.startswith("http-json")  # a JSON answer has no room for questions before it
])  # fmt: skip
async def test_a_task_gets_the_input_it_asks_for(kind: str, version: str) -> None:
    asked: list[str] = []

    def elicitation(request: ElicitationRequest) -> Json:
        asked.append(request.message)
        return {"name": request.message}

    async with connected(serving(kind, version, "--asks"), callbacks=Callbacks(elicitation=elicitation)) as connection:
        result = await connection.call_tool("ask_later")

    assert asked == ["Who are you?", "Who else?"]
    answers: Any = json.loads(result.text)
    assert [answers[key]["content"]["name"] for key in ("first", "second")] == asked


@everywhere
async def test_a_cancelled_call_cancels_its_task(kind: str, version: str) -> None:
    async with connected(serving(kind, version, "--asks")) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "hang_later")

            async def polled() -> bool:
                return (await state_of(connection))["methods"].count("tasks/get") > 1

            await eventually(polled)
            tasks.cancel_scope.cancel()

        async def cancelled() -> bool:
            return (await state_of(connection))["tasks"] == {"task-1": "cancelled"}

        await eventually(cancelled)
        assert (await connection.call_tool("echo", {"text": "on"})).text == "on"


@everywhere
async def test_a_task_that_the_server_gives_up_is_a_cancelled_call(kind: str, version: str) -> None:
    async with connected(serving(kind, version, "--asks")) as connection:
        with pytest.raises(ToolError, match="the server cancelled the task: out of paper") as cancelled:
            await connection.call_tool("give_up_later")
        result = await connection.call(ToolCall(name="give_up_later"), CallContext())

    assert cancelled.value.kind is ErrorKind.CANCELLED
    assert result.error == cancelled.value


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_task_takes_longer_than_the_bound_on_silence(version: str) -> None:
    async with connected(serving("stdio", version, "--asks")) as connection:
        result = await connection.call_tool("steps_later", {"steps": 30, "poll": 250}, timeout=0.2)

    assert result.text == "done"


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize("kind", ["stdio"])
async def test_a_task_reports_progress_until_it_ends(kind: str, version: str) -> None:
    seen: list[Progress] = []
    async with connected(serving(kind, version, "--asks")) as connection:
        await connection.call_tool("steps_later", {"steps": 3}, on_progress=seen.append)

    assert [progress.progress for progress in seen] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_task_without_the_input_it_needs_is_ended(version: str) -> None:
    async with connected(serving("stdio", version, "--asks")) as connection:
        if version == MODERN:
            with pytest.raises(ProtocolError, match="did not offer: elicitation/create"):
                await connection.call_tool("ask_later")
            assert (await state_of(connection))["tasks"] == {"task-1": "cancelled"}
        else:  # the refusal went to the server, which made of it what it wanted
            result = await connection.call_tool("ask_later")
            assert json.loads(result.text) == {"first": {}, "second": {}}


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
async def test_revisions_without_tasks_are_called_plainly(version: str) -> None:
    async with connected(serving("stdio", version, "--asks")) as connection:
        added = await connection.call_tool("add_later", {"a": 1, "b": 2})
        methods = (await state_of(connection))["methods"]

    assert json.loads(added.text) == {"sum": 3}
    assert "tasks/get" not in methods


def tasking(*answers: Json, requests: list[Json] | None = None) -> ChannelServer:
    """Return a modern server whose one tool becomes a task; `answers` are those to tasks/get, the last for ever."""
    waiting = list(answers)

    def script(message: Json) -> Json | None:
        if requests is not None:
            requests.append(message)
        match message.get("method"):
            case "server/discover":
                return {"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}
            case "tools/list":
                return {"result": {"tools": [{"name": "job", "inputSchema": {}}]}}
            case "tools/call":
                return {"result": {"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 1}}
            case "tasks/get":
                return {"result": waiting.pop(0) if len(waiting) > 1 else waiting[0]}
            case _:
                return {"result": {}}

    return ChannelServer(script)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"taskId": "t", "status": "dreaming"}, "unknown status 'dreaming'"),
        ({"taskId": "t", "status": ["x"]}, "unknown status"),
        ({"taskId": "t", "status": "completed"}, "completed without a result"),
        ({"taskId": "t", "status": "failed"}, "the task failed"),
        ({"taskId": "t", "status": "failed", "statusMessage": "no disk"}, "no disk"),
        ({"taskId": "t", "status": "completed", "result": {}}, "neither 'content' nor 'structuredContent'"),
    ],
)
async def test_a_malformed_task_is_an_error(answer: Json, problem: str) -> None:
    async with connected(tasking(answer)) as connection:
        with pytest.raises(ProtocolError, match=problem):
            await connection.call_tool("job")


async def test_a_question_is_answered_once_however_often_it_is_listed() -> None:
    asked: list[ElicitationRequest] = []
    requests: list[Json] = []

    def elicitation(request: ElicitationRequest) -> Json:
        asked.append(request)
        return {}

    question = {"method": "elicitation/create", "params": {"message": "Who?"}}
    waiting: Json = {"taskId": "t", "status": "input_required", "inputRequests": {"q": question}, "pollIntervalMs": 1}
    done: Json = {"taskId": "t", "status": "completed", "result": {"content": [{"type": "text", "text": "done"}]}}
    server = tasking(waiting, waiting, waiting, done, requests=requests)
    async with connected(server, callbacks=Callbacks(elicitation=elicitation)) as connection:
        assert (await connection.call_tool("job")).text == "done"

    assert len(asked) == 1
    (update,) = [message["params"] for message in requests if message.get("method") == "tasks/update"]
    assert update["taskId"] == "t"
    assert update["inputResponses"] == {"q": {"action": "accept", "content": {}}}


async def test_a_task_that_falls_silent_times_out_and_is_cancelled() -> None:
    methods: list[Any] = []

    def script(message: Json) -> Json | None:
        methods.append(message.get("method"))
        return None if message.get("method") == "tasks/get" else inner(message)

    inner = tasking({})._script  # pyright: ignore[reportPrivateUsage]
    async with connected(ChannelServer(script)) as connection:
        with pytest.raises(RequestTimeoutError):
            await connection.call_tool("job", timeout=0.3)

    assert "tasks/cancel" in methods


@pytest.mark.slow
async def test_a_lost_connection_never_starts_a_task_twice() -> None:
    calls = 0

    def script(message: Json) -> Json | None:
        nonlocal calls
        if message.get("method") == "tools/list":
            tool = {"name": "job", "inputSchema": {}, "execution": {"taskSupport": "required"}}
            return {"result": {"tools": [tool]}}
        if message.get("method") == "tools/call":
            calls += 1
            return {"result": {"task": {"taskId": "t", "status": "working", "pollInterval": 1}}}
        if str(message.get("method")).startswith("tasks/"):
            server.hang_up()
        return None

    offered: Json = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
    server = ChannelServer(initialized(script, capabilities=offered))
    async with connected(server) as connection:
        with pytest.raises(Exception, match="while a task ran"):
            await connection.call_tool("job")

    assert calls == 1


@pytest.mark.slow
@pytest.mark.parametrize("wished", [10**400, -(10**400), -1, True, "soon"])
async def test_a_task_is_polled_at_a_sane_pace_whatever_the_server_wishes(wished: Any) -> None:
    server = MemoryServer(protocol=MODERN)
    task = {"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": wished}
    server.answer("tools/call", task)
    server.answer("tasks/get", {"taskId": "t", "status": "completed", "result": {"content": []}})
    async with connected(server) as connection:
        if wished == 10**400:
            with anyio.move_on_after(0.5):
                await connection.call_tool("x")
            assert "tasks/get" not in server.methods
        else:
            assert not (await connection.call_tool("x")).is_error


async def test_a_task_that_was_taken_and_lost_may_have_run() -> None:
    def answer(message: Json) -> Json | None:
        match message["method"]:
            case "server/discover":
                return {"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}
            case "tools/list":
                return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
            case "tools/call":
                task = {"taskId": "1", "status": "working", "ttlMs": None, "pollIntervalMs": 200}
                server.send({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "task", **task}})
                hang_up.set()
                return None
            case _:
                return {"error": {"code": -32601, "message": "unknown"}}

    hang_up = anyio.Event()
    server = ChannelServer(answer)
    results: list[ToolResult] = []
    async with connected(server, restart="never") as connection, anyio.create_task_group() as tasks:

        async def call() -> None:
            results.append(await connection.call(ToolCall(name="t", arguments={}), CallContext()))

        tasks.start_soon(call)
        await hang_up.wait()
        await anyio.sleep(0.05)  # the answer arrives first; the first poll is later than that
        server.hang_up()
    (result,) = results
    assert result.error is not None
    assert result.error.kind is ErrorKind.OUTCOME_UNKNOWN
    assert "while a task ran" in result.text


@pytest.mark.parametrize(
    "odd",
    [{"content": "made"}, {"content": [{"text": "made"}]}, {"content": [], "isError": "true"}, {"count": 1}],
)
@pytest.mark.parametrize("repairs", [True, False])
async def test_the_result_of_a_task_that_needs_repair_is_read_or_refused_as_its_owner_wants(
    odd: Json, repairs: bool
) -> None:
    def script(message: Json) -> Json | None:
        match message["method"]:
            case "tools/list":
                tool = {"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
                return {"result": {"tools": [tool]}}
            case "tools/call":
                return {"result": {"task": TASK}}
            case "tasks/get":
                return {"result": TASK}
            case "tasks/result":
                return {"result": odd}
            case _:
                return None

    tasks: Json = {"tasks": {"requests": {"tools": {"call": {}}}}}
    target = {
        "server": ChannelServer(initialized(script, capabilities={"tools": {}, **tasks})),
        "repair_messages": repairs,
    }
    async with connected(target) as connection:
        if repairs:
            await connection.call_tool("t")
            assert all("its result" in problem for problem in connection.problems)
            assert connection.problems
        else:
            with pytest.raises(ProtocolError, match="'repair_messages': true"):
                await connection.call_tool("t")
