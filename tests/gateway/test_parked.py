"""Calls to legacy upstreams that wait for a modern caller: how they end, and who may go on with them."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import anyio
import pytest

from tests.gateway.relayed import Json, gateway_to, upstream
from tests.serve.talking import Talk, talking
from toolweave import CallContext, create_mcp_server
from toolweave.errors import RequestError

TEST_SECONDS = 60

CALL: Json = {"name": "elicit", "arguments": {}}
FORM: Json = {"action": "accept", "content": {"name": "Ada"}}


def said(result: Json) -> Json:
    return result.get("structuredContent") or json.loads(result["content"][0]["text"])


def answered(asked: Json, answer: Any = FORM) -> Json:
    """Return the same call with an answer to every question."""
    return {
        **CALL,
        "requestState": asked["requestState"],
        "inputResponses": dict.fromkeys(asked["inputRequests"], answer),
    }


async def refused(talk: Talk, params: Json) -> RequestError:
    with pytest.raises(RequestError) as caught:
        await talk.ask("tools/call", params)
    return caught.value


async def upstream_state(talk: Talk) -> Json:
    """Return what the upstream process of this caller's calls saw."""
    return said(await talk.ask("tools/call", {"name": "state", "arguments": {}}))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stdio-legacy", "http-legacy"])
async def test_the_question_of_a_running_call_is_the_result_and_its_answer_ends_the_call(kind: str) -> None:
    with upstream(kind) as config:
        async with talking(gateway_to(config)) as talk:
            asked = await talk.ask("tools/call", CALL)
            (question,) = asked["inputRequests"].values()
            result = await talk.ask("tools/call", answered(asked))
            calls = (await upstream_state(talk))["calls"]

    assert asked["resultType"] == "input_required"
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "Who are you?")
    assert said(result)["result"] == FORM
    assert calls["elicit"] == 1


async def test_a_repeated_answer_gets_the_same_result_and_the_tool_runs_once() -> None:
    with upstream("stdio-legacy") as config:
        async with talking(gateway_to(config)) as talk:
            asked = await talk.ask("tools/call", CALL)
            first = await talk.ask("tools/call", answered(asked))
            second = await talk.ask("tools/call", answered(asked))
            calls = (await upstream_state(talk))["calls"]

    assert first == second
    assert calls["elicit"] == 1


async def test_questions_that_are_left_open_are_asked_again() -> None:
    with upstream("stdio-legacy") as config:
        async with talking(gateway_to(config)) as talk:
            asked = await talk.ask("tools/call", CALL)
            again = await talk.ask("tools/call", {**CALL, "requestState": asked["requestState"], "inputResponses": {}})
            result = await talk.ask("tools/call", answered(again))

    assert again["inputRequests"] == asked["inputRequests"]
    assert said(result)["result"] == FORM


@pytest.mark.slow
async def test_a_call_whose_caller_does_not_come_back_ends_as_if_the_user_had_dismissed_the_form() -> None:
    with upstream("stdio-legacy") as config:
        async with talking(gateway_to(config, patience=0.3)) as talk:
            asked = await talk.ask("tools/call", CALL)
            while not (await upstream_state(talk))["answers"]:
                await anyio.sleep(0.05)
            error = await refused(talk, answered(asked))
            after = await upstream_state(talk)

    assert error.code == -32602
    assert "repeat the request" in error.message
    assert after["answers"][-1]["result"] == {"action": "cancel"}


async def test_a_retry_that_its_caller_breaks_off_ends_the_call_upstream() -> None:
    server = create_mcp_server(name="up", version="1")
    waits, ended = anyio.Event(), anyio.Event()

    @server.tool
    async def book(ctx: CallContext) -> str:
        await ctx.elicit("Where to?", {"type": "object", "properties": {}})
        waits.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return "never"

    async with talking(gateway_to({"server": server, "protocol": "legacy", "tool_prefix": ""})) as talk:
        asked = await talk.ask("tools/call", {"name": "book", "arguments": {}})
        again = {**answered(asked), "name": "book"}
        number = await talk.send("tools/call", again)
        await waits.wait()
        assert not ended.is_set()
        await talk.notify("notifications/cancelled", {"requestId": number})
        await ended.wait()
        assert (await refused(talk, again)).code == -32602


async def test_a_call_whose_upstream_dies_while_it_waits_says_so() -> None:
    with ExitStack() as running:
        config = running.enter_context(upstream("http-legacy"))
        async with talking(gateway_to(config)) as talk:
            asked = await talk.ask("tools/call", CALL)
            running.close()
            result = await talk.ask("tools/call", answered(asked))

    assert result["isError"]
    assert result["_meta"]["io.toolweave/error"]["kind"] == "outcome_unknown"


