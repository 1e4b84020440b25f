"""Answers over HTTP that are none, on both lanes: each is the error of its call, with the cause in it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.connect.scripted import Exchange, HttpScript, answers_to, listening, modern_answer
from tests.connect.targets import Json, connected
from toolweave import ErrorKind, McpConnection, ProtocolError, RequestTimeoutError


class Once(HttpScript):
    """Answers the first call with `raw` bytes; the later ones well."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(modern_answer, self._first)
        self._raw: bytes | None = raw

    async def _first(self, exchange: Exchange, message: Json) -> bool:
        if message.get("method") != "tools/call" or self._raw is None:
            return False
        raw, self._raw = self._raw.replace(b"ID", str(message["id"]).encode()), None
        exchange.writer.write(raw)
        await exchange.writer.drain()
        return True


@pytest.mark.parametrize("status", [400, 404, 405, 406, 410, 415, 422, 500, 502, 504])
@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_an_http_error_names_its_status_and_what_the_server_said(status: int, kind: str) -> None:
    said = b'{"detail": "no such thing here"}' if kind == "application/json" else b"<h1>no such thing here</h1>"
    head = f"HTTP/1.1 {status} Some Reason\r\ncontent-type: {kind}\r\ncontent-length: {len(said)}\r\n\r\n"
    server = Once(head.encode() + said)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        with pytest.raises(ProtocolError, match=rf"HTTP {status} Some Reason: .*no such thing here") as refused:
            await connection.call_tool("t")
        assert (await connection.call_tool("t")).text == "done"
    assert refused.value.data == {"http_status": status}


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_an_error_of_the_protocol_counts_more_than_its_http_status(status: int) -> None:
    said = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32021, "message": "capability", "data": [1]}})
    head = f"HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {len(said)}\r\n\r\n"
    server = Once((head + said).encode())
    async with listening(server.handle) as (url, _), connected(url) as connection:
        with pytest.raises(ProtocolError, match="capability") as refused:
            await connection.call_tool("t")
    assert (refused.value.code, refused.value.data) == (-32021, [1])


JSON = b"content-type: application/json\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\n" + JSON + b"transfer-encoding: chunked\r\n\r\n"
ODD: list[tuple[bytes, str, ErrorKind]] = [
    (b"SSH-2.0-OpenSSH_9\r\n\r\n", "RemoteProtocolError", ErrorKind.OUTCOME_UNKNOWN),
    (CHUNKED + b"ZZ\r\n{}\r\n", "RemoteProtocolError", ErrorKind.OUTCOME_UNKNOWN),
    (CHUNKED + b"ffffffffffffffffffff\r\n{}\r\n", "RemoteProtocolError", ErrorKind.OUTCOME_UNKNOWN),
    (CHUNKED + b"5\r\n{", "RemoteProtocolError", ErrorKind.OUTCOME_UNKNOWN),
    (b"HTTP/1.1 200 OK\r\n" + JSON + b"content-length: 99\r\n\r\n{", "RemoteProtocolError", ErrorKind.OUTCOME_UNKNOWN),
    (b"HTTP/1.1 200 OK\r\n" + JSON + b"content-length: -1\r\n\r\n{", "RemoteProtocolError", ErrorKind.OUTCOME_UNKNOWN),
    (b"HTTP/1.1 200 OK\r\n" + JSON + b"content-length: 0\r\n\r\n", "not valid JSON: it is empty", ErrorKind.PROTOCOL),
    (b"HTTP/1.1 200 OK\r\n" + JSON + b"content-length: 3\r\n\r\nyes", "not valid JSON: yes", ErrorKind.PROTOCOL),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "HTTP 200 OK with content type ''.*hi", ErrorKind.PROTOCOL),
    (b"HTTP/1.1 304 Not Modified\r\n\r\n", "HTTP 304", ErrorKind.PROTOCOL),
]


async def test_an_answer_that_is_no_utf8_is_a_protocol_error_that_says_so() -> None:
    body = b'{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "caf\xe9 \xff"}]}}'
    server = Once(b"HTTP/1.1 200 OK\r\n" + JSON + b"connection: close\r\n\r\n" + body)
    async with listening(server.handle) as (url, _), connected({"url": url}) as connection:
        with pytest.raises(ProtocolError, match=r"decode byte|not valid UTF-8"):
            await connection.call_tool("t")
        assert (await connection.call_tool("t")).text == "done"


