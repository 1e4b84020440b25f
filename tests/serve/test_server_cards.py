"""Server cards (SEP-2127): what servers and gateways publish of themselves, and how clients read it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from tests.cli.command import toolweave
from tests.gateway.running import gateway, upstream, write_gateway_config
from tests.serve.exchanges import Answer, exchange
from tests.serve.serving import served_http
from toolweave import create_mcp_server
from toolweave.connect import CardRemote, ServerCard, find_server_cards
from toolweave.errors import ConfigError
from toolweave.serve import ApiKey, ApiKeyAuth, BearerAuth

CARD_TYPE = "application/mcp-server-card+json"
CATALOG = "/.well-known/ai-catalog.json"
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
KEY = "a-key-of-sixteen-characters-or-more"


def weather() -> Any:
    """Return a server with a tool and instructions, which no card may show."""
    server = create_mcp_server(name="weather", title="Weather", version="1.2.3", instructions="a secret instruction")

    @server.tool
    def secret_tool() -> str:
        """Hidden."""
        return ""

    return server


async def get(url: str, path: str, method: str = "GET", **headers: str) -> Answer:
    """Return the response at a path of the host of a URL."""
    return await exchange(url, method, path=path, headers=headers)


async def test_a_server_publishes_its_card_below_its_endpoint_and_lists_it_in_the_catalog_of_its_host() -> None:
    async with served_http(weather()) as url:
        card = await get(url, "/mcp/server-card")
        catalog = await get(url, CATALOG)
        head = await get(url, "/mcp/server-card", "HEAD")
        preflight = await get(url, CATALOG, "OPTIONS", Origin="https://page.example")
        post = await get(url, "/mcp/server-card", "POST")

    host = urlsplit(url).netloc
    assert card.json() == {
        "$schema": SCHEMA,
        "name": "127.0.0.1/weather",
        "version": "1.2.3",
        "title": "Weather",
        "description": "Weather",
        "remotes": [{"type": "streamable-http", "url": f"http://{host}/mcp", "supportedProtocolVersions": VERSIONS}],
    }
    assert (card.headers["content-type"], card.headers["access-control-allow-origin"]) == (CARD_TYPE, "*")
    assert catalog.json() == {
        "specVersion": "0.9",
        "entries": [
            {
                "identifier": "urn:air:127.0.0.1:mcp:weather",
                "type": CARD_TYPE,
                "url": f"http://{host}/mcp/server-card",
            }
        ],
    }
    assert catalog.headers["content-type"] == "application/ai-catalog+json"
    assert "max-age" in catalog.headers["cache-control"]
    assert (head.status, head.body, preflight.status, post.status) == (200, b"", 204, 405)
    assert b"secret" not in card.body + catalog.body


async def test_cards_have_the_address_that_clients_know_and_can_be_switched_off() -> None:
    async with served_http(weather(), server_card="https://tools.example") as url:
        named = (await get(url, "/mcp/server-card")).json()
    async with served_http(weather()) as url:
        proxied = (await get(url, "/mcp/server-card", **{"X-Forwarded-Proto": "https"})).json()
        foreign = await get(url, "/mcp/server-card", Host="evil.example")
    async with served_http(weather(), server_card=False) as url:
        off = [(await get(url, path)).status for path in ("/mcp/server-card", CATALOG)]

    assert (named["name"], named["remotes"][0]["url"]) == ("example.tools/weather", "https://tools.example/mcp")
    assert (
        proxied["remotes"][0]["url"]
        == f"https://{urlsplit(url).netloc.rpartition(':')[0]}:" + (proxied["remotes"][0]["url"].rpartition(":")[2])
    )
    assert foreign.status == 421
    assert off == [404, 404]
    with pytest.raises(ConfigError, match="server_card"):
        weather().asgi_app(server_card="tools.example")


async def test_a_server_that_needs_a_token_says_so_and_one_at_which_clients_sign_in_says_where_it_is() -> None:
    signs_in = BearerAuth(
        tokens={KEY: "ada"}, resource="https://tools.example/mcp", authorization_servers=["https://issuer.example"]
    )
    async with served_http(weather(), auth=ApiKeyAuth([ApiKey(name="ada", key=KEY)])) as url:
        given = (await get(url, "/mcp/server-card")).json()["remotes"][0]
    async with served_http(weather(), auth=signs_in) as url:
        signed = (await get(url, "/mcp/server-card")).json()["remotes"][0]

    assert given["headers"][0] | {"description": ""} == {
        "name": "Authorization",
        "description": "",
        "isRequired": True,
        "isSecret": True,
    }
    assert (signed["url"], "headers" in signed) == ("https://tools.example/mcp", False)


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{}, {"ada": KEY}])
async def test_each_virtual_server_has_a_card_and_the_catalog_lists_them_for_gateways_that_need_no_token(
    tmp_path: Path, keys: dict[str, str]
) -> None:
    section: dict[str, Any] = {"name": "team", "virtual": {"docs": {"title": "Documents"}}}
    if keys:
        section["auth"] = {"api_keys": keys}
    config = write_gateway_config(tmp_path, {"private-name": upstream(tmp_path, "private-name")}, section)
    with gateway(tmp_path, config) as running:
        cards = [running.spoken("GET", path).json for path in ("/mcp/server-card", "/mcp/docs/server-card")]
        catalog = running.spoken("GET", CATALOG)
        write_gateway_config(tmp_path, {}, {**section, "virtual": {}})
        running.admin("POST", "/reload", {"confirmed": True})
        gone = running.spoken("GET", "/mcp/docs/server-card").status

    assert [one["name"] for one in cards] == ["127.0.0.1/team", "127.0.0.1/docs"]
    assert [one["remotes"][0]["url"] for one in cards] == [f"{running.base}/mcp", f"{running.base}/mcp/docs"]
    assert ["docs" in catalog.text, "team" in catalog.text] == [not keys, True]
    assert "private-name" not in json.dumps(cards) + catalog.text
    assert gone == 404


async def test_a_gateway_without_cards_has_none(tmp_path: Path) -> None:
    config = write_gateway_config(tmp_path, {}, {"server_card": False})
    with gateway(tmp_path, config) as running:
        assert running.spoken("GET", "/mcp/server-card").status == 404


# reading


@asynccontextmanager
async def host(documents: dict[str, Any]) -> AsyncGenerator[str]:
    """Serve JSON documents by their paths; yield the address."""

    async def answered(stream: Any) -> None:
        async with stream:
            path = (await stream.receive()).split(b" ")[1].decode()
            found = documents.get(path)
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            status = "404 Not Found" if found is None else "200 OK"
            await stream.send(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answered)
        yield f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


async def test_the_card_of_an_endpoint_is_read_and_so_are_the_cards_of_a_host() -> None:
    async with served_http(weather()) as url:
        of_endpoint = await find_server_cards(url)
        of_host = await find_server_cards(url.removesuffix("/mcp"))
        of_card = await find_server_cards(url + "/server-card")

    expected = ServerCard(
        name="127.0.0.1/weather",
        version="1.2.3",
        title="Weather",
        description="Weather",
        remotes=(CardRemote(url=url, versions=tuple(VERSIONS)),),
        url=url + "/server-card",
    )
    assert of_endpoint.cards == of_host.cards == of_card.cards == (expected,)
    assert of_endpoint.problems == of_host.problems == ()


async def test_a_wrong_part_of_a_card_is_left_out_and_reported() -> None:
    documents: dict[str, Any] = {
        "/mcp/server-card": {
            "name": "no slash",
            "version": 3,
            "description": "A server.",
            "websiteUrl": "javascript:alert(1)",
            "remotes": [
                {"type": "carrier-pigeon", "url": "https://a.example/mcp"},
                {"type": "sse", "url": "file:///etc/passwd"},
                {"type": "streamable-http", "url": "https://{tenant}.example/mcp", "headers": [{"name": "X-Key"}, {}]},
            ],
            "packages": [{"unknown": True}],
        }
    }
    async with host(documents) as base:
        found = await find_server_cards(base + "/mcp")

    (card,) = found.cards
    assert card.remotes == (CardRemote(url="https://{tenant}.example/mcp", headers=("X-Key",)),)
    assert card.remotes[0].has_variables
    assert (card.version, card.website_url) == ("", "")
    assert card.problems == (
        "'name' is not a domain in reverse and a name",
        "'version' is not a text",
        "'websiteUrl' is not a web address",
        "remote 1 has an unknown type and was left out",
        "remote 2 has no web address and was left out",
    )


async def test_entries_of_a_catalog_that_cannot_be_read_cost_only_themselves() -> None:
    card = {"name": "example/embedded", "version": "1", "description": "d"}
    entries: list[Any] = [
        {"identifier": "other", "type": "application/a2a-agent-card+json", "url": "https://a.example"},
        {"identifier": "inside", "type": CARD_TYPE, "data": card},
        {"identifier": "missing", "type": CARD_TYPE, "url": "BASE/none"},
        {"identifier": "no-address", "type": CARD_TYPE},
        "not an object",
    ]
    documents: dict[str, Any] = {}
    async with host(documents) as base:
        text = json.dumps({"specVersion": "2.0", "entries": entries}).replace("BASE", base)
        documents[CATALOG] = text.encode()
        found = await find_server_cards(base)
        documents[CATALOG] = b"{}"
        broken = await find_server_cards(base)

    assert [one.name for one in found.cards] == ["example/embedded"]
    assert found.problems == (
        "entry 4 has no address and no card, and was left out",
        "entry 'missing' was left out: HTTP 404",
    )
    assert (broken.cards, "has no 'entries'" in broken.problems[0]) == ((), True)


@pytest.mark.slow
async def test_the_commands_show_cards(tmp_path: Path) -> None:
    async with served_http(weather()) as url:

        def commands() -> list[Any]:
            host_url = url.removesuffix("/mcp")
            return [
                toolweave("search", host_url),
                toolweave("search", host_url, "--json"),
                toolweave("search", host_url, "word"),
                toolweave("doctor", "--url", url, cwd=tmp_path),
            ]

        shown, as_json, wrong, doctor = await anyio.to_thread.run_sync(commands)

    assert (shown.code, "127.0.0.1/weather" in shown.out, url in shown.out) == (0, True, True), shown.err
    assert json.loads(as_json.out)["cards"][0]["version"] == "1.2.3"
    assert (wrong.code, "searched alone" in wrong.err) == (2, True)
    assert "card      127.0.0.1/weather 1.2.3" in doctor.out
