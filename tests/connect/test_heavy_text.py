"""Text of a server that takes work: the event loop goes on, whatever a server writes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.connect.scripted import Exchange, HttpScript, answers_to, legacy_answer, listening
from tests.connect.targets import ChannelServer, Json, connected, initialized
from toolweave import ProtocolError
from toolweave.protocol.lenient_messages import without_deep_entries

HEAVY: dict[str, Callable[[int], bytes]] = {
    "a string that never ends, of escaped quotes": lambda size: b"[" * 1200 + b'"' + b'\\"' * (size // 2),
    "a string that never ends, of backslashes": lambda size: b"[" * 1200 + b'"' + b"\\" * (size + 1),
    "strings that follow each other": lambda size: b"[" * 1200 + b'""' * (size // 2),
    "brackets that only open": lambda size: b"[" * size,
    "brackets that open and close": lambda size: b"[" * 1200 + b"[]," * (size // 3),
    "entries that are all too deep": lambda size: (b"[" * 1200 + b"]" * 1200 + b",") * (size // 2401),
}
"""What stands in place of the tools of a list, for about so many bytes."""
SERVER = """
import json, sys
heavy = sys.argv[1].encode()
for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}}
        case "tools/list":
            with open(sys.argv[1], "rb") as file:
                text = b'{"id":%s,"result":{"tools":[%s\\n' % (json.dumps(message["id"]).encode(), file.read())
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
            continue
        case _:
            if "id" in message:
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}))
                sys.stdout.flush()
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
BOUNDS = {"connect": 20, "probe": 5, "list": 5}
REASONS = "nested too deeply|not a JSON-RPC message|more than 2000000 arrays|not valid JSON|no answer to tools/list"
SIZE = 3_000_000
"""Bytes; a scanner that is quadratic needs hours for them, so every bound below is far above any honest time."""


async def complaints(target: Any) -> str:
    """Connect, and return what is wrong with the server's list."""
    async with connected(target, seconds=60) as connection:
        assert len(connection.snapshot()) == 0
        return "; ".join((*connection.problems, str(connection.error or "")))


@pytest.mark.slow
@pytest.mark.parametrize("heavy", HEAVY)
async def test_a_list_of_a_process_that_takes_work_to_read_costs_that_list_only(heavy: str, tmp_path: Path) -> None:
    script, text = tmp_path / "server.py", tmp_path / "text"
    script.write_text(SERVER)
    text.write_bytes(HEAVY[heavy](SIZE))
    target = {"command": sys.executable, "args": [str(script), str(text)], "version": "2025-11-25"}
    assert re.search(REASONS, await complaints({**target, "timeout": BOUNDS}))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("heavy", HEAVY)
async def test_a_list_over_http_that_takes_work_to_read_costs_that_list_only(heavy: str, streamed: bool) -> None:
    @answers_to("tools/list")
    async def special(exchange: Exchange, message: Json) -> None:
        text = b'{"id":%s,"result":{"tools":[%s' % (json.dumps(message["id"]).encode(), HEAVY[heavy](SIZE))
        if streamed:
            await exchange.start_stream()
            await exchange.event(text.decode())
            await exchange.end_stream()
        else:
            await exchange.respond(200, text, content_type="application/json")

    server = HttpScript(initialized(legacy_answer), special)
    async with listening(server.handle) as (url, _):
        assert re.search(REASONS, await complaints({"url": url, "timeout": BOUNDS}))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
async def test_the_event_loop_goes_on_while_an_answer_of_very_many_parts_is_taken(method: str) -> None:
    count, ticks, sent = 200_000, 0, 0
    parts: dict[str, tuple[str, Json]] = {
        "tools/call": ("content", {"type": "text", "text": "x", "_meta": {}}),
        "prompts/get": ("messages", {"role": "user", "content": {"type": "text", "text": "x", "_meta": {}}}),
        "resources/read": ("contents", {"uri": "x:y", "text": "x"}),
    }
    member, part = parts[method]

    def script(message: Json) -> Json | None:
        nonlocal sent
        if message["method"] != method:
            return legacy_answer(message)
        sent = ticks
        return {"result": {member: [part] * count}}

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0)
            ticks += 1

    async with (
        connected(ChannelServer(initialized(script)), seconds=60) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(tick)
        if method == "tools/call":
            assert len((await connection.call_tool("t")).content) == count
        elif method == "prompts/get":
            assert len((await connection.get_prompt("p")).messages) == count
        else:
            assert len(await connection.read_resource("x:y")) == count
        tasks.cancel_scope.cancel()
    assert ticks - sent > 40  # a dozen steps of the loop take the answer from the server to whoever asked


@pytest.mark.parametrize("kind", ["http", "channel"])
async def test_an_answer_of_more_arrays_than_anybody_means_fails_its_call_and_no_other(kind: str) -> None:
    def answer(key: Any) -> bytes:
        return b'{"jsonrpc":"2.0","id":%s,"result":{"content":[%s1]}}' % (json.dumps(key).encode(), b"[]," * 2_000_000)

    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") != "tools/call" or message["params"]["arguments"]:
            return False
        await exchange.respond(200, answer(message["id"]), content_type="application/json")
        return True

    def script(message: Json) -> Json | None:
        if message["method"] == "tools/call" and not message["params"]["arguments"]:
            return server.send(answer(message["id"]))
        return legacy_answer(message)

    server = ChannelServer(initialized(script))
    async with AsyncExitStack() as stack:
        target: Any = server
        if kind == "http":
            url, _ = await stack.enter_async_context(listening(HttpScript(initialized(legacy_answer), special).handle))
            target = url
        connection = await stack.enter_async_context(connected(target))
        with pytest.raises(ProtocolError, match="it holds more than 2000000 arrays and objects"):
            await connection.call_tool("t")
        assert (await connection.call_tool("t", {"small": True})).text == "done"


@pytest.mark.parametrize("text", ["[" * 2_000_001, '\\" \\\\' * 500_000 + "[{" * 1_000_001])
async def test_brackets_inside_of_a_text_are_no_arrays(text: str) -> None:
    def script(message: Json) -> Json | None:
        if message["method"] != "tools/call":
            return legacy_answer(message)
        return {"result": {"content": [{"type": "text", "text": text}], "_meta": {"padding": "x" * 4_000_000}}}

    async with connected(ChannelServer(initialized(script)), seconds=60) as connection:
        result = await connection.call_tool("t")
    assert result.text == text


async def test_arrays_between_texts_of_quotes_and_brackets_are_counted() -> None:
    def script(message: Json) -> Json | None:
        if message["method"] != "tools/call":
            return legacy_answer(message)
        arrays = b'[],"\\"[",' * 2_000_000
        return server.send(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[%s1]}}' % (message["id"], arrays))

    server = ChannelServer(initialized(script))
    async with connected(server, seconds=60) as connection:
        with pytest.raises(ProtocolError, match="it holds more than 2000000 arrays and objects"):
            await connection.call_tool("t")


def test_a_deep_entry_is_taken_out_of_a_list_whose_strings_hold_every_kind_of_bracket_and_quote() -> None:
    odd = json.dumps({"name": 'a"]}{["\\', "description": '\\\\"[[[' + "\n"})
    deep = "[" * 300 + "]" * 300
    text = f'{{"id":1,"result":{{"tools":[{odd},{{"name":"b","x":{deep}}},{odd}]}}}}'.encode()
    assert json.loads(without_deep_entries(text)) == {
        "id": 1,
        "result": {"tools": [json.loads(odd), None, json.loads(odd)]},
    }
