"""Pages for the results of tools: declared, read, and named by their tools, directly and through a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from toolweave import Agent, McpServer, ProtocolError, connect_mcp, create_mcp_server, tool
from toolweave.export import plain_functions
from toolweave.gateway import create_gateway
from toolweave.models import ScriptedModel
from toolweave.providers import OpenAIResponsesTools
from toolweave.serve import AppCsp, AppPage, app

EXTENSION = "io.modelcontextprotocol/ui"
TYPE = "text/html;profile=mcp-app"
URI = "ui://notes/board"
HTML = "<!doctype html><title>Board</title>"


def page_of(html: str | Path = HTML, **options: Any) -> AppPage:
    return app(URI, html, **options)


def notes(page: AppPage) -> McpServer:
    """Return a server with a tool for everyone and one for the page alone."""

    @tool(meta=page.tool_meta())
    def board() -> dict[str, int]:
        """Show the board."""
        return {"notes": 3}

    @tool(meta=page.tool_meta("app"))
    def refresh() -> str:
        """Read the board again."""
        return "fresh"

    return create_mcp_server(name="notes", tools=[board, refresh], resources=[page])


@EACH_CARRIER
async def test_a_tool_names_its_page_which_says_what_it_may_use(carrier: str, era: str) -> None:
    csp = AppCsp(
        connect_domains=["https://api.example", "wss://*.example:443"], resource_domains=["https://cdn.example"]
    )
    page = page_of(csp=csp, permissions=["camera", "clipboardWrite"], domain="a.example", prefers_border=True)
    async with connected(notes(page), carrier, era) as connection:
        tools = await connection.list_tools()
        (listed,) = await connection.list_resources()
        (content,) = await connection.read_resource(URI)
        result = await connection.call_tool("board")

    assert connection.capabilities["extensions"][EXTENSION] == {"mimeTypes": [TYPE]}
    assert tools["board"].raw["_meta"]["ui"] == {"resourceUri": URI}
    assert tools["refresh"].raw["_meta"]["ui"] == {"resourceUri": URI, "visibility": ["app"]}
    assert (listed.uri, listed.name, listed.mime_type) == (URI, "board", TYPE)
    assert listed.meta == content.meta
    assert listed.meta["ui"] == {
        "csp": {
            "connectDomains": ["https://api.example", "wss://*.example:443"],
            "resourceDomains": ["https://cdn.example"],
        },
        "permissions": {"camera": {}, "clipboardWrite": {}},
        "domain": "a.example",
        "prefersBorder": True,
    }
    assert (content.text, content.mime_type) == (HTML, TYPE)
    assert (result.structured_content, result.text) == ({"notes": 3}, '{"notes": 3}')


async def test_a_page_of_a_file_is_read_each_time_and_says_nothing_it_was_not_told(tmp_path: Path) -> None:
    file = tmp_path / "board.html"
    file.write_text("old")
    async with connected(notes(page_of(file))) as connection:
        before = (await connection.read_resource(URI))[0]
        file.write_text("new")
        after = (await connection.read_resource(URI))[0]
        file.unlink()
        with pytest.raises(ProtocolError, match="the page cannot be read: No such file") as refusal:
            await connection.read_resource(URI)

    assert (before.text, after.text, before.meta) == ("old", "new", {})
    assert str(tmp_path) not in str(refusal.value)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: app("https://x/y", HTML), "begins with 'ui://'"),
        (lambda: app("ui://", HTML), "begins with 'ui://'"),
        (lambda: page_of(permissions=["usb"]), "permissions: 'usb' is not one of camera"),
        (lambda: page_of().tool_meta("user"), "visibility: 'user' is not one of app, model"),  # pyright: ignore[reportArgumentType]
        (lambda: AppCsp(connect_domains=["https://a; script-src *"]), "is not an origin"),
        (lambda: AppCsp(frame_domains=["*"]), "is not an origin"),
        (lambda: AppCsp(resource_domains=["'unsafe-eval'"]), "is not an origin"),
        (lambda: AppCsp(base_uri_domains=["https://a.example/path"]), "is not an origin"),
    ],
)
def test_a_page_that_no_host_would_show_is_refused(made: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        made()


def test_a_page_without_its_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="of the page 'ui://notes/board' does not exist"):
        page_of(tmp_path / "none.html")


async def test_a_server_without_pages_declares_none() -> None:
    async with connected(create_mcp_server(name="plain", tools=[])) as connection:
        assert "extensions" not in connection.capabilities


async def test_a_model_neither_sees_nor_calls_a_tool_for_the_page_alone() -> None:
    async with connected(notes(page_of())) as connection:
        await connection.list_tools()
        agent = Agent(ScriptedModel([]), tools=connection)
        called = await agent.tools.execute("refresh")
        seen = [
            list(agent.tools.snapshot().by_name),
            [function.__name__ for function in plain_functions(connection)],
            [one["name"] for one in OpenAIResponsesTools(connection).definitions()],
        ]
        own = await connection.call_tool("refresh")

    assert seen == [["board"]] * 3
    assert called.is_error
    assert "no tool 'refresh'" in called.text
    assert own.text == "fresh"


@EACH_ERA
@pytest.mark.parametrize("upstream", ["legacy", "2026-07-28"])
async def test_a_gateway_keeps_each_tool_with_its_own_page(era: str, upstream: str) -> None:
    servers = {
        name: {"server": notes(page_of(f"<title>{name}</title>", prefers_border=True)), "protocol": upstream}
        for name in ("one", "two")
    }
    async with connect_mcp({"server": create_gateway(servers), "protocol": era}) as connection:
        await connection.list_resources()
        tools = await connection.list_tools()
        uris = {spec.name: spec.raw["_meta"]["ui"]["resourceUri"] for spec in tools}
        pages = {uri: (await connection.read_resource(uri))[0] for uri in uris.values()}

    assert connection.capabilities["extensions"][EXTENSION] == {"mimeTypes": [TYPE]}
    assert uris == {
        "one_board": URI,
        "one_refresh": URI,
        "two_board": "ui://two+notes/board",
        "two_refresh": "ui://two+notes/board",
    }
    assert [page.text for page in pages.values()] == ["<title>one</title>", "<title>two</title>"]
    assert all(page.meta == {"ui": {"prefersBorder": True}} for page in pages.values())
    assert tools["two_refresh"].raw["_meta"]["ui"]["visibility"] == ["app"]
