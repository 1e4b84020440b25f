"""Questions of a handler to a stateless client: rounds of `input_required`, seen without a carrier."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import pytest

from tests.serve.lines import Peer
from toolweave.errors import RequestError
from toolweave.serve import McpServer, create_mcp_server
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve.request import Json
from toolweave.tools import CallContext, Elicitation, Roots, Sampling

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SAID = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


def serve(*tools: Any) -> McpServer:
    return create_mcp_server(name="asks", version="1", tools=list(tools))


def text(result: Mapping[str, Any]) -> str:
    assert result["resultType"] == "complete", result
    return result["content"][0]["text"]


async def greet(ctx: CallContext) -> str:
    answer = await ctx.elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {(answer.content or {})['name']}!"


async def two_steps(ctx: CallContext) -> str:
    name = await ctx.elicit("Your name?", NAME)
    color = await ctx.elicit("Your color?", NAME)
    return f"{(name.content or {})['name']} likes {(color.content or {})['name']}"


async def three_at_once(ctx: CallContext) -> str:
    answers = await ctx.ask(user=Elicitation("Who?", NAME), capital=Sampling("Of France?", max_tokens=50), dirs=Roots())
    return f"{answers['user'].content['name']} {answers['capital'].text} {answers['dirs'][0].uri}"


async def test_a_question_ends_the_work_and_the_result_asks_it() -> None:
    result = await Peer().call(serve(greet), "greet")

    assert result["resultType"] == "input_required"
    assert isinstance(result["requestState"], str)
    assert result["inputRequests"] == {
        "user_name": {
            "method": "elicitation/create",
            "params": {"message": "What is your name?", "requestedSchema": NAME},
        }
    }


async def test_the_work_runs_again_with_the_answer() -> None:
    server = serve(greet)
    peer = Peer()
    asked = await peer.call(server, "greet")

    result = await peer.call(
        server, "greet", inputResponses={"user_name": accept(name="Ada")}, requestState=asked["requestState"]
    )

    assert text(result) == "Hello, Ada!"


async def test_answers_of_earlier_rounds_travel_in_the_state() -> None:
    server = serve(two_steps)
    peer = Peer()
    first = await peer.call(server, "two_steps")
    (one,) = first["inputRequests"]
    second = await peer.call(
        server, "two_steps", inputResponses={one: accept(name="Ada")}, requestState=first["requestState"]
    )
    (two,) = second["inputRequests"]

    third = await peer.call(
        server, "two_steps", inputResponses={two: accept(name="blue")}, requestState=second["requestState"]
    )

    assert first["requestState"] != second["requestState"]
    assert second["inputRequests"][two]["params"]["message"] == "Your color?"
    assert text(third) == "Ada likes blue"


async def test_several_questions_are_one_round_and_only_what_is_missing_is_asked_again() -> None:
    server = serve(three_at_once)
    peer = Peer()
    first = await peer.call(server, "three_at_once")
    second = await peer.call(
        server,
        "three_at_once",
        inputResponses={"capital": SAID, "user": accept(name="Ada")},
        requestState=first["requestState"],
    )

    third = await peer.call(
        server,
        "three_at_once",
        inputResponses={"dirs": {"roots": [{"uri": "file:///work"}]}},
        requestState=second["requestState"],
    )

    asked = {key: request["method"] for key, request in first["inputRequests"].items()}
    assert asked == {"user": "elicitation/create", "capital": "sampling/createMessage", "dirs": "roots/list"}
    assert list(second["inputRequests"]) == ["dirs"]
    assert text(third) == "Ada Paris file:///work"


@pytest.mark.parametrize("responses", [{}, {"wrong_key": accept(name="Ada")}])
async def test_a_question_without_its_answer_is_asked_again(responses: Json) -> None:
    result = await Peer().call(serve(greet), "greet", inputResponses=responses)

    assert list(result["inputRequests"]) == ["user_name"]


async def test_answers_that_nobody_asked_for_are_ignored() -> None:
    responses = {"user_name": accept(name="Ada"), "other": accept(foo="bar"), "odd": 5}

    result = await Peer().call(serve(greet), "greet", inputResponses=responses)

    assert text(result) == "Hello, Ada!"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (12345, "JSON object"),
        (None, "JSON object"),
        ({}, "action"),
        ({"action": "maybe"}, "action"),
        ({"action": "accept", "content": []}, "JSON object"),
        ({"action": "accept"}, "name"),
        (accept(name=5), "name"),
    ],
)
async def test_a_malformed_answer_is_refused_with_its_key(answer: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        await Peer().call(serve(greet), "greet", inputResponses={"user_name": answer})

    assert caught.value.code == -32602
    assert "inputResponses['user_name']" in str(caught.value)


@pytest.mark.parametrize("responses", [None, [], "x"])
async def test_answers_that_are_no_object_are_refused_even_if_nothing_is_asked(responses: Any) -> None:
    def silent() -> str:
        return "done"

    with pytest.raises(RequestError, match="inputResponses") as caught:
        await Peer(capabilities={}).call(serve(silent), "silent", inputResponses=responses)

    assert caught.value.code == -32602


async def test_no_handler_can_swallow_a_question() -> None:
    cleaned: list[str] = []

    async def careless(ctx: CallContext) -> str:
        try:
            await ctx.elicit("Sure?")
        except Exception:
            return "went on"
        finally:
            cleaned.append("yes")
        return "answered"

    result = await Peer().call(serve(careless), "careless")

    assert result["resultType"] == "input_required"
    assert cleaned == ["yes"]


async def test_work_that_fails_in_its_own_cleanup_still_asks() -> None:
    async def clumsy(ctx: CallContext) -> Json:
        try:
            return {"said": (await ctx.elicit("Sure?")).action}
        finally:
            raise RuntimeError("cleanup")  # said of work that was ended on purpose

    result = await HandlerRunner().run(Peer().request("prompts/get", name="x"), clumsy)

    assert result["resultType"] == "input_required"


async def test_tasks_of_a_handler_may_ask_at_the_same_time() -> None:
    async def both(ctx: CallContext) -> str:
        said: dict[str, str] = {}

        async def ask(what: str) -> None:
            said[what] = (await ctx.elicit(what, NAME)).action

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "left?")
            tasks.start_soon(ask, "right?")
        return " ".join(sorted(said.values()))

    server = serve(both)
    peer = Peer()
    result = Json()
    more: Json = {}
    for action in ("accept", "decline"):
        result = await peer.call(server, "both", **more)
        if result["resultType"] == "complete":
            break
        answers = {key: {"action": action, "content": {"name": "x"}} for key in result["inputRequests"]}
        more = {"inputResponses": answers, "requestState": result["requestState"]}
    else:
        result = await peer.call(server, "both", **more)

    assert result["resultType"] == "complete"


async def test_a_function_in_a_thread_may_ask() -> None:
    def blocking(ctx: CallContext) -> str:
        return anyio.from_thread.run(partial(ctx.elicit, "Sure?", key="sure")).action

    server = serve(blocking)
    peer = Peer()

    asked = await peer.call(server, "blocking")
    result = await peer.call(server, "blocking", inputResponses={"sure": {"action": "decline"}})

    assert list(asked["inputRequests"]) == ["sure"]
    assert text(result) == "decline"


async def test_the_same_question_twice_has_two_answers() -> None:
    async def twice(ctx: CallContext) -> str:
        return f"{(await ctx.elicit('Again?')).action} {(await ctx.elicit('Again?')).action}"

    server = serve(twice)
    peer = Peer()
    first = await peer.call(server, "twice")
    (one,) = first["inputRequests"]
    second = await peer.call(
        server, "twice", inputResponses={one: {"action": "accept"}}, requestState=first["requestState"]
    )
    (two,) = second["inputRequests"]

    third = await peer.call(
        server, "twice", inputResponses={two: {"action": "decline"}}, requestState=second["requestState"]
    )

    assert one != two
    assert text(third) == "accept decline"


async def test_an_answer_never_counts_for_another_question() -> None:
    files = ["draft.txt"]

    async def delete(ctx: CallContext) -> str:
        return (await ctx.elicit(f"Delete {files[0]}?")).action

    server = serve(delete)
    peer = Peer()
    first = await peer.call(server, "delete")
    (key,) = first["inputRequests"]
    files[0] = "thesis.txt"

    second = await peer.call(
        server, "delete", inputResponses={key: {"action": "accept"}}, requestState=first["requestState"]
    )

    (asked,) = second["inputRequests"].values()
    assert asked["params"]["message"] == "Delete thesis.txt?"


async def test_a_question_with_a_key_is_found_again_whatever_it_says() -> None:
    times: list[int] = []

    async def counting(ctx: CallContext) -> str:
        times.append(1)
        return (await ctx.elicit(f"Try {len(times)}?", key="again")).action

    server = serve(counting)
    peer = Peer()
    await peer.call(server, "counting")

    result = await peer.call(server, "counting", inputResponses={"again": {"action": "cancel"}})

    assert text(result) == "cancel"


async def test_questions_asked_together_need_different_keys() -> None:
    async def unclear(ctx: CallContext) -> None:
        await ctx.ask(a=Elicitation("?", key="k"), b=Elicitation("!", key="k"))

    result = await Peer().call(serve(unclear), "unclear")

    assert result["isError"] is True
    assert "different keys" in result["content"][0]["text"]


async def test_asking_nothing_answers_nothing() -> None:
    async def nothing(ctx: CallContext) -> str:
        return str(await ctx.ask())

    assert text(await Peer().call(serve(nothing), "nothing")) == "{}"


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
async def test_prompts_and_resources_ask_in_rounds_too(method: str) -> None:
    async def work(ctx: CallContext) -> Json:
        return {"said": (await ctx.elicit("Which?", key="which")).action}

    runner = HandlerRunner()
    peer = Peer()

    asked = await runner.run(peer.request(method, name="n"), work)
    answers = {"which": {"action": "decline"}}
    request = peer.request(method, name="n", inputResponses=answers, requestState=asked["requestState"])

    assert asked["resultType"] == "input_required"
    assert await runner.run(request, work) == {"said": "decline"}


async def test_no_other_request_is_answered_by_a_question() -> None:
    async def work(ctx: CallContext) -> Json:
        await ctx.elicit("Which?")
        return {}

    with pytest.raises(Exception, match="completion/complete cannot ask"):
        await HandlerRunner().run(Peer().request("completion/complete"), work)


async def test_a_question_inside_a_shield_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolweave.serve._request_context._UNENDED_SECONDS", 0.01)

    async def shielded(ctx: CallContext) -> None:
        with anyio.CancelScope(shield=True):
            await ctx.elicit("Sure?", key="sure")

    result = await Peer().call(serve(shielded), "shielded")

    assert list(result["inputRequests"]) == ["sure"]


@pytest.mark.requirement("C29", "R95")
async def test_a_handler_sees_the_metadata_and_the_state_but_not_the_envelope() -> None:
    def look(ctx: CallContext) -> dict[str, Any]:
        return {"meta": dict(ctx.meta), "state": dict(ctx.state)}

    server = create_mcp_server(name="looks", version="1", tools=[look], state={"db": "here"})
    meta = {"traceparent": "00-1", "progressToken": 1, "io.modelcontextprotocol/protocolVersion": "2026-07-28"}

    result = await Peer().call(server, "look", _meta=meta)

    assert result["structuredContent"] == {"meta": {"traceparent": "00-1"}, "state": {"db": "here"}}
