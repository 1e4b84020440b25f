"""Questions of upstreams reach the caller and nobody else, in every pair of eras, over every transport."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import pytest

from tests.gateway.relayed import CALLERS, EACH_PAIR, MODERN, Json, answer_of, calling, gateway_to, through, upstream
from toolweave import Callbacks, CallContext, McpConnection, ProtocolError, connect_mcp, create_mcp_server
from toolweave.connect import ElicitationRequest, SamplingRequest, SamplingResult
from toolweave.gateway import create_gateway

ANYTHING = Callbacks(
    elicitation=lambda request: {"name": "Ada"} if request.mode == "form" else {},
    sampling=lambda request: "Fine.",
    roots=["file:///srv/data"],
)


@dataclass
class Wish:
    city: str


@pytest.mark.requirement("C20")
@EACH_PAIR
async def test_a_form_is_filled_in_by_the_caller(version: str, kind: str) -> None:
    asked: list[ElicitationRequest] = []

    def elicitation(request: ElicitationRequest) -> Json:
        asked.append(request)
        return {"name": "Ada", "color": "red"}

    async with through(kind, version, Callbacks(elicitation=elicitation)) as caller:
        said = answer_of(await caller.call_tool("elicit"))

    assert [(request.message, request.schema["required"]) for request in asked] == [("Who are you?", ["name"])]
    assert said["result"] == {"action": "accept", "content": {"name": "Ada", "color": "red", "size": 3}}


@pytest.mark.slow
@pytest.mark.parametrize("version", CALLERS)
async def test_a_call_does_not_time_out_while_the_user_of_the_caller_answers(version: str) -> None:
    async def elicitation(request: ElicitationRequest) -> Json:
        await anyio.sleep(3)  # longer than the timeout of a call at the upstream
        return {"name": "Ada"}

    with anyio.fail_after(60), upstream("stdio-legacy") as config:
        gateway = gateway_to({**config, "timeout": {"call": 1}})
        async with calling(gateway, version, callbacks=Callbacks(elicitation=elicitation)) as caller:
            said = answer_of(await caller.call_tool("elicit"))

    assert said["result"]["content"]["name"] == "Ada"


@EACH_PAIR
async def test_the_callers_model_completes(version: str, kind: str) -> None:
    asked: list[SamplingRequest] = []

    def sampling(request: SamplingRequest) -> SamplingResult:
        asked.append(request)
        return SamplingResult(content="Fine.", model="tiny-1", stop_reason="maxTokens")

    async with through(kind, version, Callbacks(sampling=sampling)) as caller:
        said = answer_of(await caller.call_tool("sample"))

    assert [request.system_prompt for request in asked] == ["Be brief."]
    content = {"type": "text", "text": "Fine."}
    assert said["result"] == {"role": "assistant", "content": content, "model": "tiny-1", "stopReason": "maxTokens"}


@EACH_PAIR
async def test_the_callers_roots_are_told(version: str, kind: str) -> None:
    async with through(kind, version, Callbacks(roots=["file:///srv/data"])) as caller:
        said = answer_of(await caller.call_tool("list_roots"))

    assert said["result"] == {"roots": [{"uri": "file:///srv/data"}]}


@EACH_PAIR
async def test_an_interview_of_several_rounds_and_parallel_questions_comes_to_its_end(version: str, kind: str) -> None:
    asked: list[str] = []

    def elicitation(request: ElicitationRequest) -> Json:
        asked.append(request.message)
        return {"name": request.message}

    callbacks = Callbacks(elicitation=elicitation, sampling=lambda request: "Fine.", roots=["file:///srv"])
    async with through(kind, version, callbacks) as caller:
        said = answer_of(await caller.call_tool("interview"))

    assert asked == ["Who are you?", "And who else?"]
    assert said["first"]["result"]["content"]["name"] == "Who are you?"
    assert said["second"]["result"]["content"]["name"] == "And who else?"
    assert said["roots"]["result"] == {"roots": [{"uri": "file:///srv"}]}
    assert said["words"]["result"]["content"] == {"type": "text", "text": "Fine."}


@pytest.mark.parametrize("kind", ["stdio-legacy", "stdio-modern", "http-legacy", "http-modern"])
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_the_user_is_led_to_a_page(version: str, kind: str) -> None:
    asked: list[tuple[str | None, bool]] = []

    def elicitation(request: ElicitationRequest) -> Json:
        asked.append((request.url, request.elicitation_id is not None))
        return {}

    async with through(kind, version, Callbacks(elicitation=elicitation)) as caller:
        said = answer_of(await caller.call_tool("elicit_url"))

    # only 2025-11-25 has an id of the visit; what a modern upstream says is passed on
    named = version != MODERN or kind.endswith("modern")
    assert asked == [("https://example.com/consent", named)]
    assert said["result"] == {"action": "accept"}


@pytest.mark.parametrize("era", ["legacy", MODERN])
@pytest.mark.parametrize("version", CALLERS)
async def test_prompts_and_resources_ask_as_tools_do(version: str, era: str) -> None:
    server = create_mcp_server(name="up", version="1")

    @server.prompt
    async def trip(ctx: CallContext) -> str:
        answer = await ctx.elicit("Where to?", Wish)
        return answer.value.city if answer.value else "nowhere"

    @server.resource("trip://plan")
    async def plan(ctx: CallContext) -> str:
        answer = await ctx.elicit("Where to?", Wish)
        return answer.value.city if answer.value else "nowhere"

    gateway = create_gateway({"up": {"server": server, "protocol": era, "tool_prefix": ""}})
    callbacks = Callbacks(elicitation=lambda request: {"city": "Oslo"})
    async with connect_mcp({"server": gateway, "protocol": version}, callbacks=callbacks) as caller:
        prompt = await caller.get_prompt("trip")
        (resource,) = await caller.read_resource("trip://plan")

    assert prompt.messages[0].content.render() == "Oslo"
    assert resource.text == "Oslo"


@pytest.mark.parametrize("version", CALLERS)
@pytest.mark.parametrize("kind", ["stdio-legacy", "http-modern"])
async def test_a_caller_that_can_answer_nothing_is_not_asked(version: str, kind: str) -> None:
    async with through(kind, version, Callbacks()) as caller:
        if kind == "stdio-legacy":
            assert answer_of(await caller.call_tool("elicit"))["error"]["code"] == -32601
            return
        if version == MODERN:
            with pytest.raises(ProtocolError) as refused:
                await caller.call_tool("elicit")
            assert refused.value.code == -32021
        else:
            result = await caller.call_tool("elicit")
            assert result.is_error


@pytest.mark.slow
@EACH_PAIR
async def test_questions_of_calls_at_once_reach_each_caller_its_own(version: str, kind: str) -> None:
    def answering(name: str) -> Callbacks:
        async def elicitation(request: ElicitationRequest) -> Json:
            await anyio.sleep(0.05)
            return {"name": name}

        return Callbacks(elicitation=elicitation)

    said: dict[str, list[str]] = {}

    async def ask(caller: McpConnection, name: str) -> None:
        answer = answer_of(await caller.call_tool("elicit"))
        said.setdefault(name, []).append(answer["result"]["content"]["name"])

    with anyio.fail_after(120), upstream(kind) as config:
        gateway = gateway_to(config)
        async with (
            calling(gateway, version, callbacks=answering("Ada")) as ada,
            calling(gateway, version, callbacks=answering("Bob"), carrier="http") as bob,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(3):
                tasks.start_soon(ask, ada, "Ada")
                tasks.start_soon(ask, bob, "Bob")

    assert said == {"Ada": ["Ada"] * 3, "Bob": ["Bob"] * 3}


@pytest.mark.parametrize("version", CALLERS)
async def test_a_question_on_the_stream_of_a_session_belongs_to_the_one_call_of_its_connection(version: str) -> None:
    async with through("http-legacy", version, ANYTHING) as caller:
        said = answer_of(await caller.call_tool("elicit", {"on": "session"}))

    assert said["result"]["action"] == "accept"


@pytest.mark.slow
@pytest.mark.parametrize("version", CALLERS)
async def test_a_caller_that_refuses_is_heard_upstream_or_ends_the_call(version: str) -> None:
    def sampling(request: SamplingRequest) -> None:
        return None

    with anyio.fail_after(60):
        async with through("stdio-legacy", "2025-11-25", Callbacks(sampling=sampling)) as caller:
            assert answer_of(await caller.call_tool("sample"))["error"]["code"] == -1
        async with through("stdio-modern", "2025-11-25", Callbacks(sampling=sampling)) as caller:
            result = await caller.call_tool("sample")
            assert result.is_error
            assert "refused" in result.text


@pytest.mark.parametrize("era", ["legacy", MODERN])
@pytest.mark.parametrize("version", CALLERS)
async def test_servers_of_this_process_are_relayed_like_any_other(version: str, era: str) -> None:
    server = create_mcp_server(name="up", version="1")

    @server.tool
    async def plan(ctx: CallContext) -> str:
        answer = await ctx.elicit("Where to?", Wish)
        return answer.value.city if answer.value else "nowhere"

    gateway = create_gateway({"up": {"server": server, "protocol": era, "tool_prefix": ""}})
    callbacks = Callbacks(elicitation=lambda request: {"city": "Oslo"})
    async with connect_mcp({"server": gateway, "protocol": version}, callbacks=callbacks) as caller:
        assert (await caller.call_tool("plan")).text == "Oslo"


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_a_page_that_has_to_be_visited_first_is_visited_and_the_call_made_anew(version: str) -> None:
    visited: list[str | None] = []

    def elicitation(request: ElicitationRequest) -> Json:
        visited.append(request.url)
        return {}

    async with through("http-legacy", version, Callbacks(elicitation=elicitation)) as caller:
        assert (await caller.call_tool("needs_visit")).text == "visited"

    assert visited == ["https://example.com/consent"]


async def test_a_caller_that_cannot_visit_a_page_is_told_what_it_lacks() -> None:
    async with through("http-legacy", MODERN, Callbacks(roots=[])) as caller:
        with pytest.raises(ProtocolError) as refused:
            await caller.call_tool("needs_visit")

    assert refused.value.code == -32021
    assert refused.value.data == {"requiredCapabilities": {"elicitation": {"url": {}}}}


@pytest.mark.slow
async def test_a_user_that_does_not_consent_to_a_visit_ends_the_call() -> None:
    with anyio.fail_after(60):
        async with through("http-legacy", MODERN, Callbacks(elicitation=lambda request: None)) as caller:
            result = await caller.call_tool("needs_visit")

    assert result.is_error
    assert "did not consent" in result.text
