"""Answers as event streams in every form that servers give them: none costs the answer."""

from __future__ import annotations

import json

import anyio
import pytest

from tests.connect.scripted import Exchange, HttpScript, answers_to, legacy_answer, listening, modern_answer
from tests.connect.targets import Json, connected, initialized
from toolweave import ErrorKind, ProtocolError

FORMS: dict[str, str] = {
    "plain": "event: message\ndata: ANSWER\n\n",
    "without an event": "data: ANSWER\n\n",
    "without a space": "data:ANSWER\n\n",
    "lines that end with CRLF": "event: message\r\ndata: ANSWER\r\n\r\n",
    "lines that end with CR": "event: message\rdata: ANSWER\r\r",
    "in several lines": "data: {\ndata: MEMBERS\ndata: }\n\n",
    "an empty event first": "id: 1\nretry: 1000\ndata:\n\nid: 2\ndata: ANSWER\n\n",
    "an empty event last": "data: ANSWER\n\ndata:\n\n",
    "comments": ": hello\n\n: ping\ndata: ANSWER\n: bye\n\n",
    "an end mark": "data: ANSWER\n\ndata: [DONE]\n\n",
    "a ping of its kind": "event: ping\ndata: {}\n\nevent: message\ndata: ANSWER\n\n",
    "an unknown field": "x-trace: 1\ndata: ANSWER\nevent\n\n",
    "progress of nobody": 'data: {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": '
    '"tool-call-4", "progress": 0, "total": 1}}\n\ndata: ANSWER\n\n',
    "no empty line at its end": "event: message\ndata: ANSWER\n",
    "no end of its last line": "data: ANSWER",
    "an event of another name": "event: response\ndata: ANSWER\n\n",
    "bare JSON": "ANSWER",
    "bare JSON in several lines": "{\nMEMBERS\n}\n",
    "an answer to nobody": 'data: {"jsonrpc": "2.0", "id": 987654, "result": {}}\n\ndata: ANSWER\n\n',
}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_answer_is_found_in_every_form_of_an_event_stream(form: str, era: str) -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "done"}]}}
        text = json.dumps(answer)
        await exchange.start_stream()
        await exchange.chunk(form.replace("ANSWER", text).replace("MEMBERS", text[1:-1]).encode())
        await exchange.end_stream()

    script = initialized(legacy_answer) if era == "legacy" else modern_answer
    server = HttpScript(script, special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        assert (await connection.call_tool("t")).text == "done"
        assert (await connection.call_tool("t")).text == "done"
        assert connection.restarts == 0
    assert server.methods().count("tools/call") == 2


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("head", ["data: ", "event: message\ndata:", "id: 5\nevent: message\ndata: "])
async def test_an_answer_without_an_empty_line_is_read_although_its_stream_stays_open(head: str, end: str) -> None:
    over = anyio.Event()

    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "done"}]}}
        await exchange.start_stream()
        await exchange.chunk(f"{head}{json.dumps(answer)}{end}".encode())
        await over.wait()

    async with listening(HttpScript(modern_answer, special).handle) as (url, _), connected(url) as connection:
        with anyio.fail_after(10):
            assert (await connection.call_tool("t")).text == "done"
        over.set()


async def test_an_answer_in_many_pieces_is_read_once_it_is_whole() -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        blocks = [{"type": "text", "text": "}" * 9}] * 40
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": blocks}})
        await exchange.start_stream()
        for start in range(0, len(answer), 11):
            await exchange.chunk(("" if start else "data: ").encode() + answer[start : start + 11].encode())
        await exchange.chunk(b"\n\n")
        await exchange.end_stream()

    async with listening(HttpScript(modern_answer, special).handle) as (url, _), connected(url) as connection:
        assert len((await connection.call_tool("t")).content) == 40
        assert connection.problems == ()


ODD: dict[str, str] = {
    "a cut answer": 'data: {"jsonrpc": "2.0", "id": ID, "result": {"content": [',
    "an answer to nobody": 'data: {"jsonrpc": "2.0", "id": 987654, "result": {}}',
    "the request itself": 'event: echo\ndata: {"jsonrpc": "2.0", "id": ID, "method": "tools/call", "result": {}}\n\n',
    "a request of another name": 'event: x\ndata: {"jsonrpc": "2.0", "id": ID, "method": "sampling/createMessage"}\n\n',
    "no version": 'event: x\ndata: {"id": ID, "result": {"content": []}}\n\n',
}


@pytest.mark.parametrize("form", ODD.values(), ids=list(ODD))
async def test_a_stream_without_a_whole_answer_to_its_request_has_none(form: str) -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.start_stream()
        await exchange.chunk(form.replace("ID", str(message["id"])).encode())
        await exchange.end_stream()

    server = HttpScript(modern_answer, special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        result = await (await connection.list_tools())["t"].execute()
    assert result.error is not None
    assert result.error.kind == ErrorKind.OUTCOME_UNKNOWN
    assert server.methods().count("tools/call") == 1


@pytest.mark.parametrize("form", ["data: ANSWER", "event: response\ndata: ANSWER\n\n", "ANSWER"])
async def test_an_answer_in_an_odd_form_is_reported_and_an_error_if_its_owner_wants_no_repairs(form: str) -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "done"}]}}
        await exchange.start_stream()
        await exchange.chunk(form.replace("ANSWER", json.dumps(answer)).encode())
        await exchange.end_stream()

    async with listening(HttpScript(modern_answer, special).handle) as (url, _):
        async with connected(url) as connection:
            assert (await connection.call_tool("t")).text == "done"
            [problem] = connection.problems
            assert "a form of event streams" in problem
        async with connected({"url": url, "repair_messages": False}) as connection:
            with pytest.raises(ProtocolError, match="'repair_messages': true"):
                await connection.call_tool("t")
