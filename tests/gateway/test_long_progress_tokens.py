"""A progress token comes back with each report: one that is too long gets no reports, whatever stands between."""

from __future__ import annotations

import pytest

from tests.gateway.plain_callers import Ways, never_at_once, plain
from tests.gateway.relayed import CALLERS, MODERN, Json, gateway_to
from tests.gateway.upstreams import strange
from tests.serve.serving import served_http
from tests.serve.talking import talking
from toolweave import CallContext
from toolweave.errors import RequestError
from toolweave.serve import create_mcp_server


async def work(ctx: CallContext) -> str:
    await ctx.progress(1, total=2)
    await ctx.progress(2, total=2)
    return "done"


@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "gateway"])
@pytest.mark.parametrize("version", CALLERS)
async def test_a_token_of_more_than_1024_characters_gets_no_reports(version: str, relayed: bool) -> None:
    own = create_mcp_server(name="works", version="1", tools=[work])
    server = gateway_to({"server": own, "tool_prefix": ""}) if relayed else own
    async with talking(server, version) as talk:

        async def told(token: str) -> tuple[str, set[str]]:
            before = len(talk.notifications)
            meta: Json = {"progressToken": token}
            params: Json = {"name": "work", "arguments": {}}
            try:
                if version == MODERN:
                    result = await talk.ask("tools/call", params, **meta)
                else:
                    result = await talk.ask("tools/call", {**params, "_meta": meta})
            except RequestError as error:
                return str(error), {one["method"] for one in talk.notifications[before:]}
            tokens = {one["params"]["progressToken"] for one in talk.notifications[before:] if "params" in one}
            return result["content"][0]["text"], tokens

        assert await told("t" * 1_024) == ("done", {"t" * 1_024})
        text, reports = await told("t" * 1_025)

    assert reports == set()
    assert ("1,024 characters" in text) if version == MODERN else (text == "done")


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_upstream_is_asked_for_progress_only_if_its_caller_gets_it(at_once: bool) -> None:
    ways = Ways()
    asked: list[bool] = []
    async with strange("legacy", "stdio") as config:
        gateway = gateway_to(config if at_once else never_at_once(config), middleware=[ways])
        async with served_http(gateway) as url, plain(url, "2025-11-25") as client:
            for token in ("t" * 1_024, 7, "t" * 1_025, True, 1.5, None, ["t"]):
                _, _, answer = await client.ask(*client.call("echo", {}, _meta={"progressToken": token}))
                asked.append("progressToken" in answer["result"]["structuredContent"]["meta"])

    assert asked == [True, True, False, False, False, False, False]
    assert ways.fast == (["echo", "echo"] if at_once else [])