@pytest.mark.slow
async def test_no_more_calls_wait_for_one_caller_than_may() -> None:
    server = create_mcp_server(name="up", version="1")

    @server.tool
    async def book(ctx: CallContext) -> str:
        answer = await ctx.elicit("Where to?", {"type": "object", "properties": {}})
        return answer.action

    call: Json = {"name": "book", "arguments": {}}
    config = {"server": server, "protocol": "legacy", "tool_prefix": "", "timeout": {"call": 0.5}}
    async with talking(gateway_to(config)) as talk:
        asked = [await talk.ask("tools/call", call) for _ in range(16)]
        one_more = await talk.ask("tools/call", call)
        done = await talk.ask("tools/call", {**answered(asked[0]), "name": "book"})
        room = await talk.ask("tools/call", call)

    assert {one["resultType"] for one in [*asked, room]} == {"input_required"}
    assert one_more["isError"]
    assert "not sent" in one_more["content"][0]["text"]
    assert done["content"][0]["text"] == "accept"


@pytest.mark.parametrize("kind", ["stdio-legacy", "stdio-modern"])
async def test_a_state_opens_for_its_own_request_alone(kind: str) -> None:
    with upstream(kind) as config:
        gateway = gateway_to(config)
        async with talking(gateway) as talk:
            asked = await talk.ask("tools/call", CALL)
            right = answered(asked)
            state = asked["requestState"]
            wrong = [
                {**right, "arguments": {"on": "session"}},
                {**right, "name": "elicit_url"},
                {**right, "requestState": state[:-2] + ("AA" if state[-2:] != "AA" else "BB")},
                {**right, "requestState": state.replace("g1.", "g2.", 1)},
                {**right, "requestState": ""},
                {**right, "requestState": 7},
                {**right, "requestState": None},
            ]
            assert {(await refused(talk, params)).code for params in wrong} == {-32602}
            assert said(await talk.ask("tools/call", right))["result"]["action"] == "accept"
        async with talking(gateway_to(config)) as other:  # of other keys
            assert (await refused(other, right)).code == -32602


async def test_the_state_of_an_upstream_comes_back_to_it_byte_for_byte_and_is_not_readable_on_the_way() -> None:
    secret = "top secret\u00e9\n"
    call: Json = {"name": "echo_state", "arguments": {"state": secret}}
    with upstream("stdio-modern") as config:
        async with talking(gateway_to(config)) as talk:
            asked = await talk.ask("tools/call", call)
            result = await talk.ask("tools/call", {**call, "requestState": asked["requestState"]})

    assert asked["requestState"].startswith("g1.")
    assert secret not in asked["requestState"]
    assert said(result) == {"state": secret, "responses": False}


async def test_the_state_of_an_upstream_is_bounded() -> None:
    with upstream("stdio-modern") as config:
        async with talking(gateway_to(config)) as talk:
            long = await refused(talk, {"name": "echo_state", "arguments": {"state": "x" * (256 * 1024 + 1)}})
            asked = await talk.ask("tools/call", {"name": "echo_state", "arguments": {"state": "x"}})

    assert long.code == -32603
    assert "is longer than 262144 bytes" in long.message
    assert asked["resultType"] == "input_required"


async def test_a_state_ends_with_the_patience_of_the_gateway() -> None:
    call: Json = {"name": "echo_state", "arguments": {"state": "s"}}
    with upstream("stdio-modern") as config:
        async with talking(gateway_to(config, patience=0.001)) as talk:
            asked = await talk.ask("tools/call", call)
            ends = anyio.current_time() + 0.002
            while anyio.current_time() < ends:
                await anyio.sleep(0.001)
            late = await refused(talk, {**call, "requestState": asked["requestState"]})

    assert late.code == -32602
    assert "has expired" in late.message


async def test_replicas_that_share_their_keys_open_each_others_states() -> None:
    call: Json = {"name": "echo_state", "arguments": {"state": "s"}}
    keys = ["k" * 32]
    with upstream("stdio-modern") as config:
        async with talking(gateway_to(config, state_keys=["n" * 32, *keys])) as one:
            asked = await one.ask("tools/call", call)
        async with talking(gateway_to(config, state_keys=["n" * 32])) as two:
            result = await two.ask("tools/call", {**call, "requestState": asked["requestState"]})

    assert said(result)["state"] == "s"


async def test_an_upstream_that_never_has_enough_is_given_up() -> None:
    call: Json = {"name": "insatiable", "arguments": {}}
    no_roots: Json = {"roots": []}
    with upstream("stdio-modern") as config:
        async with talking(gateway_to(config)) as talk:
            asked, rounds = await talk.ask("tools/call", call), 1
            with pytest.raises(RequestError, match="still asks for input") as refused:
                while True:
                    answers = dict.fromkeys(asked["inputRequests"], no_roots)
                    more = {"requestState": asked["requestState"], "inputResponses": answers}
                    asked = await talk.ask("tools/call", {**call, **more})
                    rounds += 1

    assert refused.value.code == -32603
    assert rounds == 20


def test_keys_that_are_too_short_are_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        gateway_to({"command": "true"}, state_keys=["short"])
