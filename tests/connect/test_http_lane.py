"""Our own HTTP lane at servers made up on the spot: sessions, streams, what a server sends by itself, odd answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from tests.connect.scripted import (
    DONE,
    TOOLS,
    Exchange,
    HttpScript,
    Special,
    answer_to,
    answers_to,
    legacy_answer,
    listening,
)
from tests.connect.targets import MODERN, Json, connected, eventually, initialized
from tests.servers.fixtures import http_server
from toolweave import ConnectError, ConnectionLostError, ErrorKind, ProtocolError, ToolError, connect_mcp
from toolweave.connect._http_errors import HttpSettings
from toolweave.connect._session import ClientHandlers
from toolweave.connect._wire.http import HttpWire, http_wire


def legacy(special: Special | None = None, **options: Any) -> HttpScript:
    return HttpScript(initialized(legacy_answer, **options), special)


def modern(call: Callable[[Json], Json], special: Special | None = None) -> HttpScript:
    def answer(message: Json) -> Json | None:
        match message["method"]:
            case "server/discover":
                return {"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}
            case "tools/list":
                return TOOLS
            case _:
                return call(message)

    return HttpScript(answer, special)


@pytest.mark.slow
async def test_a_connection_over_http_loads_neither_the_sdk_nor_an_http_library() -> None:
    program = (
        "import anyio, sys\n"
        "from toolweave import connect_mcp\n"
        "async def main():\n"
        "    async with connect_mcp(sys.argv[1]) as connection:\n"
        "        assert (await connection.call_tool('echo', {'text': 'lean'})).text == 'lean'\n"
        "anyio.run(main)\n"
        "print(sorted({'mcp', 'mcp_types', 'httpx', 'httpx2', 'httpcore2', 'pydantic'} & set(sys.modules)))\n"
    )
    with http_server() as url:
        command = [sys.executable, "-c", program, url]
        done = await anyio.run_process(command, check=False)
    assert done.stdout.decode().strip() == "[]", done.stderr.decode()


@pytest.mark.slow
async def test_a_session_is_ended_when_the_connection_closes_even_if_the_server_does_not_answer_that() -> None:
    async def special(exchange: Exchange, _message: Json) -> bool:
        if exchange.method == "DELETE":
            await exchange.reader.gone.wait()
            return True
        return False

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url):
        pass
    last = server.exchanges[-1]
    assert last.method == "DELETE"
    assert (last.headers["mcp-session-id"], last.headers["mcp-protocol-version"]) == ("s-1", "2025-11-25")


async def test_a_cancelled_call_of_a_session_is_told_by_a_notification() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call":
            await exchange.reader.gone.wait()
            return True
        return False

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        with anyio.move_on_after(0.1):
            await connection.call_tool("t")
        call = next(message for message in server.messages() if message["method"] == "tools/call")
        await eventually(lambda: "notifications/cancelled" in server.methods())
        assert server.messages()[-1]["params"]["requestId"] == call["id"]


@pytest.mark.parametrize("breaks", ["ends", "resets"])
async def test_an_answer_whose_stream_breaks_is_fetched_from_where_it_broke(breaks: str) -> None:
    call: Json = {}

    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call":
            call.update(message)
            await exchange.start_stream()
            await exchange.chunk(b"id: e-1\nretry: 10\ndata:\n\n")
            await (exchange.end_stream() if breaks == "ends" else exchange.reset())
            return True
        if exchange.method != "GET" or "last-event-id" not in exchange.headers:
            return False
        last = exchange.headers["last-event-id"]
        if last == "e-1" and len(server.exchanges) % 2:
            await exchange.respond(503)
            return True
        await exchange.start_stream()
        if last == "e-1":
            await exchange.chunk(b"id: e-2\ndata:\n\n")
        else:
            await exchange.event(answer_to(call))
        await exchange.end_stream()
        return True

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        assert (await connection.call_tool("t")).text == "done"
    assert [e.headers["last-event-id"] for e in server.exchanges if "last-event-id" in e.headers][-1] == "e-2"


async def test_an_answer_that_cannot_be_fetched_again_is_lost_after_a_few_attempts() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call":
            await exchange.start_stream()
            await exchange.chunk(b"id: e-1\nretry: 1\ndata:\n\n")
            await exchange.end_stream()
            return True
        if exchange.method == "GET" and "last-event-id" in exchange.headers:
            await exchange.respond(500)
            return True
        return False

    server = legacy(special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        result = await (await connection.list_tools())["t"].execute()
    assert result.error is not None
    assert result.error.kind is ErrorKind.OUTCOME_UNKNOWN
    assert "the answer did not come: SSE stream could not be resumed: HTTP 500" in result.text
    assert len([e for e in server.exchanges if "last-event-id" in e.headers]) == 3


async def test_an_event_over_the_bound_loses_its_call_only() -> None:
    answers = ["x" * 5_000, "small"]

    async def special(exchange: Exchange, message: Json) -> bool:
        await exchange.start_stream()
        await exchange.event(answer_to(message, {"text": answers.pop(0)}))
        await exchange.end_stream()
        return True

    async with listening(HttpScript(lambda _: None, special).handle) as (url, _), wire_to(url, max_bytes=1_000) as wire:
        with pytest.raises(
            ProtocolError, match="larger than 1000 bytes; ask for less, or raise 'max_message_bytes'"
        ) as e:
            await wire.request("tools/call", {})
        assert e.value.kind is ErrorKind.TOO_LARGE
        assert await wire.request("tools/call", {}) == {"text": "small"}


def wire_to(
    url: str, taken: list[Any] | None = None, max_bytes: int = 1_000_000, peer: ClientHandlers | None = None
) -> Any:
    async def headers() -> dict[str, str]:
        return {"X-Own": "1", "Content-Length": "7"}

    def loss(sent: bool) -> ConnectionLostError:
        return ConnectionLostError("over", server="s", sent=sent)

    peer = peer or ClientHandlers(lambda method, params: (taken if taken is not None else []).append((method, params)))
    settings = HttpSettings(url=url, headers=headers, connect_seconds=5, max_bytes=max_bytes)
    return http_wire(settings, peer, server="s", loss=loss)


async def test_the_stream_of_a_session_is_opened_again_and_what_comes_there_is_taken() -> None:
    gets: list[Exchange] = []

    @answers_to("GET")
    async def special(exchange: Exchange, message: Json) -> None:
        gets.append(exchange)
        if len(gets) == 3:
            await exchange.respond(503)
            return
        await exchange.start_stream()
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": len(gets)}}
        await exchange.chunk(f"retry: 1\nid: n-{len(gets)}\ndata: {json.dumps(note)}\n\ndata: junk\n\n".encode())
        await exchange.event("{}", event="other")
        if len(gets) < 4:
            await exchange.end_stream()
        else:
            await exchange.event('{"jsonrpc": "2.0", "id": 9, "method": "ping"}')
            await exchange.event('{"jsonrpc": "2.0", "id": 10, "method": "sampling/createMessage"}')
            await exchange.event('{"jsonrpc": "2.0", "id": 11, "result": {}}')
            await exchange.reader.gone.wait()

    taken: list[Any] = []
    server = legacy(special)
    with anyio.fail_after(10):
        async with listening(server.handle) as (url, _), wire_to(url, taken) as wire:
            assert isinstance(wire, HttpWire)
            await wire.request("initialize", {"protocolVersion": "2025-11-25"})
            await wire.notify("notifications/initialized", {})
            await eventually(lambda: server.methods().count("answer") == 2)
            assert wire.late_answers == 1
    assert [params["data"] for _, params in taken] == [1, 2, 4]
    assert [e.headers.get("last-event-id") for e in gets] == [None, "n-1", "n-2", "n-2"]
    assert {e.headers["accept"] for e in gets} == {"text/event-stream"}
    answers = {message["id"]: message for message in server.messages() if "method" not in message}
    assert answers[9]["result"] == {}
    assert answers[10]["error"]["code"] == -32601


async def test_a_request_of_a_server_that_takes_no_answer_costs_nothing() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if "method" not in message:
            await exchange.respond(500)
            return True
        await exchange.start_stream()
        await exchange.event('{"jsonrpc": "2.0", "id": 9, "method": "ping"}')
        await eventually(lambda: len(server.exchanges) == 2)
        await exchange.event(answer_to(message))
        await exchange.end_stream()
        return True

    server = HttpScript(lambda _: None, special)
    with anyio.fail_after(10):
        async with listening(server.handle) as (url, _), wire_to(url) as wire:
            assert await wire.request("tools/call", {}) == DONE
            assert not wire.over


async def test_a_server_without_a_message_on_its_stream_is_asked_less_and_less_often() -> None:
    @answers_to("GET")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.start_stream()
        await exchange.chunk(b"retry: 20\n\n")
        await exchange.end_stream()

    server = legacy(special)
    with anyio.fail_after(10):
        async with listening(server.handle) as (url, _), wire_to(url) as wire:
            await wire.request("initialize", {})
            await wire.notify("notifications/initialized", {})
            await eventually(lambda: server.methods().count("GET") >= 3)


async def test_a_session_that_is_forgotten_ends_the_wire() -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/call":
            await exchange.respond(404)
            return True
        return False

    server = legacy(special)
    with anyio.fail_after(10):
        async with listening(server.handle) as (url, _), wire_to(url) as wire:
            await wire.request("initialize", {})
            with pytest.raises(ConnectionLostError, match="session has ended") as gone:
                await wire.request("tools/call", {})
            assert not gone.value.sent
            await wire.ended()
            assert wire.over
            with pytest.raises(ConnectionLostError, match="over"):
                await wire.request("ping", {})
    assert "DELETE" not in server.methods()


ODD = [
    ('{"jsonrpc": "2.0", "id": 77, "result": {}}', "it answers another request"),
    ('{"jsonrpc": "2.0", "id": null, "error": {"code": -1, "message": "no"}}', "no$"),
    ('{"jsonrpc": "2.0", "id": ID}', "neither 'result' nor 'error'"),
    ('{"jsonrpc": "2.0", "id": ID, "result": null}', "'result' is not an object"),
    ('{"jsonrpc": "2.0", "id": ID, "error": "bad"}', "'error' is not an object"),
    ("7", "invalid answer"),
    ("[]", "invalid answer"),
    ('{"jsonrpc": "2.0", "id": ID, "result": {"a": ' + "[" * 200_000 + "]" * 200_000 + "}}", "nested too deeply"),
]


@pytest.mark.parametrize(("text", "words"), ODD)
@pytest.mark.parametrize("status", [200, 400])
async def test_an_odd_answer_is_an_error_of_its_call_at_once(text: str, words: str, status: int) -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        body = text.replace("ID", str(message["id"])).encode()
        await exchange.respond(status, body, content_type="application/json")
        return True

    async with listening(HttpScript(lambda _: None, special).handle) as (url, _), wire_to(url) as wire:
        with pytest.raises(ProtocolError, match=words if status == 200 else words + "|HTTP 400"):
            await wire.request("tools/call", {})


async def test_answers_with_string_ids_and_in_batches_are_taken() -> None:
    texts: list[str] = [
        '{"jsonrpc": "2.0", "id": "1", "result": {"n": 1}}',
        '[{"jsonrpc": "2.0", "method": "notifications/x"}, {"jsonrpc": "2.0", "id": 2, "result": {"n": 2}}]',
        '{"jsonrpc": "2.0", "id": 3, "result": {"tools": [' + "[" * 200_000 + "]" * 200_000 + ', {"name": "t"}]}}',
    ]

    async def special(exchange: Exchange, message: Json) -> bool:
        await exchange.respond(
            200, texts[int(message["id"]) - 1].encode(), content_type="application/json; charset=utf-8"
        )
        return True

    taken: list[Any] = []
    async with listening(HttpScript(lambda _: None, special).handle) as (url, _), wire_to(url, taken) as wire:
        assert await wire.request("ping", {}) == {"n": 1}
        assert await wire.request("ping", {}) == {"n": 2}
        assert (await wire.request("tools/list", {}))["tools"] == [None, {"name": "t"}]
        with pytest.raises(ToolError, match="not JSON"):
            await wire.request("tools/call", {"arguments": {"a": float("nan")}})
    assert [method for method, _ in taken] == ["notifications/x"]


@pytest.mark.parametrize(
    ("location", "status", "words"),
    [
        ("/loop", 307, "redirects more than 5 times"),
        ("/elsewhere", 302, r"Redirect to http://127.0.0.1:\d+/elsewhere not followed"),
        ("https://user:secret@127.0.0.1/mcp?token=secret", 308, "Redirect to https://127.0.0.1/mcp not followed"),
    ],
)
async def test_redirects_are_followed_a_few_times_and_within_the_origin_only(
    location: str, status: int, words: str
) -> None:
    async def handle(exchange: Exchange) -> None:
        await exchange.respond(status, location=location)

    async with listening(handle) as (url, _), wire_to(f"{url}?k=v") as wire:
        with pytest.raises(ProtocolError, match=words) as refused:
            await wire.request("tools/call", {})
        await wire.notify("notifications/x", {"a": 1})
    assert "secret" not in str(refused.value)


async def test_own_headers_go_along_but_for_those_that_frame_the_message() -> None:
    server = legacy()
    async with listening(server.handle) as (url, _), wire_to(url) as wire:
        await wire.request("initialize", {})
    assert server.exchanges[0].headers["x-own"] == "1"
    assert server.exchanges[0].headers["content-length"] != "7"


async def test_a_call_lost_with_its_kept_connection_is_never_made_twice() -> None:
    calls = 0

    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        nonlocal calls
        calls += 1
        exchange.writer.close()

    server = modern(lambda _: {}, special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        result = await (await connection.list_tools())["t"].execute()
    assert result.error is not None
    assert result.error.kind is ErrorKind.OUTCOME_UNKNOWN
    assert calls == 1


async def test_a_server_on_http_2_only_or_none_at_all_is_an_error_of_connecting() -> None:
    async def handle(exchange: Exchange) -> None:
        exchange.writer.write(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00")
        await exchange.writer.drain()

    async with listening(handle) as (url, _):
        with pytest.raises(ConnectError, match="RemoteProtocolError"):
            await connect_mcp(url)


async def test_requests_of_a_server_may_fail_be_taken_back_or_make_no_sense() -> None:
    class Slow(ClientHandlers):
        async def request(self, method: str, params: Any) -> Json:
            if method == "fail":
                raise RuntimeError("a fault of the user's")
            began.set()
            await anyio.sleep_forever()
            raise AssertionError

    began = anyio.Event()

    async def special(exchange: Exchange, message: Json) -> bool:
        if "method" not in message:
            return False
        await exchange.start_stream()
        await exchange.event('{"jsonrpc": "2.0", "id": 8, "method": "wait"}')
        await began.wait()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}}
        await exchange.event(json.dumps(cancel))
        await exchange.event(
            '{"jsonrpc": "2.0", "id": 10, "method": "deep", "params": ' + "[" * 200_000 + "]" * 200_000 + "}"
        )
        await exchange.event('{"jsonrpc": "2.0", "id": 9, "method": "fail", "params": 7}')
        await eventually(lambda: len(server.exchanges) == 2)
        await exchange.event(answer_to(message))
        await exchange.end_stream()
        return True

    server = HttpScript(lambda _: None, special)
    peer = Slow(lambda method, params: None)
    with anyio.fail_after(10):
        async with listening(server.handle) as (url, _), wire_to(url, peer=peer) as wire:
            assert await wire.request("tools/call", {}) == DONE
    answers = [message for message in server.messages() if "method" not in message]
    assert [(answer["id"], answer["error"]["message"]) for answer in answers] == [(9, "the client failed to answer")]
