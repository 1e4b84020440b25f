"""Replicas of `toolweave serve` that share a key go on with each other's questions; others refuse to."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.served import serving

pytestmark = pytest.mark.slow

Json = dict[str, Any]

PAYS = """
from toolweave import tool
from toolweave.tools import CallContext

@tool
async def pay(ctx: CallContext, amount: int) -> str:
    "Pay, after two questions."
    sure = await ctx.elicit(f"Pay {amount}?")
    code = await ctx.elicit("Code?", {"type": "object", "properties": {"code": {"type": "string"}}})
    return f"{sure.action} {amount} {(code.content or {}).get('code')}"
"""
KEY, OTHER = "k" * 32, "o" * 32
META = "io.modelcontextprotocol/"


@pytest.fixture
def code(folder: Path) -> Path:
    file = folder / "pays.py"
    file.write_text(PAYS)
    return file


@contextmanager
def replicas(code: Path, *keys: str, more: tuple[str, ...] = ()) -> Generator[list[str], None, None]:
    """Serve the same code once for each of these variables, on ports of their own; yields the addresses."""
    with ExitStack() as stack:
        args = (f"{code}:pay", "--state-keys-env", "PAYS_KEYS", *more)
        served = [stack.enter_context(serving(*args, env={"PAYS_KEYS": key})) for key in keys]
        yield [said["url"] for said, _ in served]


def called(url: str, **more: Any) -> Json:
    """Call `pay` of one replica, as a client of 2026-07-28 would that has no other; return the whole answer."""
    meta: Json = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {"elicitation": {}}}
    params: Json = {"name": "pay", "arguments": {"amount": 5}, "_meta": meta, **more}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "pay"}
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as refused:
        text = refused.read().decode()
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return json.loads(lines[-1] if lines else text)


def answer(asked: Json, content: Json) -> Json:
    """Return what goes on with a call that was answered with a question."""
    result = asked["result"]
    assert result["resultType"] == "input_required", asked
    (key,) = result["inputRequests"]
    return {
        "inputResponses": {key: {"action": "accept", "content": content}},
        "requestState": result["requestState"],
    }


@pytest.mark.requirement("C21")
@pytest.mark.parametrize("more", [(), ("--stateless",)], ids=["sessions", "stateless"])
def test_a_question_of_one_replica_is_answered_at_the_other(code: Path, more: tuple[str, ...]) -> None:
    with replicas(code, KEY, KEY, more=more) as (one, other):
        second = called(other, **answer(called(one), {}))
        third = called(one, **answer(second, {"code": "42"}))

    assert third["result"]["content"][0]["text"] == "accept 5 42"


def test_a_key_can_be_replaced_while_questions_are_open(code: Path) -> None:
    with replicas(code, KEY, f"{OTHER} {KEY}", OTHER) as (before, meanwhile, after):
        second = called(meanwhile, **answer(called(before), {}))
        third = called(after, **answer(second, {"code": "42"}))

    assert third["result"]["content"][0]["text"] == "accept 5 42"


def test_a_replica_with_another_key_refuses_to_go_on_and_says_what_is_wrong(code: Path) -> None:
    with replicas(code, KEY, OTHER) as (one, other):
        refused = called(other, **answer(called(one), {}))

    assert refused["error"]["code"] == -32602
    assert "not sealed with a key of this server" in refused["error"]["message"]
    assert "replicas have to share their request_state_keys" in refused["error"]["message"]
    assert KEY not in json.dumps(refused)
    assert OTHER not in json.dumps(refused)