@pytest.mark.parametrize(("raw", "words", "kind"), ODD)
async def test_bytes_that_are_no_answer_cost_their_call_only(raw: bytes, words: str, kind: ErrorKind) -> None:
    server = Once(raw)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        result = await (await connection.list_tools())["t"].execute()
        assert (await connection.call_tool("t")).text == "done"
        assert connection.restarts == 0
    assert result.error is not None
    assert result.error.kind == kind, result.error
    assert re.search(words, result.error.message), result.error.message


@pytest.mark.parametrize("late", [0, 1])
async def test_headers_that_no_longer_fit_are_made_anew_from_a_fresh_list_once(late: int) -> None:
    async def special(exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/list":
            name = "Zone" if server.methods().count("tools/call") > late else "Region"
            schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": name}}}
            result = {"tools": [{"name": "t", "inputSchema": schema}]}
            await exchange.respond_json(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})
            return True
        if message.get("method") != "tools/call" or exchange.headers.get("mcp-param-zone") == "north":
            return False
        error = {"code": -32020, "message": "Header Mcp-Param-Zone is missing"}
        await exchange.respond_json(400, {"jsonrpc": "2.0", "id": message["id"], "error": error})
        return True

    server = HttpScript(modern_answer, special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        if late:
            with pytest.raises(ProtocolError, match="Mcp-Param-Zone is missing"):
                await connection.call_tool("t", {"region": "north"})
        else:
            assert (await connection.call_tool("t", {"region": "north"})).text == "done"
    assert server.methods().count("tools/call") == 2


REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


class Moving:
    """A server that refuses the headers of the first call, as those of an older list, and then lists other tools.

    Attributes:
        headers: The mirrored header of each call.
        relisting: Set when the list is read again.
        may_list: Set when that may be answered.
    """

    def __init__(self, *later: Json) -> None:
        self.headers: list[str | None] = []
        self.relisting = anyio.Event()
        self.may_list = anyio.Event()
        self.may_list.set()
        self._later = list(later)
        self.script = HttpScript(modern_answer, self._special)

    async def _special(self, exchange: Exchange, message: Json) -> bool:
        if message.get("method") == "tools/list":
            tools: list[Json] = [{"name": "t", "inputSchema": REGION}]
            if self.headers:
                self.relisting.set()
                await self.may_list.wait()
                tools = self._later
            await exchange.respond_json(200, {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})
            return True
        if message.get("method") not in ("tools/call", "resources/read"):
            return False
        if message["params"].get("name") == "hang":
            await exchange.reader.gone.wait()
            return True
        self.headers.append(exchange.headers.get("mcp-param-region"))
        if len(self.headers) > 1:
            return False
        error = {"code": -32020, "message": "a header does not fit"}
        await exchange.respond_json(400, {"jsonrpc": "2.0", "id": message["id"], "error": error})
        return True


async def test_a_tool_that_a_fresh_list_has_no_more_is_called_again_as_it_was_known() -> None:
    server = Moving()
    async with listening(server.script.handle) as (url, _), connected(url) as connection:
        assert (await connection.call_tool("t", {"region": "north"})).text == "done"
    assert server.headers == ["north", "north"]


@pytest.mark.parametrize("use", ["tool", "resource"])
async def test_headers_of_what_has_no_definition_are_an_error_of_the_server_and_no_list_is_read(use: str) -> None:
    server = Moving()
    async with listening(server.script.handle) as (url, _), connected(url) as connection:
        with pytest.raises(ProtocolError, match="a header does not fit"):
            await (connection.call_tool("unlisted") if use == "tool" else connection.read_resource("a:b"))
    assert server.headers == [None]
    assert not server.relisting.is_set()


async def test_the_time_in_which_a_fresh_list_is_read_does_not_count_as_silence_of_the_call() -> None:
    server = Moving({"name": "t", "inputSchema": REGION})
    server.may_list = anyio.Event()

    async def wait_as_long() -> None:
        await server.relisting.wait()
        with pytest.raises(RequestTimeoutError):  # whose bound is the same, and began later
            await another.call_tool("hang", timeout=0.5)
        server.may_list.set()

    async with (
        listening(server.script.handle) as (url, _),
        connected(url) as another,
        connected(url) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(wait_as_long)
        assert (await connection.call_tool("t", {"region": "north"}, timeout=0.5)).text == "done"


async def test_of_entries_with_a_fault_the_first_one_is_named_and_the_others_are_listed() -> None:
    @answers_to("tools/list")
    async def special(exchange: Exchange, message: Json) -> None:
        header = {"type": "object", "properties": {"x": {"type": "object", "x-mcp-header": "X"}}}
        plain: Json = {"type": "object"}
        schemas: list[tuple[str, Any]] = [("t", plain), ("text", "x"), ("header", header), ("t", 5), ("t", plain)]
        tools = [{"name": name, "inputSchema": schema} for name, schema in schemas]
        await exchange.respond_json(200, {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})

    server = HttpScript(modern_answer, special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        assert (await connection.list_tools()).names == ("t",)
        problems = connection.problems
    assert [problem.partition(": ")[0] for problem in problems] == [
        "tool 'text' left out",
        "tool 'header' left out",
        "tool 't' left out",
        "tool 't' left out",
    ]
    reasons = ("is not an object but str", "x-mcp-header", "is not an object but int", "a second tool of this name")
    assert all(reason in problem for problem, reason in zip(problems, reasons, strict=True))


async def test_a_byte_order_mark_before_the_answer_is_passed_over() -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "marked"}]}}
        await exchange.respond(200, b"\xef\xbb\xbf" + json.dumps(answer).encode(), content_type="application/json")

    server = HttpScript(modern_answer, special)
    async with listening(server.handle) as (url, _), connected(url) as connection:
        assert (await connection.call_tool("t")).text == "marked"


