"""Sessions of legacy clients over HTTP: how they begin and end, which notifications they get, what is resumed."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from tests.serve.exchanges import BOTH, events, exchange, handshake, modern_headers, opened, read_until
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_http
from toolweave import CallContext, tool
from toolweave.serve import HttpLimits, McpServer, MemoryEventStore, create_mcp_server


def message(method: str, key: int | str | None = 2, **params: Any) -> bytes:
    """Return a request, or a notification without a key."""
    said: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(said if key is None else said | {"id": key}).encode()


def called(name: str, key: int | str = 2, *, token: str | None = None, **arguments: Any) -> bytes:
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return message("tools/call", key, name=name, arguments=arguments, **meta)


async def test_a_session_of_one_process_has_its_level_and_its_subscriptions() -> None:
    server = create_mcp_server(name="s", logging=True)

    @server.resource("notes://a")
    def note() -> str:  # pyright: ignore[reportUnusedFunction]
        return ""

    async with served_http(server) as url:
        _, session = await handshake(url)
        requests = [
            message("logging/setLevel", level="error"),
            message("resources/subscribe", uri="notes://a"),
            message("resources/unsubscribe", uri="notes://a"),
        ]
        answers = [await exchange(url, headers=session, body=request) for request in requests]

    assert [answer.json().get("result") for answer in answers] == [{}, {}, {}]


@pytest.mark.requirement("C21")
async def test_an_answer_in_a_session_is_json_until_something_is_said_before_it() -> None:
    async with served_http(doing_server()) as url:
        begun, session = await handshake(url)
        quick = await exchange(url, headers=session, body=called("add", a=1, b=2))
        telling = await exchange(url, headers=session, body=called("steps", token="t"))

    assert begun.headers["content-type"] == quick.headers["content-type"] == "application/json"
    assert quick.json()["result"]["content"][0]["text"] == "3"
    assert quick.headers["mcp-session-id"] == session["Mcp-Session-Id"]
    assert telling.headers["content-type"] == "text/event-stream"
    assert [one.get("method", "result") for one in events(telling.body)] == [*["notifications/progress"] * 3, "result"]


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {"Mcp-Session-Id": "-"}, 400),
        ("POST", {"Mcp-Session-Id": "0" * 32}, 404),
        ("GET", {"Mcp-Session-Id": "-"}, 400),
        ("GET", {"Mcp-Session-Id": "0" * 32}, 404),
        ("GET", {"Accept": "application/json"}, 406),
        ("GET", {"MCP-Protocol-Version": "2026-07-28"}, 405),
        ("DELETE", {"Mcp-Session-Id": "-"}, 400),
        ("DELETE", {"Mcp-Session-Id": "0" * 32}, 404),
        ("PUT", {}, 405),
        ("POST", {"Accept": "application/json"}, 406),
        ("POST", {"Accept": "text/event-stream, " + "x/y, " * 60 + "application/json"}, 200),
    ],
)
async def test_what_names_no_open_session_or_asks_for_what_is_not_there_is_refused(
    method: str, headers: dict[str, str], status: int
) -> None:
    async with served_http(doing_server()) as url:
        _, session = await handshake(url)
        body = called("add", a=1, b=2) if method == "POST" else b""
        answer = await exchange(url, method, headers={**session, **headers}, body=body)
        after = await exchange(url, headers=session, body=called("add", a=1, b=2))

    assert (answer.status, after.status) == (status, 200)


@pytest.mark.parametrize("body", [b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', b'{"jsonrpc": "2.0", "id": 3}'])
async def test_what_is_no_request_is_refused(body: bytes) -> None:
    async with served_http(doing_server()) as url:
        _, session = await handshake(url)
        answer = await exchange(url, headers=session, body=body)

    assert (answer.status, answer.json()["error"]["code"]) == (400, -32600)


async def test_a_handshake_that_fails_begins_no_session() -> None:
    async with served_http(doing_server(), limits=HttpLimits(sessions=1, shutdown_seconds=2)) as url:
        headers = {"Content-Type": "application/json", "Accept": BOTH}
        refused = await exchange(url, headers=headers, body=message("initialize", 1, protocolVersion=5))
        begun, _ = await handshake(url)

    assert refused.json()["error"]["code"] == -32602
    assert "mcp-session-id" not in refused.headers
    assert begun.status == 200


async def test_a_handshake_in_a_session_is_that_of_the_same_session() -> None:
    async with served_http(doing_server()) as url:
        first, session = await handshake(url)
        again, _ = await handshake(url, {"Mcp-Session-Id": session["Mcp-Session-Id"]})
        elsewhere, _ = await handshake(url, {"Mcp-Session-Id": "0" * 32})

    assert again.headers["mcp-session-id"] == first.headers["mcp-session-id"]
    assert elsewhere.status == 404


def changing(server: McpServer) -> None:
    server.tool(tool(lambda: "x", name="newest"))


@pytest.mark.parametrize("store", [None, MemoryEventStore()], ids=["no store", "a store"])
async def test_a_change_reaches_the_stream_of_its_session_and_only_one_is_open(store: MemoryEventStore | None) -> None:
    server = doing_server()
    async with served_http(server, event_store=store) as url:
        _, session = await handshake(url)
        async with opened(url, "GET", session) as stream:
            said = await read_until(stream, b": open")
            second = await exchange(url, "GET", headers=session)
            changing(server)
            said += await read_until(stream, b"list_changed")

    assert second.status == 409
    assert b"text/event-stream" in said
    assert b"notifications/tools/list_changed" in said
    assert (b"\nid: " in said) is (store is not None)


async def test_a_change_that_comes_before_the_stream_is_open_is_told_when_it_is() -> None:
    server = doing_server()
    async with served_http(server) as url:
        _, session = await handshake(url)
        changing(server)
        await anyio.sleep(0.2)  # changes are announced a moment later, together
        async with opened(url, "GET", session) as stream:
            said = await read_until(stream, b"list_changed")

    assert said.count(b"notifications/tools/list_changed") == 1


async def test_a_stream_whose_client_left_can_be_opened_again() -> None:
    server = doing_server()
    async with served_http(server) as url:
        _, session = await handshake(url)
        async with opened(url, "GET", session) as stream:
            await read_until(stream, b": open")
        while True:
            async with opened(url, "GET", session) as stream:
                if b" 200 " in await read_until(stream, b"\r\n\r\n"):
                    changing(server)
                    await read_until(stream, b"list_changed")
                    return
            await anyio.sleep(0.01)


async def test_a_client_that_cancels_its_call_gets_the_end_of_its_response() -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        _, session = await handshake(url)
        async with opened(url, "POST", session, called("wait", "k")) as stream:
            await doings.started.wait()
            cancelled = await exchange(
                url, headers=session, body=message("notifications/cancelled", None, requestId="k")
            )
            none = await exchange(url, headers=session, body=message("notifications/cancelled", None, requestId=[1]))
            said = await read_until(stream, b"}")

    assert (cancelled.status, none.status) == (202, 202)
    assert doings.cancelled.is_set()
    assert b"-32800" in said


async def test_the_end_of_a_session_ends_its_calls_and_its_stream() -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        _, session = await handshake(url)
        async with (
            opened(url, "GET", session) as stream,
            opened(url, "POST", session, called("wait")) as pending,
        ):
            await read_until(stream, b": open")
            await doings.started.wait()
            ended = await exchange(url, "DELETE", headers=session)
            said = await read_until(pending, b"}")
            with pytest.raises(anyio.EndOfStream), anyio.fail_after(30):
                while True:
                    await stream.receive()
        gone = await exchange(url, headers=session, body=called("add", a=1, b=2))

    assert (ended.status, gone.status) == (200, 404)
    assert b"the session ended" in said
    assert doings.cancelled.is_set()


async def test_an_id_that_still_runs_is_refused() -> None:
    doings = Doings()
    async with served_http(doing_server(doings)) as url:
        _, session = await handshake(url)
        async with opened(url, "POST", session, called("wait", 5)) as pending:
            await doings.started.wait()
            same = await exchange(url, headers=session, body=called("add", 5, a=1, b=2))
            text = await exchange(url, headers=session, body=called("add", "5", a=1, b=2))
            doings.release.set()
            said = await read_until(pending, b"released")

    assert (same.status, text.status) == (400, 200)
    assert b'"result"' in said


async def test_a_stateless_endpoint_has_no_stream_and_no_session_to_end() -> None:
    async with served_http(doing_server(), stateless=True) as url:
        _, headers = await handshake(url)
        statuses = [(await exchange(url, method, headers=headers)).status for method in ("GET", "DELETE")]
        noted = await exchange(url, headers=headers, body=message("notifications/cancelled", None, requestId=1))

    assert statuses == [405, 405]
    assert noted.status == 202


@tool
async def survey(ctx: CallContext) -> str:
    """Ask who somebody is."""
    answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"it is {answer.content}"


def asking(url: str) -> bytes:
    client = {"name": "by-hand", "version": "0"}
    params: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": client,
    }
    return message("initialize", 1, **params)


async def asking_session(url: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": BOTH}
    begun = await exchange(url, headers=headers, body=asking(url))
    session = {**headers, "Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    await exchange(url, headers=session, body=message("notifications/initialized", None))
    return session


async def test_a_client_is_asked_on_the_response_of_its_call_and_answers_with_a_post() -> None:
    async with served_http(create_mcp_server("s", tools=[survey])) as url:
        session = await asking_session(url)
        other = await asking_session(url)
        async with opened(url, "POST", session, called("survey")) as stream:
            said = await read_until(stream, b'"requestedSchema"')
            (asked,) = events(said.partition(b"\r\n\r\n")[2])
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
            stolen = {**answer, "result": {"action": "accept", "content": {"name": "Mallory"}}}
            await exchange(url, headers=other, body=json.dumps(stolen).encode())
            taken = await exchange(url, headers=session, body=json.dumps(answer).encode())
            result = await read_until(stream, b"it is")

    assert taken.status == 202
    assert b"Ada" in result
    assert b"Mallory" not in result


@pytest.mark.slow
async def test_a_question_to_a_client_that_left_fails_when_its_session_ends() -> None:
    ended = anyio.Event()

    @tool
    async def hopeless(ctx: CallContext) -> str:
        """Ask somebody who has left."""
        try:
            await ctx.elicit("Who?", {"type": "object", "properties": {}})
        except BaseException:
            ended.set()
            raise
        return "answered"

    limits = HttpLimits(session_idle_seconds=0.2, shutdown_seconds=2)
    async with served_http(create_mcp_server("s", tools=[hopeless]), limits=limits) as url:
        session = await asking_session(url)
        async with opened(url, "POST", session, called("hopeless")) as stream:
            await read_until(stream, b'"requestedSchema"')
        with anyio.fail_after(30):
            await ended.wait()
        assert (await exchange(url, headers=session, body=called("hopeless"))).status == 404


async def test_a_question_is_not_withdrawn_from_a_client_that_has_ended_its_session() -> None:
    async with served_http(create_mcp_server("s", tools=[survey])) as url:
        session = await asking_session(url)
        async with opened(url, "POST", session, called("survey")) as stream:
            await read_until(stream, b'"requestedSchema"')
            assert (await exchange(url, "DELETE", headers=session)).status == 200
            rest = await read_until(stream, b"0\r\n\r\n")

    assert [one.get("id") for one in events(rest)] == [2]


async def test_a_client_without_a_stream_cannot_be_asked() -> None:
    async with served_http(create_mcp_server("s", tools=[survey]), json_response=True) as url:
        session = await asking_session(url)
        answer = await exchange(url, headers=session, body=called("survey"))

    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["result"]["isError"] is True


def event_ids(said: bytes) -> list[str]:
    return [line[3:].strip().decode() for line in said.splitlines() if line.startswith(b"id:")]


async def test_a_call_goes_on_while_its_client_is_away_and_is_resumed_where_it_was() -> None:
    doings = Doings()
    async with served_http(doing_server(doings), event_store=MemoryEventStore(), retry_interval=10) as url:
        _, session = await handshake(url)
        async with opened(url, "POST", session, called("report", token="t")) as stream:
            before = await read_until(stream, b"notifications/progress")
        primed, *_ = event_ids(before)
        async with opened(url, "GET", {**session, "Last-Event-ID": primed}) as stream:
            missed = await read_until(stream, b"notifications/progress")
            doings.release.set()
            said = missed + await read_until(stream, b"released")
            with pytest.raises(anyio.EndOfStream), anyio.fail_after(30):
                while True:
                    await stream.receive()
        async with opened(url, "GET", {**session, "Last-Event-ID": event_ids(said)[0]}) as stream:
            later = await read_until(stream, b"released")
        unknown = await exchange(url, "GET", headers={**session, "Last-Event-ID": "nobody.7"})

    assert not doings.cancelled.is_set()
    assert said.count(b"notifications/progress") == 1
    assert b'"result"' in later
    assert (unknown.status, events(unknown.body)) == (200, [])


async def test_the_revision_without_polling_gets_no_event_that_it_cannot_read() -> None:
    async with served_http(doing_server(), event_store=MemoryEventStore(), retry_interval=10) as url:
        headers = {"Content-Type": "application/json", "Accept": BOTH}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "0"}}
        begun = await exchange(url, headers=headers, body=message("initialize", 1, **params))
        session = {**headers, "Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
        answer = await exchange(url, headers=session, body=called("add", a=1, b=2))

    assert b"retry:" not in answer.body
    assert len(event_ids(answer.body)) == 1
    assert events(answer.body)[0]["result"]["content"][0]["text"] == "3"


async def test_a_modern_client_listens_beside_sessions() -> None:
    server = doing_server()
    async with served_http(server) as url:
        body = json.loads(message("subscriptions/listen", 7, notifications={"toolsListChanged": True}))
        body["params"]["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        async with opened(url, "POST", modern_headers("", "subscriptions/listen"), json.dumps(body).encode()) as stream:
            await read_until(stream, b"acknowledged")
            changing(server)
            said = await read_until(stream, b"list_changed")

    assert b"io.modelcontextprotocol/subscriptionId" in said


class BrokenStore(MemoryEventStore):
    """An event store that cannot keep anything."""

    async def store_event(self, stream_id: str, message: Any) -> str:
        raise ConnectionError("the disk is full")


async def test_an_event_that_cannot_be_kept_is_delivered_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    async with served_http(doing_server(), event_store=BrokenStore()) as url:
        _, session = await handshake(url)
        answer = await exchange(url, headers=session, body=called("steps", token="t"))

    assert [one.get("method", "result") for one in events(answer.body)] == [*["notifications/progress"] * 3, "result"]
    assert event_ids(answer.body) == []
    assert "could not be stored" in caplog.text
