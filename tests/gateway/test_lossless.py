"""A strange upstream asked directly and through the gateway: equal as JSON, apart from what is of one hop only."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests.gateway import strange_server
from tests.gateway.upstreams import LEGACY, MODERN, UPSTREAMS, Json, caller, pages, strange, strange_directly
from tests.serve.raw import Raw
from toolweave.gateway import create_gateway
from toolweave.protocol.meta import SERVER_INFO

pytestmark = pytest.mark.slow

PAIRS = pytest.mark.parametrize(
    ("era", "transport", "version"),
    [
        ("modern", "stdio", MODERN),
        ("modern", "http", MODERN),
        ("legacy", "stdio", LEGACY),
        ("legacy", "http", LEGACY),
        ("legacy", "stdio", MODERN),
        ("modern", "http", LEGACY),
    ],
)
OF_AN_ERA = frozenset({"resultType", "ttlMs", "cacheScope"})
LISTS = {method: member for method, (member, _) in strange_server.PAGES.items()}


@asynccontextmanager
async def both(era: str, transport: str, version: str) -> AsyncGenerator[tuple[Raw, Raw]]:
    """Yield a caller of the strange server itself, in its own era, and one of a gateway before it."""
    async with (
        strange(era, transport) as entry,
        strange_directly(era) as direct,
        caller(create_gateway({"strange": entry}, page_size=50), version) as through,
    ):
        yield direct, through


def plain(result: Json, *, eras: bool) -> Json:
    """Return a result without the members of the hop, and without those of an era where two eras are compared."""
    made = {name: value for name, value in result.items() if not (eras and name in OF_AN_ERA)}
    meta = {name: value for name, value in made.get("_meta", {}).items() if name not in (SERVER_INFO, UPSTREAMS)}
    return {name: value for name, value in made.items() if name != "_meta"} | ({"_meta": meta} if meta else {})


async def asked(direct: Raw, through: Raw, method: str, params: Json) -> tuple[Json, Json]:
    """Return the outcomes of one request made both ways."""
    eras = direct.version != through.version
    found: list[Json] = []
    for raw in (direct, through):
        answer = await raw.ask(raw.request(method, params))
        found.append(plain(answer["result"], eras=eras) if "result" in answer else {"error": answer["error"]})
    return found[0], found[1]


@PAIRS
@pytest.mark.parametrize("method", LISTS)
async def test_every_definition_comes_as_it_is(era: str, transport: str, version: str, method: str) -> None:
    async with both(era, transport, version) as (direct, through):
        mine, theirs = [await pages(raw, method) for raw in (direct, through)]

    wanted, found = [[entry for page in listed for entry in page[LISTS[method]]] for listed in (mine, theirs)]
    assert found == wanted
    about = [plain({**listed[0], LISTS[method]: 0}, eras=era_differs(direct, through)) for listed in (mine, theirs)]
    assert [{**one, "nextCursor": 0} for one in about[:1]] == [{**one, "nextCursor": 0} for one in about[1:]]


def era_differs(direct: Raw, through: Raw) -> bool:
    """Whether two callers speak different revisions."""
    return direct.version != through.version


@PAIRS
async def test_the_upstream_describes_itself_through_the_gateway(era: str, transport: str, version: str) -> None:
    async with strange(era, transport) as entry:
        gateway = create_gateway({"strange": entry})
        async with gateway as channel:
            raw = Raw(channel.send, channel.receive)
            hello = await raw.shake_hands(version)
            if version == MODERN:
                raw.version = MODERN
                found = (await raw.ask(raw.request("server/discover")))["result"]
                info = found["_meta"][SERVER_INFO]
            else:
                found = hello["result"]
                info = found["serverInfo"]

    assert info == strange_server.INFO
    assert found["instructions"] == strange_server.INSTRUCTIONS
    told = strange_server.EXTENSIONS if era == "modern" else {}
    if version != MODERN:  # of an era that has no extensions, but for those that are the same in every one
        told = {name: value for name, value in told.items() if name == "io.modelcontextprotocol/ui"}
    assert found["capabilities"] == {**strange_server.CAPABILITIES, **({"extensions": told} if told else {})}


@PAIRS
@pytest.mark.parametrize("tool", [*strange_server.RESULTS, *strange_server.ERRORS])
async def test_every_result_and_error_of_a_call_comes_as_it_is(
    era: str, transport: str, version: str, tool: str
) -> None:
    async with both(era, transport, version) as (direct, through):
        wanted, found = await asked(direct, through, "tools/call", {"name": tool, "arguments": {}})

    assert found == wanted


@PAIRS
async def test_arguments_and_meta_arrive_as_they_were_sent(era: str, transport: str, version: str) -> None:
    arguments = {"big": 2**70, "exp": 1e300, "null": None, "deep": [[{"": [None]}]], "text": "\u2028 ü 😀"}
    meta = {"traceparent": "00-1", "vendor.example/k": {"deep": [None]}}
    async with both(era, transport, version) as (direct, through):
        params = {"name": "echo", "arguments": arguments, "_meta": meta}
        wanted, found = await asked(direct, through, "tools/call", params)

    assert found == wanted
    assert cast("Any", found)["structuredContent"] == {"arguments": arguments, "meta": meta}


@PAIRS
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "ask/all", "arguments": {"a": "1"}}),
        ("resources/read", {"uri": "strange://one?q=%C3%BC#f"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "p1"}, "argument": {"name": "a", "value": ""}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "strange://{+path}{?q*}"}, "argument": {"name": "q", "value": "x"}},
        ),
    ],
)
async def test_prompts_resources_and_completions_come_as_they_are(
    era: str, transport: str, version: str, method: str, params: Json
) -> None:
    async with both(era, transport, version) as (direct, through):
        wanted, found = await asked(direct, through, method, params)

    assert found == wanted
