"""Rules of the specification about what goes over the wire, that a handler or a peer would break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from tests.serve.exchanges import call, handshake
from tests.serve.raw import ENVELOPE, MODERN, raw_client
from tests.serve.serving import served_http
from toolweave import Callbacks, McpConnection, ProtocolError
from toolweave.connect import ElicitationRequest, ElicitationResult, Root
from toolweave.gateway import create_gateway
from toolweave.protocol.meta import CLIENT_CAPABILITIES
from toolweave.protocol.uris import web_address_problem
from toolweave.serve import McpServer, create_mcp_server
from toolweave.tools import CallContext, tool

ODD_ADDRESSES = [
    "not a url",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "https://bank.example@evil.test/",
    "https://user:password@a.test/",
    "https://evil.test\\@bank.example/",
    "https://evil.test/\u202egnp.exe",
    "https://evil.test/\r\nx",
    "  https://a.test/",
    "https://",
    "https:evil.test",
    "//evil.test",
    "https://a.test:99999/",
    "https://[::1/",
    "https://a.test/" + "a" * 100_000,
]


async def fails(connection: McpConnection, name: str) -> bool:
    """Whether a call fails: with a result in the handshake era, with an error of the request since 2026-07-28."""
    try:
        return (await connection.call_tool(name, {})).is_error
    except ProtocolError:
        return True


@pytest.mark.parametrize(
    "address", ["https://a.test/x?y=1#z", "HTTPS://A.test/", "http://127.0.0.1:1/", "https://bücher.test/"]
)
def test_an_address_of_the_web_is_one_that_a_person_can_be_sent_to(address: str) -> None:
    assert web_address_problem(address) is None


@EACH_CARRIER
async def test_a_handler_cannot_send_the_user_to_an_address_that_is_not_one(carrier: str, era: str) -> None:
    asked: list[str | None] = []

    async def visit(ctx: CallContext, address: str) -> str:
        return (await ctx.elicit_url("Visit", address)).action

    async def elicit(request: ElicitationRequest) -> ElicitationResult:
        asked.append(request.url)
        return ElicitationResult.accept()

    server = create_mcp_server("s", tools=[visit], expose_errors="message")
    async with connected(server, carrier, era, callbacks=Callbacks(elicitation=elicit)) as connection:
        for address in ODD_ADDRESSES:
            result = await connection.call_tool("visit", {"address": address})
            assert result.is_error
            assert "cannot be asked to visit" in result.text
        assert (await connection.call_tool("visit", {"address": "https://a.test/"})).text == "accept"
    assert asked == ["https://a.test/"]


UNSAFE = [{"src": "javascript:alert(1)"}, {"src": " file:///etc/passwd"}, {"src": 5}, {}]
SAFE = [{"src": "https://a.test/i.png"}, {"src": "data:image/png;base64,AA=="}]


def drawn() -> McpServer:
    icons: Any = [*UNSAFE, *SAFE]
    server = create_mcp_server("s", icons=icons)

    def act() -> str:
        return "done"

    server.tool(icons=icons)(act)
    server.prompt(icons=icons)(act)
    server.resource("notes://a", icons=icons)(act)
    server.resource("notes://{name}", icons=icons)(_named)
    return server


def _named(name: str) -> str:
    return name


@EACH_ERA
@pytest.mark.parametrize("relayed", [False, True], ids=["direct", "gateway"])
async def test_icons_with_unsafe_addresses_are_dropped(relayed: bool, era: str) -> None:
    offered: Any = create_gateway({"s": {"server": drawn()}}) if relayed else drawn()
    async with connected(offered, "inprocess", era) as connection:
        definitions = [
            *(await connection.list_prompts()),
            *(await connection.list_resources()),
            *(await connection.list_resource_templates()),
            *(one.spec for one in await connection.list_tools()),
        ]
        assert len(definitions) == 4
        for definition in definitions:
            assert list(definition.icons) == SAFE
        if not relayed:
            assert connection.server_info["icons"] == SAFE
    if relayed:
        async with raw_client(offered, era) as client:
            for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
                assert "javascript:" not in str(await client.ask(client.request(method)))


def test_a_root_is_a_file() -> None:
    assert Root.of("file:///a").uri == "file:///a"
    assert Root.of(Path("/a")).uri == "file:///a"
    for other in ("http://x.example/", Root(uri="https://x.example/")):
        with pytest.raises(ValueError, match="is not a file:// URI"):
            Root.of(other)


@EACH_CARRIER
async def test_a_root_that_is_not_a_file_is_refused_by_the_server_that_asked(carrier: str, era: str) -> None:
    async def where(ctx: CallContext) -> list[str]:
        return [root.uri for root in await ctx.list_roots()]

    async def roots() -> list[Root]:
        return [Root(uri="http://x.example/")]

    server = create_mcp_server("s", tools=[where], expose_errors="message")
    async with connected(server, carrier, era, callbacks=Callbacks(roots=roots)) as connection:
        assert await fails(connection, "where")


@pytest.mark.parametrize("declared", [{"elicitation": 5}, {"sampling": None}, {"roots": []}, {"extensions": "x"}])
async def test_a_capability_that_is_not_an_object_is_refused_in_the_modern_era(declared: dict[str, Any]) -> None:
    async with raw_client(create_mcp_server("s", tools=[_named]), MODERN) as client:
        meta = ENVELOPE | {CLIENT_CAPABILITIES: declared}
        answer = await client.ask(client.request("tools/list", {"_meta": meta}))
        assert answer["error"]["code"] == -32602
        assert next(iter(declared)) in answer["error"]["message"]


FORM = {
    "type": "object",
    "properties": {
        "mail": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
        "page": {"type": "string", "format": "uri"},
        "time": {"type": "string", "format": "date-time"},
    },
}


@EACH_CARRIER
@pytest.mark.parametrize(
    ("content", "fits"),
    [
        ({"mail": "a@b.example", "day": "2026-11-28", "page": "https://a.test/", "time": "2026-11-28T10:00:00Z"}, True),
        ({"mail": "nobody"}, False),
        ({"day": "28.11.2026"}, False),
        ({"page": "not a uri"}, False),
        ({"time": "now"}, False),
    ],
)
async def test_the_formats_of_an_answer_are_checked(
    content: dict[str, str], fits: bool, carrier: str, era: str
) -> None:
    async def ask(ctx: CallContext) -> str:
        return (await ctx.elicit("Who?", FORM)).action

    async def elicit(request: ElicitationRequest) -> ElicitationResult:
        return ElicitationResult.accept(content)

    server = create_mcp_server("s", tools=[tool(ask)])
    async with connected(server, carrier, era, callbacks=Callbacks(elicitation=elicit)) as connection:
        assert await fails(connection, "ask") is not fits


async def test_a_completion_ignores_parameters_of_rounds_of_input() -> None:
    server = create_mcp_server("s")
    server.resource("notes://{name}")(_named)

    @server.completion(ref="resource:notes://{name}", argument="name")
    def names(text: str) -> list[str]:
        return [f"{text}da"]

    async with raw_client(server, MODERN) as client:
        params = {
            "ref": {"type": "ref/resource", "uri": "notes://{name}"},
            "argument": {"name": "name", "value": "A"},
            "requestState": "forged",
            "inputResponses": {"a": 1},
        }
        answer = await client.ask(client.request("completion/complete", params))
        assert "result" in answer, answer
        assert answer["result"]["completion"]["values"] == ["Ada"]


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/*, text/*", 200),
        ("*/*", 200),
        ("application/json;q=0.5, text/event-stream", 200),
        ("application/json, text/event-stream;q=0", 406),
        ("application/json", 406),
        ("text/*", 406),
        ("application/jsonx, text/event-stream", 406),
    ],
)
async def test_media_ranges_of_accept_count(accept: str, status: int) -> None:
    async with served_http(create_mcp_server("s", tools=[_named])) as url:
        assert (await call(url, "_named", {"name": "a"}, headers={"Accept": accept})).status == status
        assert (await handshake(url, {"Accept": accept}))[0].status == status
