"""Sessions of older clients that any replica goes on with: what an id is good for, what replicas tell each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.gateway.scale.replicas import (
    KEYS,
    OTHER_KEYS,
    STORES,
    Json,
    OldClient,
    message,
    replicas,
    store_of,
)
from tests.serve.exchanges import events, exchange, read_until
from tests.serve.offered import Doings, doing_server
from toolweave import CallContext, create_mcp_server
from toolweave.gateway import Replicas, create_gateway
from toolweave.gateway._replicas.shared_sessions import SealedSessions
from toolweave.protocol.jsonrpc import StrictMessage
from toolweave.serve import BearerAuth, Client, HttpLimits, McpServer
from toolweave.state import MemoryStore

pytestmark = pytest.mark.anyio

ADA, BOB, NEWER = "ada-" + "a" * 20, "bob-" + "b" * 20, "ada-" + "n" * 20


def upstream(doings: Doings | None = None) -> Json:
    return {"up": {"server": doing_server(doings), "tool_prefix": ""}}


def sum_of(answer: Json) -> str:
    return answer["result"]["content"][0]["text"]


async def test_every_replica_with_the_keys_goes_on_with_a_session_without_any_store() -> None:
    client = OldClient()
    async with replicas(upstream(), count=3) as urls:
        await client.begin(urls[0])
        sums = [sum_of(await client.call(url, "add", a=number, b=1)) for number, url in enumerate(urls)]
        listed = await client.ask(urls[2], "tools/list")

    assert sums == ["1", "2", "3"]
    assert "add" in [one["name"] for one in listed["result"]["tools"]]


async def test_an_older_key_is_good_for_the_sessions_that_began_with_it() -> None:
    client = OldClient()
    async with replicas(upstream(), keys=[KEYS, (*OTHER_KEYS, *KEYS)]) as (before, after):
        await client.begin(before)
        assert sum_of(await client.call(after, "add", a=1, b=1)) == "2"
        newer = OldClient()
        await newer.begin(after)
        refused = await newer.post(before, message("ping"))

    assert refused.status == 404


@pytest.mark.parametrize("other", [OTHER_KEYS, None], ids=["other keys", "no keys"])
async def test_a_replica_without_the_keys_knows_no_session_of_the_others(other: Any) -> None:
    client = OldClient()
    async with replicas(upstream(), keys=[KEYS, other]) as (here, there):
        await client.begin(here)
        assert (await client.post(there, message("ping"))).status == 404


async def test_a_session_is_of_one_principal_and_of_one_endpoint_at_every_replica() -> None:
    ada, bob = OldClient({"Authorization": f"Bearer {ADA}"}), OldClient({"Authorization": f"Bearer {BOB}"})
    auth = BearerAuth(tokens={ADA: "ada", BOB: "bob"})
    async with replicas(upstream(), http={"auth": auth}) as (here, there):
        await ada.begin(here)
        bob.headers |= {name: ada.headers[name] for name in ("Mcp-Session-Id", "MCP-Protocol-Version")}
        own, foreign = [(await one.post(there, message("ping"))).status for one in (ada, bob)]
        known = (await bob.post(here, message("ping"))).status
    elsewhere = OldClient({"Authorization": f"Bearer {ADA}"})
    elsewhere.headers |= ada.headers
    async with replicas(upstream(), count=1, http={"auth": auth, "path": "/other"}) as (url,):
        other_path = (await elsewhere.post(url, message("ping"))).status

    assert (own, foreign, known, other_path) == (200, 404, 404, 404)


async def test_a_session_ends_with_its_token_at_every_replica_and_goes_on_with_another_of_its_principal() -> None:
    known = {ADA: "ada", BOB: "bob", NEWER: "ada"}

    async def verify(token: str) -> str | None:
        return known.get(token)

    ada, bob = OldClient({"Authorization": f"Bearer {ADA}"}), OldClient({"Authorization": f"Bearer {BOB}"})
    async with replicas(upstream(), count=3, http={"auth": BearerAuth(verify)}) as urls:
        for client in (ada, bob):
            await client.begin(urls[0])
            assert {(await client.post(url, message("ping"))).status for url in urls} == {200}
        del known[ADA]
        revoked = {(await ada.post(url, message("ping"))).status for url in urls}
        others = {(await bob.post(url, message("ping"))).status for url in urls}
        ada.headers["Authorization"] = f"Bearer {NEWER}"
        newer = {(await ada.post(url, message("ping"))).status for url in urls}

    assert (revoked, others, newer) == ({401}, {200}, {200})


async def test_an_id_that_was_changed_in_any_place_is_none() -> None:
    client = OldClient()
    async with replicas(upstream()) as (here, there):
        await client.begin(here)
        good = client.headers["Mcp-Session-Id"]
        changed = [
            good[:place] + ("A" if good[place] != "A" else "B") + good[place + 1 :] for place in range(len(good))
        ]
        statuses = set[int]()
        for one in [*changed[::7], changed[-1], good + "A", good + "=", good[:-1], "s1." + good, "é"]:
            client.headers["Mcp-Session-Id"] = one
            statuses.add((await client.post(there, message("ping"))).status)
        client.headers["Mcp-Session-Id"] = good
        assert (await client.post(there, message("ping"))).status == 200

    assert statuses == {404}
    assert good.isascii()
    assert good.isprintable()


async def test_a_client_that_says_too_much_of_itself_is_told() -> None:
    client = OldClient()
    async with replicas(upstream(), count=1) as (url,):
        long: Json = {"experimental": {"x" * 3_000: {"y": "z" * 3_000}}}
        body = message(
            "initialize", 1, protocolVersion="2025-11-25", capabilities=long, clientInfo={"name": "a", "version": "1"}
        )
        refused = await exchange(url, headers=client.headers, body=body)
        icons: Json = {"name": "old", "version": "1", "icons": [{"src": "data:," + "i" * 8_000}]}
        body = message("initialize", 1, protocolVersion="2025-11-25", capabilities={}, clientInfo=icons)
        taken = await exchange(url, headers=client.headers, body=body)

    assert refused.json()["error"]["code"] == -32602
    assert "mcp-session-id" not in refused.headers
    assert len(taken.headers["mcp-session-id"]) < 1_000


async def test_a_full_table_makes_room_since_every_session_can_come_back() -> None:
    clients = [OldClient() for _ in range(4)]
    limits = HttpLimits(sessions=2, shutdown_seconds=2)
    async with replicas(upstream(), count=1, http={"limits": limits}) as (url,):
        for client in clients:
            await client.begin(url)
        sums = [sum_of(await client.call(url, "add", a=1, b=2)) for client in clients]

    assert sums == ["3"] * 4


async def test_the_id_of_a_session_is_good_for_seven_days() -> None:
    now = 1_000_000_000.0
    client = Client(version="2025-11-25", conversation="one")
    session_id = SealedSessions(KEYS, clock=lambda: now).issue(client, "/mcp")

    last = SealedSessions(KEYS, clock=lambda: now + 7 * 86_400)
    later = SealedSessions(KEYS, clock=lambda: now + 7 * 86_400 + 1)

    restored = await last.restore(session_id, None, "/mcp")
    assert restored is not None
    assert restored.client.conversation == "one"
    assert await later.restore(session_id, None, "/mcp") is None


async def test_a_session_that_has_ended_is_gone_where_that_is_known() -> None:
    client = OldClient()
    async with replicas(upstream()) as (here, there):
        await client.begin(here)
        ended = await client.end(here)
        statuses = [(await client.post(url, message("ping"))).status for url in (here, there)]

    assert ended == 200
    assert statuses == [404, 200]  # nothing is shared but keys


async def test_the_end_of_a_session_is_known_until_a_hundred_thousand_others_have_ended() -> None:
    sessions = SealedSessions(KEYS)
    ended = sessions.issue(Client(version="2025-11-25", conversation="one"), "/mcp")
    await sessions.end(ended)
    for number in range(99_999):
        await sessions.end(f"session {number}")
    known = await sessions.restore(ended, None, "/mcp")
    await sessions.end("session 99,999")
    forgotten = await sessions.restore(ended, None, "/mcp")

    assert known is None
    assert forgotten is not None


# with a store


@STORES
async def test_a_session_that_has_ended_is_gone_everywhere(kind: str, tmp_path: Path, redis_url: str) -> None:
    one = store_of(kind, tmp_path, redis_url)
    stores = [one, one if kind == "memory" else store_of(kind, tmp_path, redis_url)]
    known, unknown = OldClient(), OldClient()
    async with replicas(upstream(), stores=stores) as (here, there):
        await known.begin(here)
        await unknown.begin(here)
        assert (await known.post(there, message("ping"))).status == 200
        assert [await known.end(here), await unknown.end(here)] == [200, 200]
        first = (await unknown.post(there, message("ping"))).status
        with anyio.fail_after(30):
            while (await known.post(there, message("ping"))).status == 200:
                await anyio.sleep(0.05)

    assert first == 404


def logging_server() -> McpServer:
    server = create_mcp_server(name="logs", logging=True)

    @server.tool
    async def work(ctx: CallContext) -> str:
        await ctx.log("debug", "fine detail")
        await ctx.log("error", "bad news")
        return "done"

    return server


async def levels(client: OldClient, url: str) -> list[str]:
    answer = await client.post(url, message("tools/call", 3, name="work", arguments={}))
    said = events(answer.body)
    return [one["params"]["level"] for one in said if one.get("method") == "notifications/message"]


@pytest.mark.slow
@STORES
async def test_a_log_level_counts_at_every_replica(kind: str, tmp_path: Path, redis_url: str) -> None:
    one = store_of(kind, tmp_path, redis_url)
    stores = [one, one if kind == "memory" else store_of(kind, tmp_path, redis_url)]
    client = OldClient()
    async with replicas({"up": {"server": logging_server(), "tool_prefix": ""}}, stores=stores) as (here, there):
        await client.begin(here)
        before = await levels(client, here)
        await client.ask(here, "logging/setLevel", level="debug")
        restored = await levels(client, there)
        await client.ask(here, "logging/setLevel", level="critical")
        with anyio.fail_after(30):
            while await levels(client, there):
                await anyio.sleep(0.05)

    assert (before, restored) == ([], ["debug", "error"])


def asking_server() -> McpServer:
    server = create_mcp_server(name="asking")

    @server.tool
    async def greet(ctx: CallContext) -> str:
        answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"{answer.action} {(answer.content or {}).get('name')}"

    return server


@STORES
async def test_an_answer_finds_the_replica_that_asked(kind: str, tmp_path: Path, redis_url: str) -> None:
    one = store_of(kind, tmp_path, redis_url)
    stores = [one, one if kind == "memory" else store_of(kind, tmp_path, redis_url)]
    client = OldClient()
    async with replicas({"up": {"server": asking_server(), "tool_prefix": ""}}, stores=stores) as (here, there):
        await client.begin(here, elicitation={})
        for asking, answering in ((here, there), (there, here)):
            call = message("tools/call", 7, name="greet", arguments={})
            async with client.opened(asking, "POST", call) as stream:
                asked = await read_until(stream, b"elicitation/create")
                (question,) = [one for one in events(asked.partition(b"\r\n\r\n")[2]) if "method" in one]
                answer = {"jsonrpc": "2.0", "id": question["id"]}
                answer["result"] = {"action": "accept", "content": {"name": "Ada"}}
                taken = await client.post(answering, json.dumps(answer).encode())
                said = await read_until(stream, b"accept Ada")
            assert taken.status == 202
            assert b"accept Ada" in said


@STORES
async def test_a_cancellation_finds_the_replica_that_works(kind: str, tmp_path: Path, redis_url: str) -> None:
    one = store_of(kind, tmp_path, redis_url)
    stores = [one, one if kind == "memory" else store_of(kind, tmp_path, redis_url)]
    client, doings = OldClient(), Doings()
    async with replicas(upstream(doings), stores=stores) as (here, there):
        await client.begin(here)
        async with client.opened(here, "POST", message("tools/call", 9, name="wait", arguments={})):
            with anyio.fail_after(30):
                await doings.started.wait()
                told = await client.post(there, message("notifications/cancelled", None, requestId=9))
                await doings.cancelled.wait()

    assert told.status == 202


@pytest.mark.slow
async def test_a_subscription_reaches_the_stream_at_another_replica(tmp_path: Path) -> None:
    server = create_mcp_server(name="changing")

    @server.resource("state://now", name="now")
    def now() -> str:
        return "now"

    client, store = OldClient(), MemoryStore()
    async with replicas({"up": {"server": server, "tool_prefix": ""}}, stores=[store, store]) as (here, there):
        await client.begin(here)
        async with client.opened(there, "GET") as stream:
            await read_until(stream, b": open")
            answer = await client.ask(here, "resources/subscribe", uri="state://now")
            assert "result" in answer, answer
            said = b""
            with anyio.fail_after(30):
                while b"resources/updated" not in said:
                    server.changes.resource_updated("state://now")
                    with anyio.move_on_after(0.2):
                        said += await stream.receive()

    assert b"state://now" in said


async def test_what_a_session_is_subscribed_to_is_known_after_its_replica_has_ended() -> None:
    server = create_mcp_server(name="changing")

    @server.resource("state://one", name="one")
    def one() -> str:
        return "one"

    @server.resource("state://two", name="two")
    def two() -> str:
        return "two"

    client, store = OldClient(), MemoryStore()
    source: Json = {"up": {"server": server, "tool_prefix": ""}}
    async with replicas(source, count=1, stores=[store]) as (there,):
        async with replicas(source, count=1, stores=[store]) as (here,):
            await client.begin(here)
            for uri in ("state://one", "state://two"):
                assert "result" in await client.ask(here, "resources/subscribe", uri=uri)
            assert "result" in await client.ask(here, "resources/unsubscribe", uri="state://two")
        async with client.opened(there, "GET") as stream:
            await read_until(stream, b": open")
            said = b""
            with anyio.fail_after(30):
                while b"resources/updated" not in said:
                    server.changes.resource_updated("state://two")
                    server.changes.resource_updated("state://one")
                    with anyio.move_on_after(0.2):
                        said += await stream.receive()

    assert b"state://one" in said
    assert b"state://two" not in said


class MeetingStore(MemoryStore):
    """A store whose first two readers read before either writes."""

    def __init__(self) -> None:
        super().__init__()
        self.readers = 0
        self.both = anyio.Event()

    async def get(self, collection: str, key: str) -> Any:
        """Read a document, and wait for the other reader."""
        found = await super().get(collection, key)
        self.readers += 1
        if self.readers == 2:
            self.both.set()
        await self.both.wait()
        return found


def subscription(uri: str) -> StrictMessage:
    return StrictMessage(jsonrpc="2.0", id=1, method="resources/subscribe", params={"uri": uri})


async def test_what_two_replicas_note_of_a_session_at_once_is_both_known() -> None:
    store = MeetingStore()
    uris = {"state://one", "state://two"}
    with anyio.fail_after(30):
        async with store:
            sessions = [SealedSessions(KEYS, Replicas(store, KEYS)) for _ in uris]
            session_id = sessions[0].issue(Client(version="2025-11-25", conversation="one"), "/mcp")
            async with anyio.create_task_group() as tasks:
                for replica, uri in zip(sessions, uris, strict=True):
                    tasks.start_soon(replica.remember, session_id, subscription(uri))
            restored = await sessions[0].restore(session_id, None, "/mcp")

    assert restored is not None
    assert {one.params["uri"] for one in restored.memory if isinstance(one.params, dict)} == uris


async def test_a_session_that_has_ended_is_not_revived_by_a_replica_that_does_not_know_it() -> None:
    async with MemoryStore() as store:
        here, there, later = (SealedSessions(KEYS, Replicas(store, KEYS)) for _ in range(3))
        session_id = here.issue(Client(version="2025-11-25", conversation="one"), "/mcp")
        assert await later.restore(session_id, None, "/mcp") is not None
        await here.end(session_id)
        await there.remember(session_id, subscription("state://one"))
        restored = await later.restore(session_id, None, "/mcp")

    assert restored is None


@pytest.mark.slow
async def test_of_more_subscriptions_than_a_session_may_have_the_newest_are_known_to_every_replica() -> None:
    async with MemoryStore() as store:
        here, there = (SealedSessions(KEYS, Replicas(store, KEYS)) for _ in range(2))
        session_id = here.issue(Client(version="2025-11-25", conversation="one"), "/mcp")
        for number in range(1_001):
            await here.remember(session_id, subscription(f"state://{number}"))
        restored = await there.restore(session_id, None, "/mcp")

    assert restored is not None
    uris = [one.params["uri"] for one in restored.memory if isinstance(one.params, dict)]
    assert (len(uris), uris[0], uris[-1]) == (1_000, "state://1", "state://1000")


def test_replicas_that_share_a_store_need_keys() -> None:
    with pytest.raises(ValueError, match="state_keys"):
        create_gateway({}, replicas=Replicas(MemoryStore(), KEYS))
