"""Questions and notifications of servers that are nearly right, read as they are plainly meant and reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.connect.targets import MODERN, ChannelServer, Json, connected, initialized
from toolweave import Callbacks
from toolweave.connect import ElicitationRequest, LogMessage, SamplingRequest
from toolweave.tools import Progress

TEXT: Json = {"type": "text", "text": "hi"}
MESSAGES: list[Json] = [{"role": "user", "content": TEXT}]
FORM: Json = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOLS: Json = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
DONE: Json = {"result": {"content": [{"type": "text", "text": "done"}]}}
NOT_JSON = "it sent text that is not JSON (half a character, NaN, a number out of range): replaced by U+FFFD or null"


def asking(method: str, params: Any, *, raw: bytes | None = None) -> ChannelServer:
    """Return a legacy server whose tool asks its client, and returns the client's answer as its text."""
    calls: list[Any] = []

    def script(message: Json) -> Json | None:
        if message["method"] == "tools/list":
            return {"result": TOOLS}
        if message["method"] != "tools/call":
            return None
        calls.append(message["id"])
        server.send(raw or {"jsonrpc": "2.0", "id": "q", "method": method, "params": params})
        return None

    def answered(message: Json) -> Json | None:
        if "method" not in message:
            text = json.dumps(message.get("result", message.get("error")))
            result = {"content": [{"type": "text", "text": text}]}
            server.send({"jsonrpc": "2.0", "id": calls[0], "result": result})
            return None
        return initialized(script)(message)

    server = ChannelServer(answered)
    return server


