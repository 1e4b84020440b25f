"""Answers of clients that are nearly right: the handler that asked gets what is meant, and nobody waits for ever."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from tests.serve.exchanges import BOTH, events, exchange, opened, read_until
from tests.serve.raw import LEGACY, raw_client
from tests.serve.serving import served_http
from toolweave import tool
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext, Elicitation, Sampling

CAPABILITIES: dict[str, Any] = {"sampling": {}, "elicitation": {}}
FORM = {"type": "object", "properties": {"n": {"type": "integer"}}}
READ = [
    ("sampled", '{"role": "assistant", "content": {"type": "text", "text": "W"}, "model": "m"}', "W of m"),
    ("sampled", '{"role": "assistant", "content": "W", "model": "m"}', "W of m"),
    ("sampled", '{"role": "assistant", "content": ["W"], "model": "m"}', "W of m"),
    ("sampled", '{"role": "assistant", "content": {"text": "W"}, "model": "m"}', "W of m"),
    ("sampled", '{"role": "assistant", "content": {"type": "text", "text": "W"}}', "W of unknown"),
    ("sampled", '{"role": "assistant", "content": {"type": "text", "text": "W"}, "model": null}', "W of unknown"),
    ("sampled", '{"role": "assistant", "content": {"type": "text", "text": "W\\ud83d"}, "model": "m"}', "W\ufffd of m"),
    ("sampled", '{"role": "assistant", "content": {"type": "text", "text": "W"}, "model": "m", "x": NaN}', "W of m"),
    ("agreed", '{"action": "accept", "content": {"n": 1}, "note": "\\ud83d"}', "accept"),
    ("agreed", '{"action": "decline", "content": null, "at": 1e999}', "decline"),
]
MALFORMED = "the client's answer is malformed"
REFUSED = [
    ("sampled", "{}", MALFORMED),
    ("sampled", '{"content": null, "model": "m"}', MALFORMED),
    ("sampled", '{"content": [], "model": "m"}', MALFORMED),
    ("agreed", '{"action": "\\ud83d"}', MALFORMED),
    ("agreed", '{"action": "accept", "content": {"n": NaN}}', "does not fit the form"),
]


@tool
async def sampled(ctx: CallContext) -> str:
    """Ask the client's model."""
    answers = await ctx.ask(it=Sampling("Which?", max_tokens=5))
    return f"{answers['it'].text} of {answers['it'].model}"


@tool
async def agreed(ctx: CallContext) -> str:
    """Ask the user."""
    answers = await ctx.ask(it=Elicitation("Go?", FORM))
    return answers["it"].action


def asking() -> McpServer:
    return create_mcp_server(name="asks", version="1", tools=[sampled, agreed])


def answer_to(asked: dict[str, Any], result: str) -> bytes:
    """Return an answer whose result is sent as it is written."""
    return b'{"jsonrpc": "2.0", "id": %s, "result": %s}' % (json.dumps(asked["id"]).encode(), result.encode())


async def outcome_over_http(name: str, result: str) -> dict[str, Any]:
    """Return the result of a call whose question is answered so, by POST in its session."""
    offer = {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "clientInfo": {"name": "c", "version": "0"}}
    headers = {"Content-Type": "application/json", "Accept": BOTH}
    async with served_http(asking()) as url:
        begin = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": offer}).encode()
        begun = await exchange(url, headers=headers, body=begin)
        session = {**headers, "Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": LEGACY}
        await exchange(url, headers=session, body=b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        call = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name}}).encode()
        async with opened(url, "POST", session, call) as stream:
            said = await read_until(stream, b'"method"')
            (asked,) = events(said.partition(b"\r\n\r\n")[2])
            accepted = await exchange(url, headers=session, body=answer_to(asked, result))
            assert accepted.status == 202
            said = await read_until(stream, b'"content"')
    return events(said)[-1]["result"]


async def outcome_in_a_conversation(name: str, result: str) -> dict[str, Any]:
    """Return the result of a call whose question is answered so, in the messages of one carrier."""
    async with raw_client(asking()) as client:
        await client.shake_hands(LEGACY, **CAPABILITIES)
        with anyio.fail_after(20):
            await client.send(client.request("tools/call", {"name": name}, id="call"))
            await client.send(answer_to(await client.receive(), result))
            answer = await client.receive()
    return answer["result"]


@pytest.mark.parametrize("outcome", [outcome_over_http, outcome_in_a_conversation])
@pytest.mark.parametrize(("name", "result", "text"), READ)
async def test_an_answer_that_is_nearly_right_is_read_as_it_is_meant(
    outcome: Any, name: str, result: str, text: str
) -> None:
    given = await outcome(name, result)

    assert (given["content"][0]["text"], given.get("isError", False)) == (text, False)


@pytest.mark.parametrize("outcome", [outcome_over_http, outcome_in_a_conversation])
@pytest.mark.parametrize(("name", "result", "message"), REFUSED)
async def test_an_answer_that_means_nothing_fails_the_call_at_once(
    outcome: Any, name: str, result: str, message: str
) -> None:
    given = await outcome(name, result)

    assert given["isError"] is True
    assert message in given["content"][0]["text"]


async def test_a_request_that_is_nearly_json_is_still_refused() -> None:
    async with raw_client(asking(), LEGACY) as client:
        await client.send(b'{"jsonrpc": "2.0", "id": 9, "method": "ping", "params": {"x": NaN}}')
        refused = await client.receive()

    assert refused["error"]["code"] == -32700
