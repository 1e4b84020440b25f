"""Every answer of a callback becomes a proper answer to the server; every question is judged before it is put."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.connect.targets import MODERN, ChannelServer, Json, connected, eventually, initialized, serving
from toolweave import (
    Callbacks,
    ElicitationRequest,
    ElicitationResult,
    ImageContent,
    SamplingRequest,
    SamplingResult,
    TextContent,
)

pytestmark = pytest.mark.anyio
ASKS = "--asks"
EACH_ERA = pytest.mark.parametrize("version", ["2025-11-25", MODERN])
EACH_ENGINE = pytest.mark.parametrize(("kind", "version"), [
    (kind, version) for kind in ("stdio", "stdio-sdk", "http-sse", "http-sse-sdk") for version in ("2025-11-25", MODERN)
])  # fmt: skip


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
        ("sampling/createMessage", {"messages": "hello"}, -32602),
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


@EACH_ENGINE
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

    with serving(kind, version, ASKS) as target:
        async with connected(target, callbacks=Callbacks(elicitation=elicitation)) as connection:
            assert json.loads((await connection.call_tool("elicit")).text)["result"] == sent
            assert (await connection.call_tool("echo", {"text": "on"})).text == "on"


async def test_an_answer_that_does_not_fit_the_form_is_told_to_its_author(caplog: pytest.LogCaptureFixture) -> None:
    callbacks = Callbacks(elicitation=lambda request: {"name": "Ada", "size": "big"})
    with serving("stdio", MODERN, ASKS) as target:
        async with connected(target, name="nosy", callbacks=callbacks) as connection:
            await connection.call_tool("elicit")

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "server 'nosy'" in record.message
    assert "size" in record.message
