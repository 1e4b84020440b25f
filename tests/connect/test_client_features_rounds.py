"""Rounds of `input_required` (2026-07-28): answers gathered, state carried byte-exact, never without end."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.connect.targets import MODERN, ChannelServer, Json, connected, serving
from toolweave import Callbacks, CallContext, ProtocolError, RequestTimeoutError, ToolCall
from toolweave.connect import ElicitationRequest, ElicitationResult

KINDS = ("stdio", "http-json", "http-sse", "channel")
each_kind = pytest.mark.parametrize("kind", KINDS)
COMPLETE: Json = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


def modern(*results: Json, received: list[Json] | None = None) -> ChannelServer:
    """Return a modern server that answers the calls of its one tool with these results, the last one for ever."""
    waiting = list(results)

    def script(message: Json) -> Json | None:
        match message.get("method"):
            case "server/discover":
                return {"result": {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}}
            case "tools/list":
                return {"result": {"resultType": "complete", "tools": [{"name": "ask", "inputSchema": {}}]}}
            case "tools/call":
                if received is not None:
                    received.append(message)
                return {"result": waiting.pop(0) if len(waiting) > 1 else waiting[0]}
            case _:
                return None

    return ChannelServer(script)


def form(message: str = "Who?", **properties: Any) -> Json:
    schema = {"type": "object", "properties": properties}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


@each_kind
async def test_rounds_follow_each_other_until_the_server_has_all_it_wants(kind: str) -> None:
    asked: list[str] = []

    def elicitation(request: ElicitationRequest) -> Json | None:
        asked.append(request.message)
        return {"name": "Ada"} if request.message == "Who are you?" else None

    callbacks = Callbacks(elicitation=elicitation, sampling=lambda request: "Fine.", roots=["file:///srv"])
    async with connected(serving(kind, MODERN, "--asks"), callbacks=callbacks) as connection:
        result = await connection.call_tool("interview")

    assert asked == ["Who are you?", "And who else?"]
    told = result.structured_content
    assert told["first"]["result"]["content"]["name"] == "Ada"
    assert told["second"]["result"] == {"action": "decline"}
    assert told["roots"]["result"] == {"roots": [{"uri": "file:///srv"}]}
    assert told["words"]["result"]["content"] == {"type": "text", "text": "Fine."}


@each_kind
async def test_prompts_and_resources_have_rounds_too(kind: str) -> None:
    callbacks = Callbacks(elicitation=lambda request: {"name": "Ada"}, roots=["file:///srv"])
    async with connected(serving(kind, MODERN, "--asks"), callbacks=callbacks) as connection:
        prompt = await connection.get_prompt("asks")
        (contents,) = await connection.read_resource("asks")

    assert json.loads(prompt.messages[0].content.render())["content"]["name"] == "Ada"
    assert json.loads(contents.text or "") == {"roots": [{"uri": "file:///srv"}]}


@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25"])
async def test_prompts_and_resources_may_ask_in_legacy_revisions_too(version: str) -> None:
    callbacks = Callbacks(elicitation=lambda request: {"name": "Ada"}, roots=["file:///srv"])
    async with connected(serving("stdio", version, "--asks"), callbacks=callbacks) as connection:
        prompt = await connection.get_prompt("asks")
        (contents,) = await connection.read_resource("asks")

    assert json.loads(prompt.messages[0].content.render())["content"]["name"] == "Ada"
    assert json.loads(contents.text or "") == {"roots": [{"uri": "file:///srv"}]}


@each_kind
async def test_a_server_that_only_wants_to_be_asked_again_is_asked_again(kind: str) -> None:
    async with connected(serving(kind, MODERN, "--asks")) as connection:
        result = await connection.call_tool("patient", {"rounds": 3})

    assert result.text == "after 3 rounds"


@each_kind
@pytest.mark.parametrize("answering", [True, False], ids=["callbacks", "no callbacks"])
async def test_a_server_that_never_has_enough_is_given_up(kind: str, answering: bool) -> None:
    callbacks = Callbacks(roots=[]) if answering else Callbacks()
    expected = "still asks for input after 10 rounds" if answering else r"roots/list; pass callbacks=Callbacks\(roots"
    async with connected(serving(kind, MODERN, "--asks"), callbacks=callbacks) as connection:
        with pytest.raises(ProtocolError, match=expected):
            await connection.call_tool("insatiable")
        calls = json.loads((await connection.call_tool("state")).text)["calls"]

    assert calls["insatiable"] == (11 if answering else 1)


@each_kind
async def test_a_kind_of_result_from_the_future_is_an_error(kind: str) -> None:
    async with connected(serving(kind, MODERN, "--asks")) as connection:
        with pytest.raises(ProtocolError, match="unknown resultType 'hologram'"):
            await connection.call_tool("futuristic")


@pytest.mark.parametrize(
    ("round_", "problem"),
    [
        ({}, "without saying which"),
        ({"inputRequests": {}}, "without saying which"),
        ({"inputRequests": []}, "malformed"),
        ({"requestState": 7}, "malformed"),
        ({"inputRequests": {"a": 1}}, "did not offer: a request without a method"),
        ({"inputRequests": {"a": {"method": "nonsense/ask"}}}, "did not offer: nonsense/ask"),
    ],
)
async def test_a_malformed_round_is_an_error_at_once(round_: Json, problem: str) -> None:
    async with connected(modern({"resultType": "input_required", **round_})) as connection:
        with pytest.raises(ProtocolError, match=problem):
            await connection.call_tool("ask")


async def test_a_retry_repeats_the_request_under_a_new_id() -> None:
    received: list[Json] = []
    first = {"resultType": "input_required", "requestState": "s1", "inputRequests": {"b": form(), "a": form()}}
    second = {"resultType": "input_required", "inputRequests": {"c": form()}}
    server = modern(first, second, COMPLETE, received=received)
    async with connected(server, callbacks=Callbacks(elicitation=lambda request: {})) as connection:
        result = await connection.call_tool("ask", {"n": 1.0}, meta={"trace": "t"})

    assert result.text == "done"
    plain, with_state, without_state = (message["params"] for message in received)
    accepted: Json = {"action": "accept", "content": {}}
    assert with_state == {**plain, "requestState": "s1", "inputResponses": {"b": accepted, "a": accepted}}
    assert list(with_state["inputResponses"]) == ["b", "a"]
    assert without_state == {**plain, "inputResponses": {"c": accepted}}
    assert len({message["id"] for message in received}) == 3


async def test_all_questions_of_a_round_are_asked_at_once() -> None:
    both = anyio.Event()
    running = 0

    async def elicitation(request: ElicitationRequest) -> Json:
        nonlocal running
        running += 1
        if running == 2:
            both.set()
        await both.wait()
        return {}

    first = {"resultType": "input_required", "inputRequests": {"a": form(), "b": form()}}
    async with connected(modern(first, COMPLETE), callbacks=Callbacks(elicitation=elicitation)) as connection:
        assert (await connection.call_tool("ask")).text == "done"


async def test_one_question_that_cannot_be_answered_ends_the_others() -> None:
    ended = anyio.Event()

    async def elicitation(request: ElicitationRequest) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    first = {"resultType": "input_required", "inputRequests": {"a": form(), "b": {"method": "roots/list"}}}
    async with connected(modern(first), callbacks=Callbacks(elicitation=elicitation)) as connection:
        with pytest.raises(ProtocolError, match="roots/list"):
            await connection.call_tool("ask")
        await ended.wait()


async def test_silence_after_a_round_still_times_out() -> None:
    first = {"resultType": "input_required", "requestState": "s"}

    def script(message: Json) -> Json | None:
        if "requestState" in message.get("params", {}):
            return None
        return inner(message)

    inner = modern(first)._script  # pyright: ignore[reportPrivateUsage]
    async with connected(ChannelServer(script)) as connection:
        with pytest.raises(RequestTimeoutError):
            await connection.call_tool("ask", timeout=0.3)


async def test_a_legacy_result_without_result_type_is_complete() -> None:
    async with connected(serving("stdio", "2025-11-25", "--asks"), callbacks=Callbacks(roots=[])) as connection:
        result = await connection.call_tool("echo", {"text": "plain"})

    assert result.text == "plain"
    assert "resultType" not in result.raw


ODD = ["", " ", "\u2028\x00\x7f", '"\\u0041', "e\u0301\u00e9", "\U0001f600", "1e400", "null", "x" * 70_000]


@pytest.mark.slow
@each_kind
async def test_odd_states_come_back_byte_for_byte(kind: str) -> None:
    async with connected(serving(kind, MODERN, "--asks")) as connection:
        for state in ODD:
            result = await connection.call_tool("echo_state", {"state": state})
            assert result.structured_content == {"state": state, "responses": False}


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(states=st.lists(st.text(), min_size=1, max_size=20))
def test_any_state_comes_back_byte_for_byte(states: list[str]) -> None:
    async def carry() -> None:
        async with connected(serving("channel", MODERN, "--asks"), 60) as connection:
            for state in states:
                result = await connection.call_tool("echo_state", {"state": state})
                assert result.structured_content == {"state": state, "responses": False}

    anyio.run(carry)


class _Answers:
    """The questions of one call, which is resumed with the result that asked."""

    def __init__(self, asked_by: Json | None) -> None:
        self.asked_by = asked_by
        self.restarts = 0

    def begin(self) -> Json | None:
        return self.asked_by

    def restart(self) -> bool:
        self.restarts += 1
        return False

    async def answer(self, request: ElicitationRequest, *, running: bool, asked_by: Any) -> ElicitationResult:
        return ElicitationResult.accept({"name": "Ada"})


@pytest.mark.parametrize(
    "callbacks", [Callbacks(), Callbacks(elicitation=lambda request: None), Callbacks(roots=["/srv"])]
)
async def test_a_resumed_call_continues_where_it_asked_whatever_the_connection_answers_itself(
    callbacks: Callbacks,
) -> None:
    received: list[Json] = []
    asked_by: Json = {"resultType": "input_required", "inputRequests": {"who": form()}, "requestState": "s1"}
    resumed = CallContext(questions=_Answers(asked_by))

    async with connected(modern(COMPLETE, received=received), callbacks=callbacks) as connection:
        result = await connection.call(ToolCall(name="ask", arguments={"a": 1}), resumed)

    assert result.text == "done"
    (request,) = received
    assert request["params"]["requestState"] == "s1"
    assert request["params"]["inputResponses"] == {"who": {"action": "accept", "content": {"name": "Ada"}}}


@pytest.mark.parametrize("callbacks", [Callbacks(), Callbacks(elicitation=lambda request: None)])
async def test_a_call_that_must_not_run_twice_is_not_sent_to_a_server_that_cannot_resume_it(
    callbacks: Callbacks,
) -> None:
    answers = _Answers({"resultType": "input_required", "inputRequests": {"who": form()}, "requestState": "s1"})
    async with connected(serving("stdio", "2025-11-25"), callbacks=callbacks) as connection:
        result = await connection.call(ToolCall(name="echo", arguments={"text": "1"}), CallContext(questions=answers))

    assert result.is_error
    assert "cannot continue where it asked" in result.text
    assert answers.restarts == 1
