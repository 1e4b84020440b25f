"""The headers of the HTTP request, as a tool sees them."""

from __future__ import annotations

import pytest

from tests.serve.carriers import ERAS, connected
from tests.serve.serving import served_http
from toolweave import CallContext, connect_mcp, create_mcp_server
from toolweave.serve import BearerAuth, McpServer

TOKEN = "a-token-of-16-chars"
SENT = {
    "x-tenant-id": "acme",
    "X-Request": "7",
    "cookie": "a=b",
    "x-api-key": "secret",
    "authorization": f"Bearer {TOKEN}",
}


async def seen(ctx: CallContext) -> dict[str, str]:
    return {name: ctx.headers.get(name, "") for name in (*map(str.lower, SENT), "X-Tenant-Id")}


def seen_in_a_thread(ctx: CallContext) -> dict[str, str]:
    return {name: ctx.headers.get(name, "") for name in (*map(str.lower, SENT), "X-Tenant-Id")}


def serving() -> McpServer:
    inner = create_mcp_server("inner", tools=[seen])
    server = create_mcp_server("s", tools=[seen, seen_in_a_thread], tasks={"seen_in_a_thread": "optional"})
    server.mount(inner, "inner")
    return server


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("stateless", [True, False])
@pytest.mark.parametrize("name", ["seen", "seen_in_a_thread", "inner_seen"])
async def test_a_tool_sees_the_headers_of_its_own_request_without_credentials(
    era: str, stateless: bool, name: str
) -> None:
    auth = BearerAuth(tokens=[TOKEN])
    async with (
        served_http(serving(), stateless=stateless, auth=auth) as url,
        connect_mcp({"url": url, "protocol": era, "headers": SENT}) as client,
    ):
        found = (await client.call_tool(name)).structured_content
        again = (await client.call_tool(name)).structured_content
    wanted = {
        "x-tenant-id": "acme",
        "x-request": "7",
        "cookie": "",
        "x-api-key": "",
        "authorization": "",
        "X-Tenant-Id": "",
    }
    assert found == again == wanted


async def test_a_call_without_http_has_no_headers() -> None:
    def count(ctx: CallContext) -> str:
        return str(dict(ctx.headers))

    async with connected(create_mcp_server("s", tools=[count])) as client:
        assert (await client.call_tool("count")).text == "{}"
    assert CallContext().headers == {}


async def test_a_mounted_tool_sees_the_claims_of_the_caller() -> None:
    inner = create_mcp_server("inner")

    @inner.tool
    def claims(ctx: CallContext) -> str:
        return str(dict(ctx.claims))

    server = create_mcp_server("s")
    server.mount(inner, "inner")
    async with connected(server) as client:
        assert (await client.call_tool("inner_claims")).text == "{}"