def modern(method: str, params: Any) -> ChannelServer:
    """Return a stateless server whose tool asks its client in a result."""

    def script(message: Json) -> Json | None:
        match message["method"]:
            case "server/discover":
                info = {"name": "s", "version": "1"}
                return {"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "serverInfo": info}}
            case "tools/list":
                return {"result": TOOLS}
            case "tools/call" if "inputResponses" in message["params"]:
                text = json.dumps(message["params"]["inputResponses"]["q"])
                return {"result": {"content": [{"type": "text", "text": text}]}}
            case "tools/call":
                asked = {"q": {"method": method, "params": params}}
                return {"result": {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}}
            case _:
                return None

    return ChannelServer(script)


def notifying(method: str, params: Json, *, raw: bytes | None = None) -> ChannelServer:
    """Return a server that sends a notification while its tool runs; `TOKEN` stands for the call's progress token."""

    def script(message: Json) -> Json | None:
        if message["method"] == "tools/list":
            return {"result": TOOLS}
        if message["method"] != "tools/call":
            return None
        token = message["params"].get("_meta", {}).get("progressToken")
        text = raw or json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()
        server.send(text.replace(b"TOKEN", str(token).encode()))
        return DONE

    server = ChannelServer(initialized(script))
    return server


async def sampled(server: Any) -> tuple[SamplingRequest | None, Any, tuple[str, ...]]:
    """Return the sampling request that a callback gets, what the server gets, and the problems of the server."""
    asked: list[SamplingRequest] = []

    def answer(request: SamplingRequest) -> str:
        asked.append(request)
        return "words"

    async with connected(server, callbacks=Callbacks(sampling=answer)) as connection:
        result = await connection.call_tool("t")
        return (asked[0] if asked else None), json.loads(result.text), connection.problems


async def elicited(server: Any) -> tuple[ElicitationRequest | None, Any, tuple[str, ...]]:
    """Return the elicitation that a callback gets, what the server gets, and the problems of the server."""
    asked: list[ElicitationRequest] = []

    def answer(request: ElicitationRequest) -> Json:
        asked.append(request)
        return {"a": "x"}

    async with connected(server, callbacks=Callbacks(elicitation=answer)) as connection:
        result = await connection.call_tool("t")
        return (asked[0] if asked else None), json.loads(result.text), connection.problems


@pytest.mark.parametrize("ask", [asking, modern])
@pytest.mark.parametrize(
    "messages",
    [
        "hi",
        ["hi"],
        {"role": "user", "content": TEXT},
        [{"role": "user", "content": "hi"}],
        [{"role": "user", "content": {"text": "hi"}}],
        [{"role": "user", "content": ["hi"]}],
        [{"content": TEXT}],
        [{"text": "hi"}],
        [None, {"role": "user", "content": TEXT}],
    ],
)
async def test_messages_of_a_sampling_request_are_those_that_are_meant(ask: Any, messages: Any) -> None:
    request, answer, problems = await sampled(ask("sampling/createMessage", {"messages": messages, "maxTokens": 5}))

    assert request is not None
    assert [(one.role, one.text) for one in request.messages] == [("user", "hi")]
    assert answer["content"] == {"type": "text", "text": "words"}
    assert problems == ("its request sampling/createMessage has messages that are not as the specification has them",)


async def test_a_text_of_a_sampling_request_that_is_data_is_its_json() -> None:
    messages = [{"role": "user", "content": {"type": "text", "text": {"a": 1}}}]
    request, _, problems = await sampled(asking("sampling/createMessage", {"messages": messages, "maxTokens": 5}))

    assert request is not None
    assert request.messages[0].text == '{"a": 1}'
    assert problems


@pytest.mark.parametrize(
    ("members", "tokens", "temperature"),
    [
        ({"maxTokens": "100"}, 100, None),
        ({"maxTokens": 100.0}, 100, None),
        ({"max_tokens": 100}, 100, None),
        ({"maxTokens": 100, "temperature": "0.5"}, 100, 0.5),
        ({"maxTokens": "many", "temperature": "1"}, None, 1),
    ],
)
async def test_numbers_of_a_sampling_request_are_those_that_are_meant(
    members: Json, tokens: int | None, temperature: float | None
) -> None:
    request, _, problems = await sampled(asking("sampling/createMessage", {"messages": MESSAGES, **members}))

    assert request is not None
    assert (request.max_tokens, request.temperature) == (tokens, temperature)
    assert problems


async def test_members_of_a_sampling_request_in_another_spelling_are_its_members() -> None:
    params = {"Messages": MESSAGES, "max_tokens": 5, "system_prompt": "be kind"}
    request, _, problems = await sampled(asking("sampling/createMessage", params))

    assert request is not None
    assert (request.messages[0].text, request.max_tokens, request.system_prompt) == ("hi", 5, "be kind")
    assert [one.partition(" in place of ")[2] for one in problems] == ["'messages'", "'maxTokens'", "'systemPrompt'"]


async def test_a_sampling_request_of_the_specification_is_no_problem() -> None:
    blocks = [TEXT, {"type": "tool_result", "toolUseId": "1", "content": [TEXT]}]
    messages = [*MESSAGES, {"role": "user", "content": blocks}]
    params = {"messages": messages, "maxTokens": 5, "temperature": 1, "metadata": {"max_tokens": 3}}
    request, _, problems = await sampled(asking("sampling/createMessage", params))

    assert request is not None
    assert request.raw == params
    assert problems == ()


@pytest.mark.parametrize("ask", [asking, modern])
@pytest.mark.parametrize(
    "members",
    [
        {"requested_schema": FORM},
        {"schema": FORM},
        {"requestedSchema": json.dumps(FORM)},
        {"requestedSchema": {"properties": FORM["properties"]}},
        {"mode": "Form", "requestedSchema": FORM},
        {"mode": None, "requestedSchema": FORM},
    ],
)
async def test_a_form_that_is_nearly_one_is_the_form_that_is_meant(ask: Any, members: Json) -> None:
    request, answer, problems = await elicited(ask("elicitation/create", {"message": "who?", **members}))

    assert request is not None
    assert (request.mode, request.schema) == ("form", FORM)
    assert answer == {"action": "accept", "content": {"a": "x"}}
    assert len(problems) == 1


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "URL", "message": "go", "url": "https://host.example/"},
        {"mode": "page", "message": "go"},
        {"mode": 1, "message": "go"},
    ],
)
async def test_the_mode_of_a_page_has_one_spelling(params: Json) -> None:
    request, answer, _ = await elicited(asking("elicitation/create", params))

    assert request is None
    assert answer["code"] == -32602


@pytest.mark.parametrize("text", [b'"hi \\ud83d"', b'"hi \x01"', b'"hi", "n": NaN'])
async def test_a_question_that_is_nearly_json_is_put_and_reported(text: bytes) -> None:
    raw = (
        b'{"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {"maxTokens": 5, '
        b'"messages": [{"role": "user", "content": {"type": "text", "text": ' + text + b"}}]}}"
    )
    request, _, problems = await sampled(asking("", {}, raw=raw))

    assert request is not None
    assert request.messages[0].text.startswith("hi")
    assert problems == (NOT_JSON,)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sampling/createMessage", {"messages": "hi", "maxTokens": 5}),
        ("elicitation/create", {"message": "who?", "schema": FORM}),
    ],
)
async def test_an_owner_that_wants_no_repairs_refuses_such_questions(method: str, params: Json) -> None:
    target = {"transport": "inprocess", "server": asking(method, params), "repair_messages": False}
    read = sampled if method.startswith("sampling") else elicited
    request, answer, _ = await read(target)

    assert request is None
    assert "'repair_messages': true" in answer["message"]


