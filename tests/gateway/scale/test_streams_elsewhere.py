"""Responses that were cut: their clients come back with `Last-Event-ID`, at another replica than that which answers."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import SocketStream

from tests.gateway.scale.fleet import Fleet, as_principal, fleet_of
from tests.gateway.scale.replicas import KEYS, STORES, Json, OldClient, message, replicas, store_of
from tests.serve.exchanges import exchange, read_until
from tests.serve.offered import Doings, doing_server
from tests.serve.serving import served_http
from toolweave import CallContext, create_mcp_server
from toolweave.gateway import Replicas, create_gateway
from toolweave.serve import HttpLimits
from toolweave.state import MemoryStore, Store, iter_documents

UNKNOWN = "the outcome is unknown"


def two_stores(kind: str, folder: Path, redis_url: str) -> list[Store]:
    one = store_of(kind, folder, redis_url)
    return [one, one if kind == "memory" else store_of(kind, folder, redis_url)]


def upstream(doings: Doings) -> Json:
    return {"up": {"server": doing_server(doings), "tool_prefix": ""}}


def ids(said: bytes) -> list[str]:
    """Return the event ids in a response."""
    return [one.decode() for one in re.findall(rb"^id: ([^\r\n]+)", said, re.MULTILINE)]


def tool_call(name: str, key: int | str = 7, **arguments: Any) -> bytes:
    return message("tools/call", key, name=name, arguments=arguments, _meta={"progressToken": "p"})


@asynccontextmanager
async def back(client: OldClient, url: str, event: str) -> AsyncGenerator[SocketStream]:
    """Come back for what follows an event."""
    other = OldClient()
    other.headers = {**client.headers, "Last-Event-ID": event}
    async with other.opened(url, "GET") as stream:
        yield stream


async def until_closed(stream: SocketStream) -> bytes:
    """Read until the response has ended."""
    said = b""
    with anyio.fail_after(30):
        while not said.endswith(b"0\r\n\r\n"):
            try:
                said += await stream.receive()
            except anyio.EndOfStream:
                break
    return said


def messages(said: bytes) -> list[Json]:
    """Return the messages in what was read of a chunked stream."""
    lines = said.decode().splitlines()
    return [json.loads(line[5:]) for line in lines if line.startswith("data:") and line[5:].strip()]


@STORES
async def test_what_was_missed_and_what_comes_is_read_at_another_replica(
    kind: str, tmp_path: Path, redis_url: str
) -> None:
    client, doings = OldClient(), Doings()
    async with replicas(upstream(doings), stores=two_stores(kind, tmp_path, redis_url)) as (here, there):
        await client.begin(here)
        async with client.opened(here, "POST", tool_call("report")) as stream:
            first, *_ = ids(await read_until(stream, b"notifications/progress"))
        async with back(client, there, first) as stream:
            missed = await read_until(stream, b"notifications/progress")
            doings.release.set()
            said = missed + await until_closed(stream)
        async with back(client, there, ids(said)[0]) as stream:
            later = await until_closed(stream)
        async with back(client, here, ids(said)[0]) as stream:
            at_home = await until_closed(stream)

    assert not doings.cancelled.is_set()
    assert [one.get("method", one.get("id")) for one in messages(said)] == ["notifications/progress", 7]
    assert messages(said)[-1]["result"]["content"][0]["text"] == "released"
    assert [one["id"] for one in messages(later)] == [7]
    assert messages(at_home) == messages(later)


async def test_a_call_that_says_nothing_for_a_moment_can_be_come_back_for() -> None:
    client, doings, store = OldClient(), Doings(), MemoryStore()
    async with replicas(upstream(doings), stores=[store, store]) as (here, there):
        await client.begin(here)
        async with client.opened(here, "POST", message("tools/call", "é", name="wait", arguments={})) as stream:
            (first,) = ids(await read_until(stream, b"data: "))
        doings.release.set()
        async with back(client, there, first) as stream:
            (answer,) = messages(await until_closed(stream))
        quick = await client.post(here, message("tools/call", 8, name="add", arguments={"a": 1, "b": 2}))

    assert answer["id"] == "é"
    assert answer["result"]["content"][0]["text"] == "released"
    assert quick.headers["content-type"] == "application/json"


async def test_older_clients_get_no_event_that_they_cannot_read() -> None:
    client, doings, store = OldClient(), Doings(), MemoryStore()
    async with replicas(upstream(doings), stores=[store, store]) as (here, there):
        info: Json = {"name": "c", "version": "1"}
        params: Json = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        begun = await exchange(here, headers=client.headers, body=message("initialize", 1, **params))
        client.headers |= {"Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
        async with client.opened(here, "POST", tool_call("report")) as stream:
            said = await read_until(stream, b"notifications/progress")
        doings.release.set()
        async with back(client, there, ids(said)[-1]) as stream:
            (answer,) = messages(await until_closed(stream))

    assert re.search(rb"data: *\r\n", said) is None
    assert answer["result"]["content"][0]["text"] == "released"


async def test_what_is_asked_after_the_cut_is_asked_and_answered_at_another_replica() -> None:
    server, asks = create_mcp_server(name="asking"), anyio.Event()

    @server.tool
    async def greet(ctx: CallContext) -> str:
        await ctx.progress(1)
        await asks.wait()
        answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"{answer.action} {(answer.content or {}).get('name')}"

    client, store = OldClient(), MemoryStore()
    async with replicas({"up": {"server": server, "tool_prefix": ""}}, stores=[store, store]) as (here, there):
        await client.begin(here, elicitation={})
        async with client.opened(here, "POST", tool_call("greet")) as stream:
            first = ids(await read_until(stream, b"notifications/progress"))[-1]
        asks.set()
        async with back(client, there, first) as stream:
            (question,) = messages(await read_until(stream, b"requestedSchema"))
            answer = {"jsonrpc": "2.0", "id": question["id"]}
            answer["result"] = {"action": "accept", "content": {"name": "Ada"}}
            taken = await client.post(there, json.dumps(answer).encode())
            said = messages(await until_closed(stream))

    assert taken.status == 202
    assert said[-1]["result"]["content"][0]["text"] == "accept Ada"


async def test_the_events_of_a_session_are_for_that_session_alone_at_every_replica() -> None:
    ann, eve, doings, store = OldClient(), OldClient(), Doings(), MemoryStore()
    async with replicas(upstream(doings), stores=[store, store]) as (here, there):
        await ann.begin(here)
        await eve.begin(here)
        doings.release.set()
        events_of = list[str]()
        for client in (ann, eve):
            async with client.opened(here, "POST", tool_call("report")) as stream:
                events_of.append(ids(await until_closed(stream))[0])
        own, known = events_of
        forged = f"{known.partition('.')[0]}.{own.partition('.')[2]}"
        said = list[bytes]()
        for event in (own, own.partition(".")[2], forged, "nobody.7", f"{known.partition('.')[0]}.x~1.2"):
            async with back(eve, there, event) as stream:
                said.append(await until_closed(stream))
        async with back(ann, there, own) as stream:
            hers = await until_closed(stream)

    assert b"released" in hers
    assert all(b"released" not in one for one in said)
    assert [messages(one) for one in said[:2]] == [[], []]
    (lost,) = messages(said[2])  # an event of her own session that is not kept
    assert (lost["id"], lost["error"]["code"]) == (7, -32603)
    assert "not kept any more" in lost["error"]["message"]


async def test_what_changed_while_nobody_listened_is_said_to_have_changed() -> None:
    server = create_mcp_server(name="changing")

    @server.resource("state://now", name="now")
    def now() -> str:
        return "now"

    client, store = OldClient(), MemoryStore()
    async with replicas({"up": {"server": server, "tool_prefix": ""}}, stores=[store, store]) as (here, there):
        await client.begin(here)
        assert "result" in await client.ask(here, "resources/subscribe", uri="state://now")
        async with client.opened(here, "GET") as stream:
            (event,) = ids(await read_until(stream, b"data: "))
        async with back(client, there, event) as stream:
            said = await read_until(stream, b"state://now")
            async with client.opened(there, "GET") as another:
                second = await read_until(another, b"\r\n\r\n")

    assert b"notifications/tools/list_changed" in said
    assert b"notifications/resources/list_changed" in said
    assert b" 409 " in second


@pytest.mark.slow
async def test_a_call_whose_replica_is_gone_has_an_unknown_outcome() -> None:
    client, doings, store = OldClient(), Doings(), MemoryStore()

    def replica() -> Any:
        return create_gateway(upstream(doings), state_keys=KEYS, replicas=Replicas(store, KEYS))

    async with served_http(replica()) as there:
        async with served_http(replica(), limits=HttpLimits(shutdown_seconds=1)) as here:
            await client.begin(here)
            async with client.opened(here, "POST", tool_call("report")) as stream:
                first = ids(await read_until(stream, b"notifications/progress"))[0]
        async with back(client, there, first) as stream:
            progress, last = messages(await until_closed(stream))

    assert progress["method"] == "notifications/progress"
    assert last["id"] == 7
    assert "error" in last


@pytest.mark.slow
@pytest.mark.parametrize("change", ["nonsense", "a copy of another", "a gap"])
async def test_events_that_were_changed_in_the_store_are_not_sent_and_the_answer_is_lost(change: str) -> None:
    client, doings, store = OldClient(), Doings(), MemoryStore()
    doings.release.set()

    def replica() -> Any:
        return create_gateway(upstream(doings), state_keys=KEYS, replicas=Replicas(store, KEYS))

    async with served_http(replica()) as there:
        async with served_http(replica(), limits=HttpLimits(shutdown_seconds=1)) as here:
            await client.begin(here)
            async with client.opened(here, "POST", tool_call("report")) as stream:
                first = ids(await until_closed(stream))[0]
        kept = [one async for one in iter_documents(store, "gateway-events")]
        *_, progress, last = sorted(kept, key=lambda one: one.key)
        if change == "a gap":
            await store.delete("gateway-events", progress.key)
        else:
            await store.put("gateway-events", last.key, change if change == "nonsense" else progress.value)
        async with back(client, there, first) as stream:
            said = messages(await until_closed(stream))

    assert [one.get("method") for one in said[:-1]] == ([] if change == "a gap" else ["notifications/progress"])
    assert said[-1]["id"] == 7
    assert "the outcome is unknown" in said[-1]["error"]["message"]


# three processes and a Redis


@pytest.mark.slow
async def test_replicas_that_are_processes_go_on_with_a_cut_response_and_tell_of_one_that_died(
    tmp_path: Path, redis_url: str
) -> None:
    with fleet_of(tmp_path, redis_url) as fleet, anyio.fail_after(120):
        await a_cut_response_is_read_elsewhere(fleet, as_principal("steady"))
        await a_replica_dies_while_it_answers(fleet, as_principal("steady"))


async def a_cut_response_is_read_elsewhere(fleet: Fleet, headers: Mapping[str, str]) -> None:
    client = OldClient(dict(headers))
    await client.begin(fleet.urls[0])
    for server in ("legacy", "modern"):
        call = tool_call(f"{server}_work", id=f"cut-{server}", seconds=2)
        async with client.opened(fleet.urls[0], "POST", call) as stream:
            first = ids(await read_until(stream, b"data: "))[0]
        async with back(client, fleet.urls[1], first) as stream:
            said = messages(await until_closed(stream))
        assert said[-1]["result"]["content"][0]["text"].split()[1] == f"cut-{server}"
        assert fleet.executed()[f"cut-{server}"] == 1


async def a_replica_dies_while_it_answers(fleet: Fleet, headers: Mapping[str, str]) -> None:
    client = OldClient(dict(headers))
    await client.begin(fleet.urls[0])
    async with client.opened(fleet.urls[0], "POST", tool_call("legacy_work", id="dead", seconds=30)) as stream:
        first = ids(await read_until(stream, b"data: "))[0]
        await anyio.to_thread.run_sync(fleet.kill, 0)
    async with back(client, fleet.urls[2], first) as stream:
        said = messages(await until_closed(stream))
    again = await client.call(fleet.urls[1], "legacy_again", 9, id="after")

    assert said[-1]["id"] == 7
    assert said[-1]["error"]["code"] == -32603
    assert UNKNOWN in said[-1]["error"]["message"]
    assert again["result"]["content"][0]["text"].split()[1] == "after"
