"""One server of many whose resources, prompts and tools have the same names."""

from __future__ import annotations

from typing import Any

import pytest

from toolweave import Hub, McpConnection, McpServer, TextContent, connect_mcp, create_mcp_server
from toolweave.compose import hub_server


def offering(text: str, *, listed: bool = True) -> McpServer:
    server = create_mcp_server(name="s", version="1")
    if listed:
        add_resource(server, text)

    @server.resource("t://{item}")
    def template(item: str) -> str:
        return f"{text} {item}"

    @server.prompt
    def ask() -> str:
        return text

    return server


def add_resource(server: McpServer, text: str) -> None:
    @server.resource("w://x")
    def x() -> str:
        return text


async def read(client: McpConnection, uri: str) -> str:
    (found,) = await client.read_resource(uri)
    assert found.uri == uri
    return found.text or ""


@pytest.mark.requirement("C20")
async def test_two_servers_with_one_uri_are_both_read_and_it_is_said() -> None:
    hub = Hub({"a b": {"server": offering("of a")}, "b_1": {"server": offering("of b")}})
    told: list[str] = []
    hub.on("warning", lambda connection, text: told.append(text))
    async with connect_mcp(hub_server(hub, name="h", version="1")) as client:
        uris: list[str] = []
        for _ in range(2):
            uris = [resource.uri for resource in await client.list_resources(refresh=True)]
            assert uris == ["w://x", "b-1+w://x"]
        assert [await read(client, uri) for uri in uris] == ["of a", "of b"]
        templates = [template.uri_template for template in await client.list_resource_templates()]
        assert templates == ["t://{item}", "b-1+t://{item}"]
        assert [await read(client, uri) for uri in ("b-1+t://1", "t://1")] == ["of b 1", "of a 1"]
        assert len([warning for warning in hub.warnings if "'b-1+w://x'" in warning]) == 1
        assert sorted(told) == sorted(hub.warnings)


async def test_a_uri_stays_with_its_server_whoever_comes_with_it_later() -> None:
    first, second = offering("of a", listed=False), offering("of b")
    hub = Hub({"a": {"server": first}, "b": {"server": second}})
    async with connect_mcp(hub_server(hub, name="h", version="1")) as client:
        assert await read(client, "w://x") == "of b"
        assert await read(client, "t://1") == "of a 1"
        add_resource(first, "of a")
        await hub.clients["a"].list_resources(refresh=True)
        assert {resource.uri for resource in await client.list_resources(refresh=True)} == {"w://x", "a+w://x"}
        assert [await read(client, uri) for uri in ("w://x", "a+w://x")] == ["of b", "of a"]
        await hub.disconnect("b")
        with pytest.raises(Exception, match="w://x"):
            await client.read_resource("w://x")
        assert await read(client, "a+w://x") == "of a"
        assert [resource.uri for resource in await client.list_resources(refresh=True)] == ["a+w://x"]


async def test_prompts_of_one_name_are_told_apart() -> None:
    both: Any = {key: {"server": offering(f"of {key}"), "tool_prefix": ""} for key in ("a", "b")}
    async with connect_mcp(hub_server(Hub(both), name="h", version="1")) as client:
        names = [prompt.name for prompt in await client.list_prompts()]
        assert names == ["ask", "b_ask"]
        contents = [(await client.get_prompt(name)).messages[0].content for name in names]
        assert [one.text for one in contents if isinstance(one, TextContent)] == ["of a", "of b"]
