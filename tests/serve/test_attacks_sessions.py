"""Attacks on other people's sessions, rounds and answers: hijacked, killed, guessed, flooded, tampered, mixed up."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from tests.serve.exchanges import (
    Answer,
    call,
    connected,
    events,
    exchange,
    handshake,
    head,
)
from tests.serve.offered import doing_server
from tests.serve.serving import served_app, served_http
from toolweave import tool
from toolweave.serve import BearerAuth, MemoryEventStore, create_mcp_server
from toolweave.serve._http.app import HttpLimits
from toolweave.tools import CallContext

ALICE = {"Authorization": "Bearer alice-0123456789abcdef"}
MALLORY = {"Authorization": "Bearer mallory-0123456789abc"}
AUTH = BearerAuth(tokens={"alice-0123456789abcdef": "alice", "mallory-0123456789abc": "mallory"})
PING = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "ping"}).encode()


def message(tool_name: str, number: int = 2, **params: Any) -> bytes:
    given: dict[str, Any] = {"name": tool_name, "arguments": {}, **params}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": given}).encode()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_session_answers_only_the_principal_that_began_it(method: str) -> None:
    async with served_http(doing_server(), auth=AUTH) as url:
        _, session = await handshake(url, ALICE)
        body = PING if method == "POST" else b""
        stolen = await exchange(url, method, headers={**session, **MALLORY}, body=body)
        anonymous = await exchange(url, method, headers={**session, "Authorization": "-"}, body=body)
        owner = await exchange(url, headers=session, body=PING)

    assert (stolen.status, anonymous.status) == (404, 401)
    assert owner.status == 200, "and the session survives"


async def test_the_owner_ends_a_session_and_then_it_is_gone() -> None:
    async with served_http(doing_server(), auth=AUTH) as url:
        _, session = await handshake(url, ALICE)
        ended = await exchange(url, "DELETE", headers=session)
        after = await exchange(url, headers=session, body=PING)

    assert (ended.status, after.status) == (200, 404)


@pytest.mark.slow
async def test_session_ids_cannot_be_guessed() -> None:
    async with served_http(doing_server()) as url:
        ids = [(await handshake(url))[1]["Mcp-Session-Id"] for _ in range(30)]

    assert len(set(ids)) == 30
    assert all(len(one) >= 32 for one in ids)
    for position in range(32):
        if position not in (12, 16):  # the version and the variant of a UUID
            assert len({one[position] for one in ids}) > 3, "every other digit is random"


@pytest.mark.parametrize("session_id", ["", "1", "../../etc/passwd", "a" * 5000, "0" * 32])
async def test_a_session_id_that_was_made_up_is_no_session(session_id: str) -> None:
    async with served_http(doing_server()) as url:
        _, session = await handshake(url)
        answer = await exchange(url, headers={**session, "Mcp-Session-Id": session_id}, body=PING)

    assert answer.status in (400, 404)


async def first_event_id(url: str, headers: Mapping[str, str], body: bytes) -> str:
    answer = await exchange(url, headers=headers, body=body)
    ids = [line[3:].strip() for line in answer.body.decode().splitlines() if line.startswith("id:")]
    return ids[0]


async def replayed(url: str, session: Mapping[str, str], event_id: str) -> bytes:
    """Come back for the events after one; return all that was sent."""
    said = b""
    async with connected(url) as stream:
        await stream.send(head(url, "GET", {**session, "Last-Event-ID": event_id}))
        with anyio.move_on_after(1.5):
            while b"0\r\n\r\n" not in said and b'"result"' not in said:
                try:
                    said += await stream.receive()
                except anyio.EndOfStream:
                    break
    return said


async def test_the_events_of_a_session_are_replayed_to_that_session_only() -> None:
    async with served_http(doing_server(), event_store=MemoryEventStore(), retry_interval=10) as url:
        _, alice = await handshake(url)
        _, mallory = await handshake(url)
        begun = await first_event_id(url, alice, message("echo", arguments={"value": "for-alice"}))
        known = await first_event_id(url, mallory, message("echo", arguments={"value": "for-mallory"}))

        stolen = await replayed(url, mallory, begun)
        own = await replayed(url, alice, begun)
        bare = await replayed(url, mallory, begun.rpartition(".")[2])
        forged = await replayed(url, mallory, f"{known.rpartition('.')[0]}.{begun.rpartition('.')[2]}")

    assert b"for-alice" in own
    assert b"for-mallory" not in own, "streams of equal ids are not mixed up"
    assert b"for-alice" not in stolen + bare + forged


async def test_open_sessions_are_bounded_and_one_more_ends_the_one_that_is_unused_for_longest() -> None:
    limits = HttpLimits(sessions=3, shutdown_seconds=2)
    async with served_http(doing_server(), limits=limits) as url:
        for _ in range(10):
            await exchange(url, headers={"Content-Type": "application/json", "Accept": "*/*"}, body=PING)
        kept = [await handshake(url) for _ in range(3)]
        await exchange(url, headers=kept[0][1], body=PING)
        fourth, _ = await handshake(url)
        served = [await exchange(url, headers=headers, body=PING) for _, headers in kept]
        modern = await call(url, "add", {"a": 1, "b": 2})

    assert [answer.status for answer, _ in kept] == [200, 200, 200]
    assert (fourth.status, modern.status) == (200, 200)
    assert [answer.status for answer in served] == [200, 404, 200]


async def test_a_session_that_is_left_alone_is_forgotten() -> None:
    limits = HttpLimits(session_idle_seconds=0.2, shutdown_seconds=2)
    app = doing_server().asgi_app(limits=limits)
    async with served_app(app) as base:
        _, session = await handshake(base + app.path)
        while app.sessions:  # a request would give it its time anew
            await anyio.sleep(0.01)
        assert (await exchange(base + app.path, headers=session, body=PING)).status == 404


CAN_ASK: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}


@tool
async def transfer(ctx: CallContext, amount: int = 1) -> str:
    """Ask before money moves."""
    answer = await ctx.elicit(f"Send {amount}?", {"type": "object", "properties": {"sure": {"type": "boolean"}}})
    return f"sent {amount}: {answer.content}"


@tool
async def refund(ctx: CallContext, amount: int = 1) -> str:
    """Ask before money comes back."""
    answer = await ctx.elicit(f"Send {amount}?", {"type": "object", "properties": {"sure": {"type": "boolean"}}})
    return f"refunded {amount}: {answer.content}"


async def asked(url: str, headers: Mapping[str, str], amount: int = 1) -> dict[str, Any]:
    answer = await call(url, "transfer", {"amount": amount}, headers=headers, meta=CAN_ASK)
    result = answer.json()["result"]
    name = next(iter(result["inputRequests"]))
    return {
        "inputResponses": {name: {"action": "accept", "content": {"sure": True}}},
        "requestState": result["requestState"],
    }


def flipped(state: str, position: int) -> str:
    changed = "A" if state[position] != "A" else "B"
    return state[:position] + changed + state[position + 1 :]


async def retried(url: str, headers: Mapping[str, str], tool_name: str, amount: int, again: dict[str, Any]) -> Answer:
    return await call(url, tool_name, {"amount": amount}, headers=headers, meta=CAN_ASK, **again)


async def test_a_state_that_was_tampered_with_or_is_somebody_elses_is_refused() -> None:
    server = create_mcp_server(name="bank", version="1", tools=[transfer, refund])
    async with served_http(server, auth=AUTH) as url:
        again = await asked(url, ALICE)
        state: str = again["requestState"]
        forged = base64.urlsafe_b64encode(b'{"answers":{}}').decode()
        refused = {
            "another user": await retried(url, MALLORY, "transfer", 1, again),
            "another tool": await retried(url, ALICE, "refund", 1, again),
            "another amount": await retried(url, ALICE, "transfer", 1_000_000, again),
            "first letter": await retried(url, ALICE, "transfer", 1, {**again, "requestState": flipped(state, 0)}),
            "in the middle": await retried(
                url, ALICE, "transfer", 1, {**again, "requestState": flipped(state, len(state) // 2)}
            ),
            "cut": await retried(url, ALICE, "transfer", 1, {**again, "requestState": state[:-4]}),
            "made up": await retried(url, ALICE, "transfer", 1, {**again, "requestState": forged}),
            "empty": await retried(url, ALICE, "transfer", 1, {**again, "requestState": ""}),
        }
        right = await retried(url, ALICE, "transfer", 1, again)

    outcomes = {name: answer.json().get("error", {}).get("code") for name, answer in refused.items()}
    assert outcomes == dict.fromkeys(refused, -32602)
    assert right.json()["result"]["content"][0]["text"] == "sent 1: {'sure': True}"


@pytest.mark.slow
async def test_answers_of_clients_with_equal_ids_are_not_mixed_up() -> None:
    async with served_http(doing_server()) as url:
        got: dict[str, list[str]] = {}

        async def client(name: str) -> None:
            _, session = await handshake(url)
            got[name] = []
            for number in range(10):
                body = message("echo", number, arguments={"value": f"{name}-{number}"})
                answer = await exchange(url, headers=session, body=body)
                got[name].append(events(answer.body)[-1]["result"]["content"][0]["text"])
                modern = await call(url, "echo", {"value": f"{name}-{number}"})
                got[name].append(modern.json()["result"]["content"][0]["text"])

        async with anyio.create_task_group() as tasks:
            for index in range(8):
                tasks.start_soon(client, f"client-{index}")

    for name, texts in got.items():
        assert texts == [f"{name}-{number}" for number in range(10) for _ in (1, 2)]
