"""Resources whose URIs clients send in another spelling than they were listed in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from toolweave import McpConnection, ProtocolError, connect_mcp_servers
from toolweave.connect import ResourceUpdated
from toolweave.gateway import create_gateway
from toolweave.middleware import AccessRule, AccessRules
from toolweave.serve import McpServer, Middleware, create_mcp_server

SPELLINGS = [
    ("file:///docs/caf%C3%A9/a.txt", "file a.txt"),
    ("file:///docs/caf%c3%a9/a.txt", "file a.txt"),
    ("file:///docs/café/a.txt", "file a.txt"),
    ("FILE:///docs/café/a%20b.txt", "file a b.txt"),
    ("file:///my%20docs/plain.txt", "plain"),
    ("file:///my docs/plain.txt", "plain"),
    ("file:///docs/café/2026%2Fmay.txt", "file 2026/may.txt"),
    ("notes://%C3%9Cberblick", "overview"),
    ("notes://all", "all"),
    ("Notes://all", "all"),
    ("http://docs.example/", "home"),
    ("http://docs.example", "home"),
    ("HTTP://DOCS.example", "home"),
]
OTHERS = [
    "notes://All",
    "notes://all/",
    "http://docs.example/x",
    "file:///docs/caf%C3%A9/..%2Fa",
    "file:///docs/caf%C3%A9/a%2F..%2F..%2Fb",
    "file:///docs/caf%C3%A9/%2Fetc",
    "file:///docs/caf%C3%A9/a/b",
    "file:///docs/cafe/a",
]


def library(*middleware: Middleware) -> McpServer:
    server = create_mcp_server("library", middleware=middleware)

    @server.resource("file:///docs/café/{name}")
    def one_file(name: str) -> str:
        return f"file {name}"

    fixed = {
        "file:///my docs/plain.txt": "plain",
        "notes://Überblick": "overview",
        "Notes://all": "all",
        "http://docs.example": "home",
    }
    for number, (uri, text) in enumerate(fixed.items()):
        server.resource(uri, name=f"fixed_{number}")(_constant(text))
    return server


def _constant(text: str) -> Callable[[], str]:
    return lambda: text


def mounting(server: McpServer) -> McpServer:
    outer = create_mcp_server("outer")
    outer.mount(server, "inner")
    return outer


PLACES: dict[str, Callable[[], Any]] = {
    "server": library,
    "mounted": lambda: mounting(library()),
    "gateway": lambda: create_gateway({"library": {"server": library()}}),
}


@EACH_CARRIER
@pytest.mark.parametrize("place", PLACES)
async def test_a_resource_is_read_in_every_spelling_of_its_uri(place: str, carrier: str, era: str) -> None:
    async with connected(PLACES[place](), carrier, era) as connection:
        for uri, text in SPELLINGS:
            (content,) = await connection.read_resource(uri)
            assert (uri, content.text) == (uri, text)
        for uri in OTHERS:
            with pytest.raises(ProtocolError):
                await connection.read_resource(uri)


async def test_a_hub_and_a_server_of_a_hub_read_a_resource_in_every_spelling() -> None:
    async with connect_mcp_servers({"library": {"server": library()}}) as hub:
        served = create_mcp_server("outer")
        served.mount(hub, "inner")
        async with connected(served) as connection:
            for uri, text in SPELLINGS:
                assert [one.text for one in await hub.read_resource(uri)] == [text]
                assert [one.text for one in await connection.read_resource(uri)] == [text]


class OnlyAsListed:
    """A source that finds a resource by the URI in its list alone."""

    async def resources(self) -> list[dict[str, Any]]:
        return [{"uri": "notes://Überblick", "name": "overview"}]

    async def templates(self) -> list[dict[str, Any]]:
        return []

    async def read(self, uri: str, ctx: Any) -> dict[str, Any] | None:
        return {"contents": [{"uri": uri, "text": "overview"}]} if uri == "notes://Überblick" else None

    def subscribe(self, listener: Callable[[Any], None]) -> Callable[[], None]:
        return lambda: None


@EACH_ERA
async def test_an_upstream_is_sent_the_uri_as_it_listed_it(era: str) -> None:
    upstream = create_mcp_server("upstream", resources=[OnlyAsListed()])
    gateway: Any = create_gateway({"a": {"server": upstream}})
    async with connected(gateway, "inprocess", era) as connection:
        (content,) = await connection.read_resource("notes://%C3%9Cberblick")
        assert content.text == "overview"


@asynccontextmanager
async def updates_of(connection: McpConnection, uri: str) -> AsyncGenerator[list[str], None]:
    received: list[str] = []

    def listener(update: ResourceUpdated) -> None:
        received.append(update.uri)

    leave = await connection.subscribe_resource(uri, listener)
    yield received
    leave()


@EACH_CARRIER
@pytest.mark.parametrize("relayed", [False, True], ids=["server", "gateway"])
async def test_updates_reach_a_subscriber_that_spells_the_uri_otherwise(relayed: bool, carrier: str, era: str) -> None:
    server = library()
    offered: Any = create_gateway({"library": {"server": server}}) if relayed else server
    async with (
        connected(offered, carrier, era) as connection,
        updates_of(connection, "notes://%C3%9Cberblick") as received,
    ):
        server.resources.updated("notes://Überblick")
        with anyio.fail_after(10):
            while not received:
                await anyio.sleep(0.01)


@EACH_ERA
@pytest.mark.parametrize("relayed", [False, True], ids=["server", "gateway"])
async def test_a_rule_about_a_resource_holds_for_every_spelling_of_its_uri(relayed: bool, era: str) -> None:
    denied = ["http://docs.example", "notes://Überblick", "Notes://all", "file:///my docs/plain.txt"]
    denied.append("file:///docs/café/2026/*")
    rules = AccessRules(rules=[AccessRule(effect="deny", names=denied)], default="allow")
    offered: Any = library(rules)
    if relayed:
        offered = create_gateway({"library": {"server": library()}}, middleware=[rules])
    async with connected(offered, "inprocess", era) as connection:
        for uri, text in SPELLINGS:
            if text in ("file a.txt", "file a b.txt"):
                continue
            with pytest.raises(ProtocolError):
                await connection.read_resource(uri)
