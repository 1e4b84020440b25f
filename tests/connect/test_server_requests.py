"""Requests of a server: each is answered or refused, however many there are, and none where clients must not answer."""

from __future__ import annotations

import json
import logging
import sys

import anyio
import pytest

from tests.connect.scripted import (
    DONE,
    Exchange,
    HttpScript,
    answer_to,
    answers_to,
    legacy_answer,
    listening,
    modern_answer,
)
from tests.connect.targets import ChannelServer, Json, connected, eventually, initialized
from toolweave import Callbacks, ProtocolError
from toolweave.connect import SamplingRequest

QUESTION: Json = {"message": "your password?", "requestedSchema": {"type": "object", "properties": {}}}


def replies_of(server: ChannelServer) -> dict[str, Json]:
    return {message["id"]: message for message in server.received if "method" not in message}


@pytest.mark.slow
async def test_two_thousand_pings_in_one_go_are_all_answered() -> None:
    def script(message: Json) -> Json | None:
        if message["method"] == "tools/call":
            for number in range(2_000):
                server.send({"jsonrpc": "2.0", "id": f"p{number}", "method": "ping"})
        return legacy_answer(message)

    server = ChannelServer(initialized(script))
    async with connected({"server": server}, 60) as connection:
        await connection.call_tool("t")
        await eventually(lambda: len(replies_of(server)) == 2_000)
    assert all(reply["result"] == {} for reply in replies_of(server).values())


@pytest.mark.slow
async def test_pings_over_http_are_all_answered() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if "id" in message and "method" not in message:
            replies.add(message["id"])
            if len(replies) == 1_000:
                all_there.set()
            return False
        if message.get("method") != "tools/call":
            return False
        await exchange.start_stream()
        for number in range(1_000):
            await exchange.event(json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}))
        await all_there.wait()
        await exchange.event(answer_to(message))
        await exchange.end_stream()
        return True

    replies: set[object] = set()
    all_there = anyio.Event()

    def answer(message: Json) -> Json | None:
        return initialized(legacy_answer)(message) if "method" in message else None

    async with (
        listening(HttpScript(answer, special).handle) as (url, _),
        connected({"url": url, "protocol": "legacy"}, 60) as connection,
    ):
        assert (await connection.call_tool("t")).text == "done"
    assert replies == set(range(1_000))


@pytest.mark.slow
async def test_more_questions_than_can_wait_are_refused_with_an_error_and_none_is_lost() -> None:
    asked = anyio.Event()

    async def sample(_request: SamplingRequest) -> str:
        await asked.wait()
        return "hello"

    def script(message: Json) -> Json | None:
        if message["method"] == "tools/call":
            question: Json = {"jsonrpc": "2.0", "method": "sampling/createMessage", "params": {"messages": []}}
            for start in range(0, 11_000, 1_000):  # a batch has at most a thousand messages
                batch = [{**question, "id": f"q{number}"} for number in range(start, start + 1_000)]
                server.send(json.dumps(batch).encode())
            server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "q300"}})
        return legacy_answer(message)

    server = ChannelServer(initialized(script))
    target = {"server": server, "max_questions": 20_000}
    async with connected(target, 100, callbacks=Callbacks(sampling=sample)) as connection:
        await connection.call_tool("t")
        await eventually(lambda: len(replies_of(server)) == 11_000 - 10_256, seconds=60)
        refused = replies_of(server)
        assert {reply["error"]["code"] for reply in refused.values()} == {-32603}
        assert "q10256" in refused
        asked.set()
        await eventually(lambda: len(replies_of(server)) == 11_000 - 1, seconds=60)
        replies = replies_of(server)
    assert "q300" not in replies, "what the server took back needs no answer"
    assert "result" in replies["q10255"]


DEAF = """
import json, sys

PINGS = 115_000

def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

answers, wanted, asked = 0, None, None
for line in sys.stdin:
    message = json.loads(line)
    name = message.get("params", {}).get("name")
    if "method" not in message:
        answers += 1
    elif message["method"] == "initialize":
        info = {"name": "deaf", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        send(id=message["id"], result=result)
    elif name == "flood":  # no answer is read meanwhile
        for number in range(PINGS):
            sys.stdout.write(f'{{"jsonrpc":"2.0","id":{number},"method":"ping"}}\\n')
        send(id=message["id"], result={"content": []})
    elif name == "count":
        asked, wanted = message["id"], message["params"]["arguments"]["answers"]
    elif "id" in message:
        send(id=message["id"], result={"tools": []})
    if answers == wanted:
        send(id=asked, result={"content": []})
        asked = wanted = None
"""


@pytest.mark.slow
async def test_answers_that_a_server_does_not_read_are_kept_up_to_a_limit_and_more_are_reported() -> None:
    dropped: list[str] = []
    target = {"command": sys.executable, "args": ["-c", DEAF], "protocol": "legacy"}
    async with connected(target, 120, name="deaf") as connection:
        connection.on("error", lambda error: dropped.append(str(error)))
        await connection.call_tool("flood", timeout=100)
        assert 0 < len(dropped) <= 115_000 - 100_000 - 10_000
        assert set(dropped) == {
            "server 'deaf': it sends requests and does not read the answers: 100000 wait to be sent"
        }
        await connection.call_tool("count", {"answers": 115_000 - len(dropped)}, timeout=100)


async def test_a_server_of_the_stateless_revision_gets_no_answer_over_http_and_nobody_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.start_stream()
        for number in range(3):
            question: Json = {"jsonrpc": "2.0", "id": f"s{number}", "method": "elicitation/create", "params": QUESTION}
            await exchange.event(json.dumps(question))
        await exchange.event(answer_to(message, DONE))
        await exchange.end_stream()

    asked: list[object] = []
    troubles: list[Exception] = []
    server = HttpScript(modern_answer, special)
    caplog.set_level(logging.WARNING)

    def elicit(request: object) -> Json:
        asked.append(request)
        return {}

    async with (
        listening(server.handle) as (url, _),
        connected(url, callbacks=Callbacks(elicitation=elicit)) as connection,
    ):
        connection.on("error", troubles.append)
        for _ in range(2):
            assert (await connection.call_tool("t")).text == "done"
    assert not asked
    assert "answer" not in server.methods()
    assert [type(trouble) for trouble in troubles] == [ProtocolError] * 6
    assert "'elicitation/create' was ignored" in str(troubles[0])
    assert caplog.text.count("was ignored") == 1