async def progress_of(server: Any) -> tuple[list[Progress], tuple[str, ...]]:
    """Return the progress of a call, and the problems of the server."""
    seen: list[Progress] = []
    async with connected(server) as connection:
        await connection.call_tool("t", on_progress=seen.append)
        return seen, connection.problems


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"progressToken": "TOKEN", "progress": "1", "total": "3"}, Progress(progress=1, total=3)),
        ({"progressToken": "TOKEN", "progress": "0.5"}, Progress(progress=0.5)),
        ({"progress_token": "TOKEN", "progress": 1}, Progress(progress=1)),
        ({"progressToken": "TOKEN", "progress": 1, "message": {"a": 1}}, Progress(progress=1, message='{"a": 1}')),
    ],
)
async def test_progress_that_is_nearly_right_is_progress(params: Json, expected: Progress) -> None:
    seen, problems = await progress_of(notifying("notifications/progress", params))

    assert seen == [expected]
    assert {one.partition(" has ")[0] for one in problems} == {"its notification notifications/progress"}


@pytest.mark.parametrize("amount", ["half", "", True, None, "1e999", "0x1", 10**400])
async def test_an_amount_that_is_no_number_is_not_progress(amount: Any) -> None:
    seen, problems = await progress_of(
        notifying("notifications/progress", {"progressToken": "TOKEN", "progress": amount})
    )

    assert (seen, problems) == ([], ())


async def test_a_total_that_no_float_can_hold_leaves_the_progress() -> None:
    params = {"progressToken": "TOKEN", "progress": 1, "total": 10**400}

    seen, problems = await progress_of(notifying("notifications/progress", params))

    assert (seen, problems) == ([Progress(progress=1)], ())


async def test_an_owner_that_wants_no_repairs_gets_no_such_progress_and_is_told_why() -> None:
    server = notifying("notifications/progress", {"progressToken": "TOKEN", "progress": "1"})
    target = {"transport": "inprocess", "server": server, "repair_messages": False}
    seen: list[Progress] = []
    errors: list[Exception] = []
    async with connected(target) as connection:
        connection.on("error", errors.append)
        result = await connection.call_tool("t", on_progress=seen.append)
        assert (result.text, seen) == ("done", [])
        assert ["'repair_messages': true" in str(one) for one in errors] == [True]


async def logged(server: Any) -> tuple[list[LogMessage], tuple[str, ...]]:
    """Return the log messages of a server, and its problems."""
    seen: list[LogMessage] = []
    async with connected(server, callbacks=Callbacks(logging=seen.append)) as connection:
        await connection.call_tool("t")
        return seen, connection.problems


@pytest.mark.parametrize(
    ("level", "meant"),
    [
        ("WARNING", "warning"),
        ("warn", "warning"),
        ("Warn", "warning"),
        ("INFO", "info"),
        ("err", "error"),
        ("FATAL", "critical"),
        ("trace", "debug"),
    ],
)
async def test_a_severity_in_another_spelling_is_the_severity(level: str, meant: str) -> None:
    seen, problems = await logged(notifying("notifications/message", {"level": level, "data": "x"}))

    assert [(one.level, one.data) for one in seen] == [(meant, "x")]
    assert problems == (f"its notification notifications/message has the level {level!r}, read as {meant!r}",)


@pytest.mark.parametrize("name", ["message", "text"])
async def test_a_log_message_whose_data_has_another_name_has_its_data(name: str) -> None:
    seen, problems = await logged(notifying("notifications/message", {"level": "info", name: "x"}))

    assert [one.data for one in seen] == ["x"]
    assert problems == (f"its notification notifications/message has {name!r} in place of 'data'",)


@pytest.mark.parametrize("data", [b"NaN", b'"x\\ud83d"', b"1e400"])
async def test_a_notification_that_is_nearly_json_is_handled_and_reported(data: bytes) -> None:
    raw = b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": ' + data + b"}}"
    seen, problems = await logged(notifying("", {}, raw=raw))

    assert [one.data for one in seen] == ["x\ufffd" if data.startswith(b'"') else None]
    assert problems == (NOT_JSON,)
