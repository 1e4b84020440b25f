"""Every answer of a callback becomes a proper answer to the server; every question is judged before it is put."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Any

import anyio
import pytest

from tests.connect.targets import (
    ASKS,
    EACH_WAY,
    MODERN,
    ChannelServer,
    Json,
    connected,
    eventually,
    initialized,
    serving,
)
from toolweave import Callbacks, ConnectionLostError, ImageContent, ProtocolError, TextContent
from toolweave.connect import ConnectionState, ElicitationRequest, ElicitationResult, SamplingRequest, SamplingResult
from toolweave.testing import MemoryServer


def scripted(question: Json, answers: list[Json]) -> ChannelServer:
    """Return a legacy server that asks one question after its handshake."""

    def script(message: Json) -> Json | None:
        if message.get("method") == "tools/list":
            server.send({"jsonrpc": "2.0", "id": "q", **question})
            return {"result": {"tools": []}}
        return None

    def answered(message: Json) -> Json | None:
        if "method" not in message:
            answers.append(message)
        return initialized(script)(message)

    server = ChannelServer(answered)
    return server


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("sampling/createMessage", {}, -32602),
        ("sampling/createMessage", {"messages": 5}, -32602),
        ("elicitation/create", {"mode": "hologram", "message": "?"}, -32602),
        ("elicitation/create", {"mode": "url", "message": "?"}, -32602),
        ("elicitation/create", {"mode": "url", "message": "?", "url": "javascript:alert(1)"}, -32602),
        ("nonsense/ask", {}, -32601),
        ("roots/list", {}, -32603),
    ],
)
async def test_a_malformed_question_is_refused(method: str, params: Json, code: int) -> None:
    answers: list[Json] = []
    asked: list[object] = []
    callbacks = Callbacks(sampling=asked.append, elicitation=asked.append, roots=lambda: [7])  # pyright: ignore[reportArgumentType]
    async with connected(scripted({"method": method, "params": params}, answers), callbacks=callbacks):
        await eventually(lambda: answers)

    assert answers[0]["error"]["code"] == code
    assert not asked


CONTENTS: list[tuple[Any, Any]] = [
    ("words", {"type": "text", "text": "words"}),
    (TextContent(text="words"), {"type": "text", "text": "words"}),
    ([TextContent(text="words")], {"type": "text", "text": "words"}),
    (ImageContent(data="aGk=", mime_type="image/png"), {"type": "image", "data": "aGk=", "mimeType": "image/png"}),
    (["a", {"type": "tool_use", "id": "1", "name": "look", "input": {}}], [
        {"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "look", "input": {}}]),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "content"), CONTENTS)
async def test_a_model_may_answer_in_any_kind_of_content(answer: Any, content: Any) -> None:
    answers: list[Json] = []
    tool_result: Json = {"type": "tool_result", "toolUseId": "1", "content": []}
    messages: list[Json] = [{"role": "user", "content": [{"type": "text", "text": "Hm?"}, tool_result]}]
    seen: list[SamplingRequest] = []

    def sampling(request: SamplingRequest) -> SamplingResult:
        seen.append(request)
        return SamplingResult(content=answer, stop_reason=None)

    question: Json = {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 5}}
    async with connected(scripted(question, answers), callbacks=Callbacks(sampling=sampling)):
        await eventually(lambda: answers)

    assert answers[0]["result"] == {"role": "assistant", "content": content, "model": "unknown"}
    assert [block.raw for block in seen[0].messages[0].content] == messages[0]["content"]


async def test_a_callback_that_returns_nonsense_fails_politely(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Json] = []
    question: Json = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}}
    callbacks = Callbacks(sampling=lambda request: 7)  # pyright: ignore[reportArgumentType]
    async with connected(scripted(question, answers), callbacks=callbacks):
        await eventually(lambda: answers)

    assert answers[0]["error"]["code"] == -32603
    assert "returned int" in caplog.text


async def test_a_form_whose_schema_is_broken_is_taken_as_it_was_filled_in() -> None:
    answers: list[Json] = []
    schema: Json = {"type": "object", "properties": {"a": {"type": "no such type"}}}
    question: Json = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": schema}}
    async with connected(scripted(question, answers), callbacks=Callbacks(elicitation=lambda request: {"a": 1})):
        await eventually(lambda: answers)

    assert answers[0]["result"] == {"action": "accept", "content": {"a": 1}}


@EACH_WAY
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, {"action": "decline"}),
        (ElicitationResult.decline(), {"action": "decline"}),
        (ElicitationResult.cancel(), {"action": "cancel"}),
        ({"name": "Ada"}, {"action": "accept", "content": {"name": "Ada", "size": 3, "color": "green"}}),
        (ElicitationResult.accept({"name": "A", "size": 1}), {"action": "accept", "content": {
            "name": "A", "size": 1, "color": "green"}}),
        ({}, {"action": "cancel"}),
        ({"name": "Ada", "size": "big"}, {"action": "cancel"}),
        ("a text", {"action": "cancel"}),
        (ValueError("no user here"), {"action": "cancel"}),
    ],
)  # fmt: skip
async def test_whatever_an_elicitation_callback_does_the_server_gets_a_proper_answer(
    kind: str, version: str, given: Any, sent: Json
) -> None:
    async def elicitation(request: ElicitationRequest) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    async with connected(serving(kind, version, ASKS), callbacks=Callbacks(elicitation=elicitation)) as connection:
        assert json.loads((await connection.call_tool("elicit")).text)["result"] == sent
        assert (await connection.call_tool("echo", {"text": "on"})).text == "on"


async def test_an_answer_that_does_not_fit_the_form_is_told_to_its_author(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = Callbacks(elicitation=lambda request: {"name": "Ada", "size": "big"})
    async with connected(serving("stdio", MODERN, ASKS), name="nosy", callbacks=callbacks) as connection:
        await connection.call_tool("elicit")

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "server 'nosy'" in record.message
    assert "size" in record.message


def asking(params: Json) -> MemoryServer:
    """Return a modern server whose call wants a language model first."""
    server = MemoryServer(protocol=MODERN)
    question = {"method": "sampling/createMessage", "params": params}
    rounds = {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"}
    server.answer("tools/call", rounds, times=1)
    server.answer("tools/call", {"content": []})
    return server


@pytest.mark.parametrize("content", [42, None, [None]])
async def test_an_answer_of_no_known_shape_is_one_error_of_the_call(content: Any) -> None:
    server = asking({"messages": []})
    async with connected(server, callbacks=Callbacks(sampling=lambda _request: SamplingResult(content=content))) as one:
        with pytest.raises(ProtocolError, match="the client failed to answer"):
            await one.call_tool("t")
        assert not (await one.call_tool("t")).is_error


async def test_a_question_with_a_number_that_no_float_can_hold_is_one_error_of_the_call() -> None:
    server = asking({"messages": [], "temperature": 10**400})
    async with connected(server, callbacks=Callbacks(sampling=lambda _request: "hello")) as connection:
        with pytest.raises(ProtocolError, match="the client failed to answer"):
            await connection.call_tool("t")


@pytest.mark.slow
async def test_a_flood_of_questions_in_one_piece_is_bounded() -> None:
    running = 0
    most = 0

    async def sample(_request: SamplingRequest) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asking_over.wait()
        running -= 1
        return "hello"

    def script(message: Json) -> Json | None:
        if message.get("method") == "tools/list":
            return {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
        if message.get("method") == "tools/call":
            question: Json = {"jsonrpc": "2.0", "method": "sampling/createMessage", "params": {"messages": []}}
            server.send(json.dumps([{**question, "id": f"q-{number}"} for number in range(1000)]).encode())
            return {"result": {"content": []}}
        return None

    asking_over = anyio.Event()
    server = ChannelServer(initialized(script))
    async with connected(server, callbacks=Callbacks(sampling=sample)) as connection:
        assert not (await connection.call_tool("t")).is_error
        await eventually(lambda: running > 0)
        assert most <= 256
        asking_over.set()
        await eventually(lambda: running == 0)


@pytest.mark.parametrize("what", ["sampling", "logging"])
async def test_a_callback_may_close_its_own_connection(what: str) -> None:
    server = MemoryServer(protocol="legacy")
    closed = anyio.Event()

    async def close(_value: Any) -> None:
        await connection.close()
        closed.set()

    callbacks = Callbacks(sampling=close) if what == "sampling" else Callbacks(logging=close)

    async def ask() -> None:
        with suppress(ProtocolError, ConnectionLostError):  # whichever comes first
            await server.ask("sampling/createMessage", {"messages": []})

    async with connected(server, callbacks=callbacks) as connection, anyio.create_task_group() as tasks:
        if what == "sampling":
            tasks.start_soon(ask)
        else:
            server.notify("notifications/message", {"level": "info", "data": "x"})
        with anyio.fail_after(6):  # less than a close that waits for its own caller
            await closed.wait()
            await eventually(lambda: connection.state is ConnectionState.CLOSED)
