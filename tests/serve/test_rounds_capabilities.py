"""The declared capabilities of a client decide its requests (-32021), seen without a carrier."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.lines import EVERYTHING, Peer
from toolweave.errors import RequestError
from toolweave.serve import McpServer, create_mcp_server
from toolweave.serve.request import Json
from toolweave.tools import CallContext, Elicitation, Roots, Sampling


def serve(*tools: Any) -> McpServer:
    return create_mcp_server(name="asks", version="1", tools=list(tools))


async def three_at_once(ctx: CallContext) -> None:
    await ctx.ask(user=Elicitation("Who?"), capital=Sampling("Of France?"), dirs=Roots())


async def ask_form(ctx: CallContext) -> None:
    await ctx.elicit("?")


async def ask_page(ctx: CallContext) -> None:
    await ctx.elicit_url("?", "https://pay.test")


async def ask_model(ctx: CallContext) -> None:
    await ctx.sample("?")


async def ask_model_with_tools(ctx: CallContext) -> None:
    await ctx.ask(a=Sampling("?", tools=[{"name": "t", "inputSchema": {"type": "object"}}]))


async def ask_model_with_context(ctx: CallContext) -> None:
    await ctx.ask(a=Sampling("?", more={"includeContext": "thisServer"}))


async def ask_roots(ctx: CallContext) -> None:
    await ctx.list_roots()


@pytest.mark.parametrize(
    ("tool", "declared", "required"),
    [
        (ask_form, {}, {"elicitation": {"form": {}}}),
        (ask_form, {"elicitation": {"url": {}}, "sampling": {}}, {"elicitation": {"form": {}}}),
        (ask_page, {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (ask_model, {"elicitation": {}}, {"sampling": {}}),
        (ask_model_with_tools, {"sampling": {}}, {"sampling": {"tools": {}}}),
        (ask_model_with_context, {"sampling": {}}, {"sampling": {"context": {}}}),
        (ask_roots, {"sampling": {}}, {"roots": {}}),
        (three_at_once, {"roots": {}}, {"elicitation": {"form": {}}, "sampling": {}}),
    ],
)
async def test_what_the_client_did_not_declare_is_not_asked(tool: Any, declared: Json, required: Json) -> None:
    with pytest.raises(RequestError) as caught:
        await Peer(capabilities=declared).call(serve(tool), tool.__name__)

    assert caught.value.code == -32021
    assert caught.value.data == {"requiredCapabilities": required}


@pytest.mark.parametrize(
    ("declared", "able"),
    [
        ({}, []),
        ({"elicitation": {}}, ["elicitation"]),
        ({"elicitation": {"url": {}}}, ["elicitation.url"]),
        ({"sampling": {}, "roots": {"listChanged": True}}, ["sampling", "roots"]),
        ({"sampling": "yes"}, []),
        (EVERYTHING, ["elicitation", "elicitation.url", "sampling", "sampling.tools", "sampling.context", "roots"]),
    ],
)
async def test_a_handler_can_look_what_the_client_answers(declared: Json, able: list[str]) -> None:
    def abilities(ctx: CallContext) -> str:
        every = ("elicitation", "elicitation.url", "sampling", "sampling.tools", "sampling.context", "roots")
        return ",".join(what for what in every if ctx.can(what))

    result = await Peer(capabilities=declared).call(serve(abilities), "abilities")

    assert result["content"][0]["text"].split(",") == (able or [""])
