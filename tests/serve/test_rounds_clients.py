"""Questions of a handler to real clients, in every era and on every carrier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from tests.serve.lines import EVERYTHING, Peer
from toolweave import Callbacks, ProtocolError
from toolweave.connect import ElicitationRequest, ElicitationResult, SamplingRequest, SamplingResult
from toolweave.errors import RequestError, ToolError
from toolweave.protocol.content import TextContent
from toolweave.serve import McpServer, create_mcp_server
from toolweave.serve._request_context import HandlerRunner
from toolweave.tools import CallContext, Elicitation, Roots, Sampling, SamplingMessage

LEGACY = "2025-11-25"


class Booking(BaseModel):
    city: str = Field(description="Where to")
    nights: int = Field(default=2, ge=1)


@dataclass
class Pick:
    size: Literal["small", "large"]


@dataclass
class Typist:
    name: str


def serve(*tools: Any) -> McpServer:
    return create_mcp_server(name="asks", version="1", tools=list(tools))


async def book(ctx: CallContext) -> str:
    answer = await ctx.elicit("Where do you want to go?", Booking)
    if answer.value is None:
        return answer.action
    picked = await ctx.elicit("Which room?", Pick)
    return f"{answer.value.nights} nights in {answer.value.city}, {picked.value.size if picked.value else '?'}"


@EACH_CARRIER
async def test_a_handler_asks_the_user_for_a_model_and_then_for_a_dataclass(carrier: str, era: str) -> None:
    asked: list[ElicitationRequest] = []

    def answer(request: ElicitationRequest) -> dict[str, Any]:
        asked.append(request)
        return {"city": "Oslo"} if "city" in request.schema["properties"] else {"size": "large"}

    async with connected(serve(book), carrier, era, callbacks=Callbacks(elicitation=answer)) as connection:
        result = await connection.call_tool("book", {})

    assert result.text == "2 nights in Oslo, large"
    assert [request.message for request in asked] == ["Where do you want to go?", "Which room?"]
    assert asked[0].schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where to"},
            "nights": {"type": "integer", "default": 2, "minimum": 1},
        },
        "required": ["city"],
    }


@EACH_ERA
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_says_no_is_an_answer_and_no_error(era: str, action: Literal["decline", "cancel"]) -> None:
    callbacks = Callbacks(elicitation=lambda _request: ElicitationResult(action=action))
    async with connected(serve(book), era=era, callbacks=callbacks) as connection:
        result = await connection.call_tool("book", {})

    assert result.text == action


@EACH_ERA
@pytest.mark.parametrize("content", [{}, {"nights": "many"}, {"made": "up"}], ids=str)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_values_beside_a_no_are_not_judged(
    era: str, action: Literal["decline", "cancel"], content: dict[str, Any]
) -> None:
    callbacks = Callbacks(elicitation=lambda _request: ElicitationResult(action=action, content=content))
    async with connected(serve(book), era=era, callbacks=callbacks) as connection:
        result = await connection.call_tool("book", {})

    assert result.text == action


@EACH_CARRIER
async def test_a_handler_leads_the_user_to_a_page(carrier: str, era: str) -> None:
    async def pay(ctx: CallContext) -> str:
        return (await ctx.elicit_url("Please pay", "https://pay.test/1")).action

    seen: list[ElicitationRequest] = []

    def visit(request: ElicitationRequest) -> ElicitationResult:
        seen.append(request)
        return ElicitationResult.accept()

    async with connected(serve(pay), carrier, era, callbacks=Callbacks(elicitation=visit)) as connection:
        result = await connection.call_tool("pay", {})

    assert result.text == "accept"
    assert [(request.mode, request.url) for request in seen] == [("url", "https://pay.test/1")]
    assert (seen[0].elicitation_id is not None) == (era == LEGACY)  # 2026-07-28 has none


@EACH_CARRIER
async def test_a_handler_asks_the_clients_model(carrier: str, era: str) -> None:
    async def think(ctx: CallContext) -> str:
        first = SamplingMessage(role="assistant", content=(TextContent(text="Ready."),))
        said = await ctx.sample(["Hello", first], max_tokens=7, system_prompt="Be brief", temperature=0.5)
        return f"{said.text} ({said.model}, {said.stop_reason})"

    seen: list[SamplingRequest] = []

    def complete(request: SamplingRequest) -> SamplingResult:
        seen.append(request)
        return SamplingResult(content="Hi", model="small", stop_reason="maxTokens")

    async with connected(serve(think), carrier, era, callbacks=Callbacks(sampling=complete)) as connection:
        result = await connection.call_tool("think", {})

    assert result.text == "Hi (small, maxTokens)"
    assert [(message.role, message.text) for message in seen[0].messages] == [
        ("user", "Hello"),
        ("assistant", "Ready."),
    ]
    assert (seen[0].max_tokens, seen[0].system_prompt, seen[0].temperature) == (7, "Be brief", 0.5)


@EACH_CARRIER
async def test_a_handler_asks_several_things_at_once(carrier: str, era: str) -> None:
    async def gather(ctx: CallContext) -> str:
        answers = await ctx.ask(
            who=Elicitation("Who?", {"type": "object", "properties": {"name": {"type": "string"}}}),
            what=Sampling("What?"),
            where=Roots(),
        )
        return f"{answers['who'].content['name']}, {answers['what'].text}, {answers['where'][0].uri}"

    callbacks = Callbacks(
        elicitation=lambda _request: {"name": "Ada"}, sampling=lambda _request: "tea", roots=["file:///home/ada"]
    )
    async with connected(serve(gather), carrier, era, callbacks=callbacks) as connection:
        result = await connection.call_tool("gather", {})

    assert result.text == "Ada, tea, file:///home/ada"


@EACH_CARRIER
async def test_a_client_that_cannot_answer_gets_an_error_that_says_what_is_missing(carrier: str, era: str) -> None:
    missing: dict[str, Any] = {"requiredCapabilities": {"elicitation": {"form": {}}}}
    async with connected(serve(book), carrier, era) as connection:
        if connection.protocol_version == "2026-07-28":
            with pytest.raises(ProtocolError) as caught:
                await connection.call_tool("book", {})
            assert (caught.value.code, caught.value.data) == (-32021, missing)
        else:  # which has no such code: the tool has failed
            result = await connection.call_tool("book", {})
            assert result.text == "the client did not declare the capabilities for elicitation/create"
            assert result.require_error().data == missing


@EACH_ERA
async def test_a_handler_that_looks_first_serves_clients_that_cannot_answer(era: str) -> None:
    async def polite(ctx: CallContext) -> str:
        return (await ctx.elicit("Sure?")).action if ctx.can("elicitation") else "assumed"

    async with connected(serve(polite), era=era) as connection:
        result = await connection.call_tool("polite", {})

    assert result.text == "assumed"


async def test_a_handshake_era_client_that_refuses_is_an_error_that_a_handler_can_catch() -> None:
    async def think(ctx: CallContext) -> str:
        try:
            return (await ctx.sample("?")).text
        except ToolError as exc:
            return f"without a model: {exc.message} [{exc.code}]"

    async with connected(serve(think), era=LEGACY, callbacks=Callbacks(sampling=lambda _request: None)) as connection:
        result = await connection.call_tool("think", {})

    assert "the client refused sampling/createMessage" in result.text
    assert "[-1]" in result.text


async def test_a_handshake_era_client_is_asked_on_the_way_and_in_order() -> None:
    async def gather(ctx: CallContext) -> str:
        answers = await ctx.ask(a=Roots(), b=Elicitation("?"))
        return answers["b"].action

    answers: dict[str, Any] = {"roots/list": {"roots": []}, "elicitation/create": {"action": "decline"}}
    peer = Peer(version=LEGACY, answer=answers.__getitem__)

    result = await peer.call(serve(gather), "gather")

    assert result["content"][0]["text"] == "decline"
    assert peer.questions == [
        ("roots/list", {}),
        ("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}),
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [({}, "action"), ({"action": "accept", "content": {"city": 5}}, "city"), ({"action": "accept"}, "city")],
)
async def test_a_malformed_answer_of_a_handshake_era_client_fails_the_tool(answer: Any, said: str) -> None:
    peer = Peer(version=LEGACY, answer=lambda _method: answer)

    result = await peer.call(serve(book), "book")

    assert result["isError"] is True
    assert said in result["content"][0]["text"]


async def test_a_handshake_era_client_that_never_answers_is_given_up() -> None:
    peer = Peer(version=LEGACY, answer=lambda _method: anyio.sleep_forever())

    async def work(ctx: CallContext) -> dict[str, Any]:
        await ctx.list_roots()
        return {}

    with pytest.raises(ToolError, match="did not answer roots/list") as caught:
        await HandlerRunner(timeout=0.01).run(peer.request("tools/call", name="x"), work)

    assert caught.value.kind == "timeout"


@EACH_CARRIER
async def test_a_cancelled_call_ends_the_handler_and_gets_no_answer(carrier: str, era: str) -> None:
    started = anyio.Event()
    ended = anyio.Event()
    finished: list[str] = []

    async def endless() -> str:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return "never"

    async with connected(serve(endless), carrier, era) as connection:

        async def call() -> None:
            await connection.call_tool("endless", {})
            finished.append("answered")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await started.wait()
            tasks.cancel_scope.cancel()
        await ended.wait()

    assert not finished


async def test_a_call_that_is_cancelled_while_its_client_is_asked_ends_too() -> None:
    asked = anyio.Event()

    async def answer(method: str) -> Any:
        asked.set()
        await anyio.sleep_forever()

    peer = Peer(version=LEGACY, capabilities=EVERYTHING, answer=answer)
    results: list[Any] = []

    async def call() -> None:
        results.append(await peer.call(serve(book), "book"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await asked.wait()
        tasks.cancel_scope.cancel()

    assert not results


@EACH_ERA
async def test_a_handler_may_answer_with_a_protocol_error_of_its_own(era: str) -> None:
    async def refuse(ctx: CallContext) -> None:
        raise RequestError("not today", code=-31000, data={"why": "closed"})

    async with connected(serve(refuse), era=era) as connection:
        with pytest.raises(ProtocolError, match="not today") as caught:
            await connection.call_tool("refuse", {})

    assert (caught.value.code, caught.value.data) == (-31000, {"why": "closed"})


@EACH_CARRIER
async def test_prompts_and_resources_may_ask_too(carrier: str, era: str) -> None:
    server = serve()

    @server.prompt
    async def review(ctx: CallContext) -> str:
        """Review a text."""
        answer = await ctx.elicit("Whose?", Typist)
        return f"Review what {answer.value.name if answer.value else 'nobody'} wrote."

    @server.resource("notes://today")
    async def today(ctx: CallContext) -> str:
        """Read the notes of today."""
        return (await ctx.sample("What is today?")).text

    callbacks = Callbacks(elicitation=lambda _request: {"name": "Ada"}, sampling=lambda _request: "Friday")
    async with connected(server, carrier, era, callbacks=callbacks) as connection:
        prompt = await connection.get_prompt("review")
        (note,) = await connection.read_resource("notes://today")

    assert prompt.messages[0].content.render() == "Review what Ada wrote."
    assert note.text == "Friday"
