"""Requests for what the only upstream does not list: they are its own to answer, unless something judges offers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.serve.carriers import EACH_ERA
from tests.serve.serving import served_http
from toolweave import McpConnection, ProtocolError, connect_mcp, create_mcp_server
from toolweave.gateway import create_gateway
from toolweave.middleware import AccessRule, AccessRules
from toolweave.serve import ApiKey, ApiKeyAuth, CallNext, Request, ScopeRules


def hidden(text: str) -> str:
    """Return a text; no list has this tool."""
    return f"hidden {text}"


def shown() -> str:
    """Return a word."""
    return "shown"


async def without_hidden(request: Request, call_next: CallNext) -> Any:
    result = await call_next(request)
    for kind in ("tools", "prompts"):
        if kind in result:
            result = {**result, kind: [one for one in result[kind] if one["name"] != "hidden"]}
    return result


@asynccontextmanager
async def through(
    era: str, middleware: Sequence[Any] = (), auth: ApiKeyAuth | None = None, **settings: Any
) -> AsyncGenerator[McpConnection]:
    """Serve a server with a hidden tool and prompt, and a gateway before it; yield a connection to that."""
    server = create_mcp_server("one", tools=[hidden, shown], middleware=[without_hidden])

    @server.prompt(name="hidden")
    def prompt(about: str) -> str:
        """Ask about something."""
        return f"about {about}"

    async with served_http(server) as upstream:
        entry = {"url": upstream, "tool_prefix": "", **settings}
        gateway = create_gateway({"one": entry}, middleware=middleware, auth=auth)
        async with served_http(gateway) as url:
            caller: dict[str, Any] = {"url": url, "protocol": era}
            if auth is not None:
                caller["auth"] = "key-of-ada-0123456789"
            async with connect_mcp(caller) as connection:
                yield connection


@EACH_ERA
async def test_a_tool_and_a_prompt_that_the_only_upstream_does_not_list_can_be_used(era: str) -> None:
    async with through(era) as connection:
        called = await connection.request("tools/call", {"name": "hidden", "arguments": {"text": "it"}})
        got = await connection.request("prompts/get", {"name": "hidden", "arguments": {"about": "it"}})

    assert called["content"][0]["text"] == "hidden it"
    assert got["messages"][0]["content"]["text"] == "about it"


@EACH_ERA
async def test_the_error_of_an_unknown_name_is_that_of_the_upstream(era: str) -> None:
    server = create_mcp_server("one", tools=[hidden])
    async with served_http(server) as upstream, connect_mcp({"url": upstream, "protocol": era}) as connection:
        with pytest.raises(ProtocolError) as own:
            await connection.request("tools/call", {"name": "zz", "arguments": {}})
    async with through(era) as connection:
        with pytest.raises(ProtocolError) as relayed:
            await connection.request("tools/call", {"name": "zz", "arguments": {}})

    assert (relayed.value.code, relayed.value.data) == (own.value.code, own.value.data)


@EACH_ERA
@pytest.mark.parametrize(
    "settings",
    [{"exclude": ["other"]}, {"include": ["shown"]}, {"tool_prefix": "one_"}],
    ids=["exclude", "include", "prefix"],
)
async def test_where_the_owner_chooses_tools_an_unlisted_one_stays_unknown(era: str, settings: Any) -> None:
    async with through(era, **settings) as connection:
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await connection.request("tools/call", {"name": "hidden", "arguments": {"text": "it"}})


async def test_where_rules_judge_tools_an_unlisted_one_stays_unknown() -> None:
    rules = AccessRules(
        rules=[AccessRule(effect="deny", annotations={"destructiveHint": True}), AccessRule(effect="allow")]
    )
    async with through("2026-07-28", [rules]) as connection:
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await connection.request("tools/call", {"name": "hidden", "arguments": {"text": "it"}})


@EACH_ERA
async def test_an_unlisted_tool_needs_the_scopes_of_its_name(era: str) -> None:
    keys = [ApiKey(name="ada", key="key-of-ada-0123456789", scopes=("read",))]
    auth = ApiKeyAuth(keys, scopes=ScopeRules(tools={"hid*": ["admin"]}))
    async with through(era, auth=auth) as connection:
        with pytest.raises(Exception, match=r"(?i)scope|403|admin"):
            await connection.request("tools/call", {"name": "hidden", "arguments": {"text": "it"}})


@EACH_ERA
@pytest.mark.parametrize("upstreams", [1, 2])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/list", {}),
        ("prompts/get", {"name": "zz"}),
        ("resources/list", {}),
        ("resources/read", {"uri": "zz://zz"}),
    ],
)
async def test_what_no_upstream_declares_is_a_method_that_the_gateway_does_not_have(
    era: str, upstreams: int, method: str, params: dict[str, Any]
) -> None:
    server = create_mcp_server("one", tools=[shown])
    async with served_http(server) as upstream:
        entry = {"url": upstream, "tool_prefix": ""} if upstreams == 1 else {"url": upstream}
        gateway = create_gateway({f"server{number}": entry for number in range(upstreams)})
        async with served_http(gateway) as url, connect_mcp({"url": url, "protocol": era}) as connection:
            with pytest.raises(ProtocolError) as refused:
                await connection.request(method, params)

    assert (refused.value.code, refused.value.data) == (-32601, method)


@EACH_ERA
@pytest.mark.parametrize("settings", [{"tool_prefix": ""}, {}])
async def test_a_completion_is_a_method_that_a_gateway_of_a_server_without_completions_does_not_have(
    era: str, settings: dict[str, Any]
) -> None:
    server = create_mcp_server("one")

    @server.prompt
    def ask(about: str) -> str:
        """Ask about something."""
        return about

    name = "ask" if settings else "one_ask"
    params = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "about", "value": ""}}
    async with served_http(server) as upstream:
        gateway = create_gateway({"one": {"url": upstream, **settings}})
        async with served_http(gateway) as url, connect_mcp({"url": url, "protocol": era}) as connection:
            with pytest.raises(ProtocolError) as refused:
                await connection.request("completion/complete", params)

    assert (refused.value.code, refused.value.data) == (-32601, "completion/complete")
