"""Answers as event streams in every form that servers give them: none costs the answer."""

from __future__ import annotations

import json

import pytest

from tests.connect.scripted import Exchange, HttpScript, answers_to, legacy_answer, listening, modern_answer
from tests.connect.targets import Json, connected, initialized

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
