"""Calls that a gateway sends at once over HTTP end like those that it forwards: over faults, streams, deadlines."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.connect.scripted import DONE, HttpScript, legacy_answer, listening, modern_answer
from tests.connect.sent_calls import WAYS, Way, objects, outcome_of, posted
from tests.connect.targets import Json, connected, eventually
from toolweave import McpConnection
from toolweave.connect._direct import DirectCall
from toolweave.errors import ServerError
from toolweave.testing.servers.http_wire import Exchange

pytestmark = pytest.mark.slow

Answer = Callable[[Exchange, Json, str], Awaitable[None]]
"""Answers a call: the exchange, the message, and the text of the answer that a well-behaved server would give."""
ERAS = ("legacy", "modern")
ANSWERS: dict[str, Answer] = {}


def answers(name: str) -> Callable[[Answer], Answer]:
    """Register the answer to calls of a tool."""

    def register(answer: Answer) -> Answer:
        ANSWERS[name] = answer
        return answer

    return register


def text_of(message: Json, **members: Any) -> str:
    """Return the text of an answer with other members than a result."""
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **members})


async def sent(
    exchange: Exchange, text: str, status: int = 200, kind: str = "application/json", **headers: str
) -> None:
    """Answer with a text."""
    await exchange.respond(status, text.encode(), content_type=kind, **headers)


@answers("text")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text)


@answers("with a charset")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text, kind="Application/JSON; charset=utf-8")


@answers("as text/plain")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text, kind="text/plain")


@answers("with a cookie")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text, set_cookie="a=b")


@answers("compressed")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    body = gzip.compress(text.encode())
    await exchange.respond(200, body, content_type="application/json", content_encoding="gzip")


@answers("with an encoding that nobody asked for")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text, content_encoding="x-own")


@answers("a result with status 400")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text, status=400)


@answers("a result with status 500")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text, status=500)


@answers("of an earlier call")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, json.dumps({"jsonrpc": "2.0", "id": message["id"] - 1, "result": DONE}))


@answers("large")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text.replace("done", "x" * 5000))


@answers("in parts")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    exchange.head(200, {"content-type": "application/json", "content-length": str(len(text))})
    for part in (text[:10], text[10:]):
        exchange.writer.write(part.encode())
        await exchange.writer.drain()
        await anyio.sleep(0)
    exchange.finished = True


@answers("an error of the tool")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text_of(message, result={**DONE, "isError": True}))


@answers("an error")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text_of(message, error={"code": -32050, "message": "no", "data": [1]}))


@answers("an error with a status")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text_of(message, error={"code": -32602, "message": "no"}), status=400)


@answers("no object")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text_of(message, result=[1, 2]))


@answers("not a number")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text.replace('"content"', '"a": NaN, "content"'))


@answers("broken")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text[:-3])


@answers("a page")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, "<html>sign in</html>", kind="text/html")


@answers("of another call")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, json.dumps({"jsonrpc": "2.0", "id": "other", "result": DONE}))


@answers("text as id")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, json.dumps({"jsonrpc": "2.0", "id": str(message["id"]), "result": DONE}))


@answers("accepted")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await exchange.respond(202)


@answers("502")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, "bad gateway", status=502, kind="text/plain")


@answers("401")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await exchange.respond(401, www_authenticate="Bearer")


@answers("stream")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await exchange.start_stream()
    await exchange.event(text)
    await exchange.end_stream()


@answers("stream with news")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await exchange.start_stream()
    token = message["params"].get("_meta", {}).get("progressToken")
    for number in range(3):
        if token is not None:
            params: Json = {"progressToken": token, "progress": number}
            await exchange.event(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        params = {"level": "info", "data": number}
        await exchange.event(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
    await exchange.event(text)
    await exchange.end_stream()


@answers("stream that ends")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await exchange.start_stream()
    await exchange.end_stream()


@answers("closed")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    exchange.writer.close()


@answers("closed afterwards")
async def _(exchange: Exchange, message: Json, text: str) -> None:
    await sent(exchange, text, connection="close")


class World:
    """A server whose tools answer in all these ways.

    Attributes:
        script: What it received.
    """

    def __init__(self, era: str) -> None:
        names = [*ANSWERS, "busy once", "silent", "endless stream"]
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
        answer = modern_answer if era == "modern" else legacy_answer
        self._busy = True

        def answered(message: Json) -> Json | None:
            if message["method"] == "initialize":
                info = {"name": "s", "version": "1"}
                return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
            if message["method"] == "tools/list":
                return {"result": {"tools": tools}}
            return answer(message)

        self.script = HttpScript(answered, self._special)
        self.ended = anyio.Event()
        self.under_way = 0

    async def _special(self, exchange: Exchange, message: Json) -> bool:
        if message.get("method") != "tools/call":
            return False
        name = message["params"]["name"]
        text = text_of(message, result=DONE)
        if name == "busy once" and self._busy:
            self._busy = False
            await exchange.respond(429, retry_after="0")
        elif name == "busy once":
            await sent(exchange, text)
        elif name in ("silent", "endless stream"):
            self.under_way += 1
            if name == "endless stream":
                await exchange.start_stream()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until, exchange.reader.gone, tasks.cancel_scope)
                await self.ended.wait()
                tasks.cancel_scope.cancel()
            self.under_way -= 1
        else:
            await ANSWERS[name](exchange, message, text)
        return True

    async def _until(self, gone: asyncio.Event, scope: anyio.CancelScope) -> None:
        await gone.wait()
        scope.cancel()

    def cookies(self) -> list[str | None]:
        """Return the cookies that came with the calls."""
        calls = [one for one in self.script.exchanges if b'"tools/call"' in one.body]
        return [one.headers.get("cookie") for one in calls]

    def received(self) -> list[Json]:
        """Return the calls and their cancellations, without what each way makes anew.

        The ping that follows a timeout is cancelled when the connection ends, which is left out.
        """
        messages = self.script.messages()
        calls = {message["id"] for message in messages if message.get("method") == "tools/call"}
        kept: list[Json] = []
        for message in messages:
            method = message.get("method")
            is_of_call = method == "notifications/cancelled" and message["params"]["requestId"] in calls
            if method == "tools/call" or is_of_call:
                kept.append(message)
        for message in kept:
            message.pop("id", None)
            message["params"].pop("requestId", None)
            message["params"].get("_meta", {}).pop("progressToken", None)
        return kept


async def one_idle(connection: McpConnection) -> None:
    """Let there be an idle connection to the server, as there is while it is used."""
    with suppress(ServerError):  # it ends with the second refusal of its credentials
        await connection.list_tools()


async def played(era: str, names: Sequence[str], way: Way, *, progress: bool, **options: Any) -> Json:
    """Call tools one after the other over one connection; return the outcomes and what is left of the calls."""
    world = World(era)
    async with listening(world.script.handle) as (url, _):
        target: Json = {"url": url, "timeout": {"call": 10.0}, "max_message_bytes": 4000, **options}
        async with connected(target, seconds=60) as connection:
            outcomes: list[Any] = []
            for name in names:
                await one_idle(connection)
                outcomes.append(await outcome_of(connection, name, way, progress=progress))
            facts: Json = {"busy": connection.busy, "problems": sorted(map(str, connection.problems))}
            facts["listeners"] = len(connection._handlers._progress)  # none is left
        world.ended.set()
    shown = [[shown_part(part, url) for part in one] for one in outcomes]
    return {"outcomes": shown, **facts, "received": world.received(), "cookies": world.cookies()}


def shown_part(part: object, url: str) -> str:
    """Return a part of an outcome without the server's port, and the ids that an error quotes."""
    return re.sub(r'"id": \d+', '"id": N', str(part).replace(url, "URL"))