@asynccontextmanager
async def answering(body: str, kind: str, **settings: Any) -> AsyncGenerator[tuple[McpConnection, HttpScript]]:
    """Connect to a server that answers calls with a body, in which `%s` is the id of the request."""

    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.respond(200, body.replace("%s", json.dumps(message["id"])).encode(), content_type=kind)

    server = HttpScript(modern_answer, special)
    async with listening(server.handle) as (url, _), connected({"url": url, **settings}) as connection:
        yield connection, server


MISLABELLED = '{"jsonrpc": "2.0", "id": %s, "result": {"content": [{"type": "text", "text": "made"}]}}'
STEP = '{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "half"}}'
IN_LINES = [
    (f"{STEP}\n{MISLABELLED}\n", "application/x-ndjson"),
    (f"{STEP}\r\n\r\n{MISLABELLED}", "application/json"),
    (f"{MISLABELLED}\n{STEP}\n", "application/jsonl; charset=utf-8"),
    (f"\x1e{STEP}\n\x1e{MISLABELLED}\n", "application/json-seq"),
    (f"\x1e{MISLABELLED}\n", "application/json-seq"),
]
WARNING = "\nWarning: Undefined variable $x in /srv/app.php on line 3\n"
EVENT = f"event: message\ndata: {MISLABELLED}\n\n"
IN_OTHER_TEXT = [
    (WARNING + MISLABELLED, "application/json"),
    (f"<br />\n<b>Deprecated</b>: x in <b>a.php</b> {{5}}<br />\n{MISLABELLED}", "text/html; charset=UTF-8"),
    (f"{MISLABELLED}\n\x00", "application/json"),
    (f"{MISLABELLED}<!-- 0.2 s -->", "text/html"),
]
MANY_LISTS = f'{WARNING}{{"jsonrpc": "2.0", "id": %s, "result": {{"content": [], "all": [{"[], " * 200_000}[]]}}}}'
AS_EVENTS = [
    (EVENT, "application/json"),
    (EVENT, "text/plain"),
    (f": hello\n\ndata: {STEP}\n\n{EVENT.strip()}", "application/octet-stream"),
]
NO_JSON = '{"jsonrpc": "2.0", "id": %s, "result": {"content": [{"type": "text", "text": "made"}], "n": NaN}}'


