"""The sealed state that carries answers through the client: nobody changes it, moves it or keeps it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.clocks import Clock
from tests.serve.lines import Peer
from toolweave.errors import RequestError
from toolweave.serve import create_mcp_server
from toolweave.serve._request_state import StateSigner
from toolweave.serve.request import Json, Request
from toolweave.tools import CallContext

OLD = b"o" * 32
NEW = "n" * 32
ANSWERS = {"q": {"action": "accept", "content": {"name": "Ada"}}}


def call(principal: str | None = None, /, method: str = "tools/call", **params: Any) -> Request:
    return Peer(principal=principal).request(method, **({"name": "pay", "arguments": {"amount": 1}} | params))


def refused(seal: StateSigner, request: Request, state: object) -> RequestError:
    with pytest.raises(RequestError) as caught:
        seal.open(request, state)
    return caught.value


def test_a_state_brings_back_what_was_sealed() -> None:
    seal = StateSigner()

    assert seal.open(call(), seal.seal(call(), ANSWERS)) == ANSWERS


def test_what_differs_between_rounds_does_not_matter() -> None:
    seal = StateSigner()
    state = seal.seal(call(_meta={"progressToken": 1}), ANSWERS)

    assert seal.open(call(_meta={"progressToken": 2}, inputResponses={}, requestState=state), state) == ANSWERS


SEALED = StateSigner([OLD])
STATE = SEALED.seal(call(), ANSWERS)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(at=st.integers(0, len(STATE) - 1), put=st.characters(codec="utf-8"))
def test_a_state_with_one_character_changed_is_refused(at: int, put: str) -> None:
    changed = STATE[:at] + put + STATE[at + 1 :]

    if changed != STATE:
        assert refused(SEALED, call(), changed).code == -32602


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(state=st.one_of(st.text(), st.none(), st.integers(), st.dictionaries(st.text(), st.text())))
def test_anything_that_is_no_state_is_refused(state: object) -> None:
    assert refused(SEALED, call(), state).code == -32602


@pytest.mark.parametrize(
    "changed", [STATE + "-TAMPERED", STATE[:-1], STATE + "=", " " + STATE, STATE.partition(".")[0]]
)
def test_a_state_that_grew_or_shrank_is_refused(changed: str) -> None:
    assert refused(SEALED, call(), changed).code == -32602


@pytest.mark.parametrize(
    "other",
    [
        call(name="refund"),
        call(arguments={"amount": 1000}),
        call(arguments={}),
        call(task={}),
        call(method="prompts/get"),
        call("mallory"),
    ],
)
def test_a_state_is_of_no_use_for_another_request_or_another_principal(other: Request) -> None:
    assert refused(SEALED, other, STATE).code == -32602


def test_a_state_of_one_principal_is_of_no_use_to_another() -> None:
    seal = StateSigner()
    state = seal.seal(call("ada"), ANSWERS)

    assert seal.open(call("ada"), state) == ANSWERS
    assert refused(seal, call("mallory"), state).code == -32602
    assert refused(seal, call(), state).code == -32602


def test_a_state_expires() -> None:
    clock = Clock()
    seal = StateSigner(ttl=600, clock=clock)
    state = seal.seal(call(), ANSWERS)
    clock.now += 600

    assert seal.open(call(), state) == ANSWERS
    clock.now += 0.001
    assert "expired" in refused(seal, call(), state).message


def test_keys_can_be_rotated() -> None:
    before = StateSigner([OLD])
    meanwhile = StateSigner([NEW, OLD])
    after = StateSigner([NEW])
    old = before.seal(call(), ANSWERS)
    new = meanwhile.seal(call(), ANSWERS)

    assert meanwhile.open(call(), old) == ANSWERS
    assert after.open(call(), new) == ANSWERS
    assert refused(after, call(), old).code == -32602


def test_replicas_with_one_key_open_each_others_states_and_others_do_not() -> None:
    state = StateSigner([OLD]).seal(call(), ANSWERS)

    assert StateSigner([OLD]).open(call(), state) == ANSWERS
    assert refused(StateSigner(), call(), state).code == -32602


@pytest.mark.parametrize("keys", [[], [b"short"], ["n" * 31], [NEW, b""]])
def test_a_key_that_can_be_guessed_is_refused_when_the_server_is_made(keys: list[str | bytes]) -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        create_mcp_server(name="x", version="1", request_state_keys=keys)


async def pay(ctx: CallContext, amount: int) -> str:
    sure = await ctx.elicit(f"Pay {amount}?")
    code = await ctx.elicit("Code?", {"type": "object", "properties": {"code": {"type": "string"}}})
    return f"{sure.action} {amount} {(code.content or {}).get('code')}"


async def test_a_tampered_state_is_an_error_and_not_a_result() -> None:
    server = create_mcp_server(name="pays", version="1", tools=[pay])
    peer = Peer()
    asked = await peer.call(server, "pay", {"amount": 1})

    with pytest.raises(RequestError) as caught:
        await peer.call(server, "pay", {"amount": 1}, inputResponses={}, requestState=asked["requestState"] + "x")

    assert caught.value.code == -32602


async def test_consent_to_one_call_is_no_consent_to_another() -> None:
    server = create_mcp_server(name="pays", version="1", tools=[pay])
    peer = Peer()
    asked = await peer.call(server, "pay", {"amount": 1})
    (key,) = asked["inputRequests"]
    given: Json = {"inputResponses": {key: {"action": "accept"}}, "requestState": asked["requestState"]}
    consented = await peer.call(server, "pay", {"amount": 1}, **given)

    with pytest.raises(RequestError, match="not of this request"):
        await peer.call(server, "pay", {"amount": 1000}, requestState=consented["requestState"])


async def test_replicas_that_share_a_key_go_on_with_each_others_rounds() -> None:
    one, other = (create_mcp_server(name="pays", version="1", tools=[pay], request_state_keys=[NEW]) for _ in range(2))
    peer = Peer()
    first = await peer.call(one, "pay", {"amount": 1})
    (sure,) = first["inputRequests"]
    second = await peer.call(
        other, "pay", {"amount": 1}, inputResponses={sure: {"action": "accept"}}, requestState=first["requestState"]
    )
    (code,) = second["inputRequests"]

    third = await peer.call(
        one,
        "pay",
        {"amount": 1},
        inputResponses={code: {"action": "accept", "content": {"code": "42"}}},
        requestState=second["requestState"],
    )

    assert third["content"][0]["text"] == "accept 1 42"
    assert NEW not in repr(one)