ALL = tuple(ANSWERS)


@settings(max_examples=15)
@example(era="modern", way="sent", progress=True, names=[*ALL, "busy once"])
@example(era="legacy", way="awaited", progress=True, names=[*ALL, "busy once"])
@example(era="modern", way="awaited", progress=False, names=[*ALL, "busy once"])
@given(
    era=st.sampled_from(ERAS),
    way=st.sampled_from(WAYS),
    progress=st.booleans(),
    names=st.lists(st.sampled_from(ALL), min_size=1, max_size=6),
)
def test_calls_that_are_sent_at_once_over_http_end_like_those_that_are_forwarded(
    era: str, way: Way, progress: bool, names: list[str]
) -> None:
    async def compare() -> None:
        forwarded = await played(era, names, "forwarded", progress=progress)
        found = await played(era, names, way, progress=progress)
        assert found == forwarded
        assert not found["busy"]
        assert not found["listeners"]

    anyio.run(compare)


@pytest.mark.parametrize("era", ERAS)
async def test_connections_to_a_server_return_whatever_becomes_of_the_calls(era: str) -> None:
    world = World(era)
    async with listening(world.script.handle) as (url, connections), connected({"url": url}, seconds=60) as connection:
        for number in range(330):  # each kind of call more often than the pool has connections
            assert (await connection.call_tool("text")).text == "done"
            name = ("text", "endless stream", "silent")[number % 3]
            call = posted(connection, name, {})
            assert call is not None
            if name == "text":
                assert call.wire.result_in(await call.answer) == DONE
                call.forget()
            else:
                await eventually(lambda: world.under_way)
                await call.give_up()
                await eventually(lambda: not world.under_way)
        before = len(connections)
        for _ in range(5):
            assert (await connection.call_tool("text")).text == "done"
        assert len(connections) <= before + 1