@pytest.mark.parametrize("is_repaired", [True, False])
@pytest.mark.parametrize(
    ("body", "kind", "problem"),
    [
        (MISLABELLED, "text/plain", "its answers have the content type 'text/plain'"),
        (MISLABELLED, "text/json", "its answers have the content type 'text/json'"),
        (MISLABELLED, "application/x-json", "its answers have the content type 'application/x-json'"),
        (NO_JSON, "application/json", "it sent text that is not JSON"),
        (NO_JSON.replace("NaN", "-Infinity"), "application/json", "it sent text that is not JSON"),
        (NO_JSON.replace("NaN", "1e400"), "application/json", "it sent text that is not JSON"),
        (NO_JSON.replace("NaN", '"\\ud83d"'), "application/json", "it sent text that is not JSON"),
        (NO_JSON.replace("NaN", '"a\\udc00b"'), "application/json", "it sent text that is not JSON"),
        (NO_JSON.replace("NaN", '"a\x01b"'), "application/json", "it sent text that is not JSON"),
        (
            MISLABELLED.replace('"result"', '"error": null, "result"'),
            "application/json",
            "its answers have 'error': null",
        ),
        (
            MISLABELLED.replace('"jsonrpc"', '"error":null,"jsonrpc"'),
            "application/json",
            "its answers have 'error': null",
        ),
        (f'{MISLABELLED[:-1]}, "error" : null }}', "application/json", "its answers have 'error': null"),
        *((body, kind, "its answers have other text around the message") for body, kind in IN_OTHER_TEXT),
        *((body, kind, "its answers are events under another content type") for body, kind in AS_EVENTS),
        *((body, kind, "its answers hold a message in each line") for body, kind in IN_LINES),
    ],
)
async def test_an_answer_that_is_nearly_right_is_read_unless_its_owner_wants_no_repairs(
    body: str, kind: str, problem: str, is_repaired: bool
) -> None:
    async with answering(body, kind, repair_messages=is_repaired) as (connection, server):
        if is_repaired:
            assert (await connection.call_tool("t")).text == "made"
            assert [one for one in connection.problems if one.startswith(problem)]
        else:
            with pytest.raises(ProtocolError, match=f"{problem}.*'repair_messages': true"):
                await connection.call_tool("t")
    assert server.methods().count("tools/call") == 1


@pytest.mark.parametrize("kind", ["text/html", "application/json"])
@pytest.mark.parametrize(
    "body",
    [
        'Your request was {"jsonrpc": "2.0", "id": %s, "method": "tools/call"}',
        'Cached: {"jsonrpc": "2.0", "id": 987654, "result": {"content": []}}',
        'Broken: {"jsonrpc": "2.0", "id": %s, "result": {"content": [',
        'Not ours: {"id": %s, "result": {"content": []}}',
        pytest.param(MANY_LISTS, id="more lists than are searched"),
    ],
)
async def test_other_text_without_an_answer_to_the_request_is_an_error(body: str, kind: str) -> None:
    async with answering(body, kind) as (connection, server):
        with pytest.raises(ProtocolError):
            await connection.call_tool("t")
    assert server.methods().count("tools/call") == 1


async def test_an_answer_in_other_text_with_a_number_that_is_too_long_is_read_with_null() -> None:
    body = WARNING + MISLABELLED.replace('"content"', f'"structuredContent": {{"n": {"7" * 5_000}}}, "content"')
    async with answering(body, "text/html") as (connection, _):
        result = await connection.call_tool("t")
    assert (result.text, result.structured_content) == ("made", {"n": None})


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json", "text/plain"])
@pytest.mark.parametrize("last", [MISLABELLED[:-1], MISLABELLED[:40], '{"id": %s, "result": {}}', "[]", ""])
async def test_lines_without_a_whole_answer_are_not_an_answer(kind: str, last: str) -> None:
    async with answering(f"{STEP}\n{last}", kind) as (connection, server):
        with pytest.raises(ProtocolError):
            await connection.call_tool("t")
    assert server.methods().count("tools/call") == 1


async def test_an_event_over_the_bound_names_the_bound_and_how_to_raise_it() -> None:
    @answers_to("tools/call")
    async def special(exchange: Exchange, message: Json) -> None:
        await exchange.start_stream()
        await exchange.event("x" * 200_000)
        await exchange.reader.gone.wait()

    server = HttpScript(modern_answer, special)
    target = {"url": "", "max_message_bytes": 100_000}
    async with listening(server.handle) as (url, _), connected({**target, "url": url}) as connection:
        with pytest.raises(ProtocolError, match=r"larger than 100000 bytes.*'max_message_bytes'") as refused:
            await connection.call_tool("t")
    assert refused.value.kind is ErrorKind.TOO_LARGE
