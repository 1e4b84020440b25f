"""Completions, tasks, errors, prompts and contents that are nearly right, read as they are meant and reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.connect.targets import MODERN, ChannelServer, Json, connected, error, initialized
from toolweave import ProtocolError

OBJECT: Json = {"type": "object"}
ALL: Json = {
    "tools": {},
    "prompts": {},
    "resources": {},
    "completions": {},
    "tasks": {"requests": {"tools": {"call": {}}}},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}
TEXT: Json = {"type": "text", "text": "x"}
REF = {"type": "ref/prompt", "name": "p"}


def answering(method: str, **answer: Any) -> ChannelServer:
    """Return a server with this answer to one method, and a tool."""

    def script(message: Json) -> Json | None:
        if message["method"] == method:
            return answer
        if message["method"] == "tools/list":
            return {"result": {"tools": [{"name": "t", "inputSchema": OBJECT}]}}
        return None

    return ChannelServer(initialized(script, capabilities=ALL))


@pytest.mark.parametrize(
    ("result", "values", "total", "has_more"),
    [
        ({"values": ["a", "b"]}, ("a", "b"), None, False),
        ({"completion": ["a", "b"]}, ("a", "b"), None, False),
        (["a", "b"], ("a", "b"), None, False),
        ({"completion": {"values": "a"}}, ("a",), None, False),
        ({"completion": {"values": None}}, (), None, False),
        ({"completion": {"values": [1, 2.5]}}, ("1", "2.5"), None, False),
        ({"completion": {"values": [{"value": "a"}, {"label": "b"}, {}]}}, ("a", "b"), None, False),
        ({"completion": {"values": ["a"], "total": "3", "hasMore": "true"}}, ("a",), 3, True),
        ({"completion": {"values": ["a"], "has_more": True}}, ("a",), None, True),
        ({"Completion": {"Values": ["a"], "Total": 4}}, ("a",), 4, False),
    ],
)
async def test_a_completion_that_is_nearly_right_is_the_one_that_is_meant(
    result: Any, values: tuple[str, ...], total: int | None, has_more: bool
) -> None:
    async with connected(answering("completion/complete", result=result)) as connection:
        found = await connection.complete(REF, "x", "v")
        assert (found.values, found.total, found.has_more) == (values, total, has_more)
        assert connection.problems


async def test_a_completion_of_the_specification_is_no_problem() -> None:
    result = {"completion": {"values": ["a"], "total": 1, "hasMore": False}}
    async with connected(answering("completion/complete", result=result)) as connection:
        assert (await connection.complete(REF, "x", "v")).values == ("a",)
        assert connection.problems == ()


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ({"code": "-32000", "message": "boom"}, -32000, "boom"),
        ({"code": -32000.0, "message": "boom"}, -32000, "boom"),
        ({"Code": -32000, "Message": "boom"}, -32000, "boom"),
        ({"code": -32000, "message": {"why": "boom"}}, -32000, '{"why": "boom"}'),
        ({"code": -32000, "error": "boom"}, -32000, "boom"),
        ({"code": -32000, "data": {"message": "boom"}}, -32000, "boom"),
        ({"code": -32000, "data": "boom"}, -32000, "boom"),
        ({"code": "E_FAILED", "message": "boom"}, -32603, "boom"),
    ],
)
async def test_an_error_that_is_nearly_one_has_its_code_and_its_words(given: Json, code: int, message: str) -> None:
    async with connected(answering("tools/call", error=given)) as connection:
        with pytest.raises(ProtocolError) as caught:
            await connection.call_tool("t")
        assert (caught.value.code, caught.value.message) == (code, message)
        assert connection.problems


@pytest.mark.parametrize("empty", [{}, False, "", [], 0, {"code": 0, "message": ""}, {"code": None, "message": None}])
async def test_an_empty_error_beside_a_result_is_none(empty: Any) -> None:
    result = {"content": [TEXT]}
    async with connected(answering("tools/call", result=result, error=empty)) as connection:
        assert (await connection.call_tool("t")).text == "x"
        assert connection.problems == ("its answers have 'error': null beside the result",)


@pytest.mark.parametrize(
    ("result", "given"),
    [
        ({"content": [TEXT]}, {"code": 0, "message": "boom"}),
        ({"content": [TEXT]}, {"code": -32000, "message": ""}),
        ({"content": [TEXT]}, "boom"),
        (None, {}),
    ],
)
async def test_an_error_that_says_something_stays_one_beside_a_result(result: Any, given: Any) -> None:
    async with connected(answering("tools/call", result=result, error=given)) as connection:
        with pytest.raises(ProtocolError):
            await connection.call_tool("t")


def tasking(version: str, created: Json, later: Json, *, wrapped: bool = False) -> ChannelServer:
    """Return a server whose tool becomes a task, with these members now and later."""
    done = {"content": [TEXT]}
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    lifetimes = {"ttlMs": 60_000, "pollIntervalMs": 50} if version == MODERN else {"ttl": 60_000, "pollInterval": 50}
    first = {"taskId": "7", "status": "working", **times, **lifetimes, **created}
    then = {"taskId": "7", **times, **lifetimes, **later}
    if version == MODERN:
        then["result"] = done
    info = {"name": "s", "version": "1"}
    tool = {"name": "t", "inputSchema": OBJECT, "execution": {"taskSupport": "required"}}
    results: dict[str, Any] = {
        "tools/list": {"tools": [tool]},
        "tools/call": {"resultType": "task", **first} if version == MODERN else {"task": first},
        "tasks/get": {"task": then} if wrapped else then,
        "tasks/result": done,
        "tasks/cancel": {},
    }
    if version == MODERN:
        results["server/discover"] = {"supportedVersions": [MODERN], "capabilities": ALL, "serverInfo": info}

    def script(message: Json) -> Json | None:
        if message["method"] in results:
            return {"result": results[message["method"]]}
        return error(-32601, "Method not found")

    if version == MODERN:
        return ChannelServer(script)
    return ChannelServer(initialized(script, capabilities=ALL))


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("created", "later"),
    [
        ({}, {"status": "Completed"}),
        ({"status": "WORKING"}, {"status": "COMPLETED"}),
        ({"status": "in_progress"}, {"status": "success"}),
        ({"status": "submitted"}, {"status": "done"}),
        ({"status": "running"}, {"status": "succeeded"}),
        ({"pollInterval": "50", "pollIntervalMs": "50"}, {"status": "completed"}),
        ({"poll_interval": 50}, {"Status": "completed"}),
    ],
)
async def test_a_task_in_other_words_is_the_task_that_is_meant(version: str, created: Json, later: Json) -> None:
    async with connected(tasking(version, created, later)) as connection:
        assert (await connection.call_tool("t")).text == "x"
        assert connection.problems
        assert {one.partition(" has ")[0] for one in connection.problems} == {"its result"}


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_task_in_an_object_of_its_answer_is_that_task(version: str) -> None:
    async with connected(tasking(version, {}, {"status": "completed"}, wrapped=True)) as connection:
        assert (await connection.call_tool("t")).text == "x"
        assert connection.problems == ("its result has a task that is not as the specification has it",)


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("created", "problem"),
    [({"taskId": 7}, "without an id"), ({"taskId": None, "task_id": "7"}, "without an id"), ({"status": "odd"}, "odd")],
)
async def test_the_id_of_a_task_and_an_unknown_status_are_not_repaired(
    version: str, created: Json, problem: str
) -> None:
    async with connected(tasking(version, created, {"status": "completed"})) as connection:
        with pytest.raises(ProtocolError, match=problem):
            await connection.call_tool("t")


async def test_an_owner_that_wants_no_repairs_gets_an_error_for_a_task_in_other_words() -> None:
    server = tasking("2025-11-25", {"status": "running"}, {"status": "completed"})
    target = {"transport": "inprocess", "server": server, "repair_messages": False}
    async with connected(target) as connection:
        with pytest.raises(ProtocolError, match="'repair_messages': true"):
            await connection.call_tool("t")


@pytest.mark.parametrize(
    "result",
    [
        {"Messages": [{"Role": "user", "Content": {"Type": "text", "Text": "x"}}]},
        {"messages": [{"role": "USER", "content": TEXT}]},
        {"messages": [{"role": "user", "content": {"type": "Text", "text": "x"}}]},
        {"text": "x"},
    ],
)
async def test_a_prompt_in_another_spelling_has_its_messages(result: Json) -> None:
    async with connected(answering("prompts/get", result=result)) as connection:
        filled: Any = await connection.get_prompt("p")
        assert [(one.role, one.content.text) for one in filled.messages] == [("user", "x")]
        assert connection.problems


@pytest.mark.parametrize("text", [{"a": 1}, ["b"], 5])
async def test_a_text_of_a_prompt_that_is_data_is_its_json(text: Any) -> None:
    result = {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    async with connected(answering("prompts/get", result=result)) as connection:
        filled: Any = await connection.get_prompt("p")
        assert filled.messages[0].content.text in ('{"a": 1}', '["b"]', "5")
        assert connection.problems


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
@pytest.mark.parametrize(
    "result",
    [
        {"isError": True, "content": [{"type": "text", "text": "boom"}]},
        {"is_error": True, "messages": [], "contents": [], "content": "boom"},
        {"isError": "true", "content": [{"type": "error", "text": "boom"}]},
    ],
)
async def test_a_failure_of_a_prompt_or_a_resource_that_is_told_as_that_of_a_tool_is_a_failure(
    method: str, result: Json
) -> None:
    async with connected(answering(method, result=result)) as connection:
        with pytest.raises(ProtocolError, match="reports a failure: boom"):
            if method == "prompts/get":
                await connection.get_prompt("p")
            else:
                await connection.read_resource("a://b")


@pytest.mark.parametrize(
    ("result", "text", "blob"),
    [
        ({"content": [TEXT]}, "x", None),
        ({"Contents": [{"uri": "a://b", "Text": "x"}]}, "x", None),
        ({"contents": [{"type": "resource", "resource": {"uri": "a://b", "text": "x"}}]}, "x", None),
        ({"contents": [{"count": 1}]}, '{"count": 1}', None),
        ({"contents": [{"uri": "a://b", "blob": [104, 105]}]}, None, "aGk="),
        ({"contents": [{"uri": "a://b", "blob": {"type": "Buffer", "data": [104, 105]}}]}, None, "aGk="),
        ({"contents": [{"uri": "a://b", "blob": "data:text/plain;base64,aGk="}]}, None, "aGk="),
        ({"contents": [{"uri": "a://b", "blob": "aG\nk="}]}, None, "aGk="),
    ],
)
async def test_contents_of_a_resource_in_another_form_are_the_contents(
    result: Json, text: str | None, blob: str | None
) -> None:
    async with connected(answering("resources/read", result=result)) as connection:
        (read,) = await connection.read_resource("a://b")
        assert (read.uri, read.text, read.blob) == ("a://b", text, blob)
        assert connection.problems


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "mimeType": "image/png", "data": [104, 105]},
        {"type": "image", "mimeType": "image/png", "data": {"type": "Buffer", "data": [104, 105]}},
        {"type": "resource", "resource": {"uri": "a://b", "blob": {"type": "Buffer", "data": [104, 105]}}},
        {"Type": "image", "MimeType": "image/png", "Data": "aGk="},
    ],
)
async def test_bytes_of_a_result_as_a_list_of_numbers_are_its_data(block: Json) -> None:
    async with connected(answering("tools/call", result={"content": [block]})) as connection:
        (made,) = (await connection.call_tool("t")).content
        assert "aGk=" in (getattr(made, "data", None), getattr(made, "blob", None))
        assert connection.problems


@pytest.mark.parametrize("data", [[], [256], [True], ["a"], {"data": [1]}])
async def test_a_list_that_is_no_bytes_is_no_data(data: Any) -> None:
    block = {"type": "image", "mimeType": "image/png", "data": data}
    async with connected(answering("tools/call", result={"content": [block]})) as connection:
        (made,) = (await connection.call_tool("t")).content
        assert not hasattr(made, "data")