@pytest.mark.parametrize("era", ERAS)
async def test_nothing_is_kept_of_a_call_that_cannot_be_sent_at_once(era: str) -> None:
    world = World(era)
    kept: list[int] = []
    async with listening(world.script.handle) as (url, _), connected({"url": url}, seconds=60) as connection:
        await connection.call_tool("text")
        under_way: list[DirectCall] = []
        while (call := posted(connection, "silent", {})) is not None:
            under_way.append(call)
        for _ in range(3):
            for _ in range(200):
                assert posted(connection, "text", {}, progress=True) is None
            kept.append(objects())
        for call in under_way:
            await call.give_up()

    assert under_way
    assert kept[2] < kept[1] + 100


@pytest.mark.parametrize("era", ERAS)
async def test_a_plain_answer_over_http_needs_no_task(era: str) -> None:
    world = World(era)
    async with listening(world.script.handle) as (url, _), connected({"url": url}) as connection:
        await one_idle(connection)
        before = len(asyncio.all_tasks())
        direct = connection.gateway_side.direct_calls
        line = direct.session_for("text", asyncio.get_running_loop())
        assert line is not None
        params = line.conversation.stamped({"name": "text", "arguments": {}}, None, None)
        text = b',"method":"tools/call","params":%b}' % json.dumps(params).encode()
        sent = direct.send(line, "text", text, asyncio.get_running_loop())
        assert sent is not None
        assert len(asyncio.all_tasks()) == before
        assert sent.wire.result_in(await sent.answer) == DONE
        sent.forget()


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_over_http_that_is_not_answered_in_time_ends_and_is_cancelled_whichever_way_it_was_sent(
    era: str,
) -> None:
    options: Json = {"timeout": {"call": 1.0}}
    forwarded = await played(era, ["silent", "text"], "forwarded", progress=False, **options)
    found = await played(era, ["silent", "text"], "sent", progress=False, **options)

    assert found == forwarded
    assert "within 1 s" in found["outcomes"][0][1]
    cancelled = [message["method"] for message in found["received"]].count("notifications/cancelled")
    assert cancelled == (1 if era == "legacy" else 0)  # a modern server is notified by the end of the connection


@pytest.mark.parametrize("way", ["forwarded", "sent"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_call_over_http_whose_caller_leaves_is_cancelled_whichever_way_it_was_sent(era: str, way: Way) -> None:
    world = World(era)
    async with listening(world.script.handle) as (url, _), connected({"url": url}) as connection:
        await one_idle(connection)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome_of, connection, "silent", way)
            await eventually(world.received)
            tasks.cancel_scope.cancel()
        assert not connection.busy
        world.ended.set()
        assert (await outcome_of(connection, "text", way))[0] == "result"
        if era == "legacy":
            await eventually(lambda: "notifications/cancelled" in world.script.methods())


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_under_way_when_its_connection_closes_fails_and_nothing_else_does(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(era)
    async with listening(world.script.handle) as (url, _):
        async with connected({"url": url}) as connection:
            await one_idle(connection)
            sent = posted(connection, "silent", {})
            assert sent is not None
            await eventually(world.received)
        with pytest.raises(ServerError, match="the connection ended"):
            await sent.answer
        await anyio.sleep(0.05)
        world.ended.set()

    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
