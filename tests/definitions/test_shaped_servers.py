"""Rules in configs of servers and of a gateway's views, over real processes and HTTP, with and without callers."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serve.carriers import EACH_ERA
from tests.serve.serving import served_app, served_http
from toolweave import connect_mcp, connect_mcp_servers, create_mcp_server
from toolweave.config import Secret, load_config
from toolweave.definitions import ArgumentRule, PinnedServer, Pins, ServerIdentity, ShapeRule, shaped
from toolweave.errors import ConfigError, ToolError
from toolweave.gateway import GatewayManager, GatewayOptions, create_gateway, load_gateway_config
from toolweave.middleware import AccessRule, AccessRules
from toolweave.serve import ApiKey, ApiKeyAuth
from toolweave.tools import as_toolset

TEST_SECONDS = 60

Json = dict[str, Any]
KEY = "key-of-ada-0123456789"
SERVER = """
from toolweave import create_mcp_server

server = create_mcp_server(name="notes")

@server.tool(annotations={"readOnlyHint": True})
def search_notes(query: str, owner: str, limit: int = 10) -> str:
    "Search the notes of an owner."
    return f"{query} of {owner}, {limit}"

@server.tool
def remove_note(number: int) -> str:
    "Remove a note."
    return f"removed {number}"

server.run_stdio()
"""
RULES: list[Json] = [
    {
        "tools": "search_*",
        "name": "find",
        "description": "Find my notes.",
        "arguments": {
            "query": {"name": "words", "description": "What to look for."},
            "owner": {"value": "ada"},
            "limit": {"default": 3},
        },
    },
    {"annotations": {"destructiveHint": True}, "hide": True},
]


def search(query: str, owner: str, mail: str = "?") -> str:
    """Search."""
    return f"{query} of {owner} <{mail}>"


def notes(tmp_path: Path, **settings: Any) -> Json:
    file = tmp_path / "notes.py"
    file.write_text(SERVER)
    return {"command": sys.executable, "args": [str(file)], **settings}


@pytest.mark.slow
async def test_rules_of_an_entry_shape_the_tools_of_a_process(tmp_path: Path) -> None:
    config = {"mcpServers": {"notes": notes(tmp_path, shape=RULES)}}
    async with connect_mcp_servers(config) as hub:
        found = hub.snapshot()[0]
        said = [await hub.execute(name, {"words": "x"}) for name in ("notes_find", "notes:find", "notes:search_notes")]
        refused = await hub.execute("notes_find", {"words": "x", "owner": "bob"})
        hidden = await hub.execute("notes_remove_note", {"number": 1})
        with pytest.raises(ToolError, match=r"not offered: rule shape\[1\] .* hides it"):
            await hub.clients["notes"].call_tool("remove_note", {"number": 1})

    assert [spec.name for spec in hub.snapshot()] == []
    assert (found.name, found.original_name, found.description) == ("notes_find", "search_notes", "Find my notes.")
    assert found.input_schema["properties"] == {
        "words": {"type": "string", "description": "What to look for."},
        "limit": {"type": "integer", "default": 3},
    }
    assert found.input_schema["required"] == ["words"]
    assert [one.text for one in said] == ["x of ada, 3"] * 3
    assert "set by the configuration" in str(refused.error)
    assert "no tool 'notes_remove_note'" in str(hidden.error)


async def test_rules_follow_a_prefix_and_say_what_they_do_not_find(tmp_path: Path) -> None:
    rules = [*RULES, {"tools": "remove", "hide": True}]
    async with connect_mcp(notes(tmp_path, shape=rules, tool_prefix="n_"), name="notes") as connection:
        assert [spec.name for spec in connection.snapshot()] == ["n_find"]
        assert connection.problems == ("rule shape[2] ('remove') fits no tool",)
        assert connection.excluded_tools == {"remove_note": "rule shape[1] (destructiveHint true) hides it"}
        assert (await connection.call_tool("n_find", {"words": "x", "limit": 1})).text == "x of ada, 1"


@pytest.mark.slow
async def test_a_pin_is_of_the_servers_own_definition_whatever_the_rules(tmp_path: Path) -> None:
    entry = notes(tmp_path, pins="block", lockfile=str(tmp_path / "toolweave.lock"))
    async with connect_mcp({**entry, "pins": "off"}, name="notes") as plain:
        identity = ServerIdentity.of(plain.config, plain.server_info)
        pinned = PinnedServer.of(identity, plain.snapshot())
        Pins(servers={"notes": pinned}).write(tmp_path / "toolweave.lock")
    async with connect_mcp({**entry, "shape": RULES}, name="notes") as connection:
        assert [spec.name for spec in connection.snapshot()] == ["find"]
        assert connection.withheld == {}


@asynccontextmanager
async def gateway(section: Json, **entry: Any) -> AsyncGenerator[tuple[GatewayManager, str]]:
    server = create_mcp_server(name="notes", tools=[search])
    manager = GatewayManager(
        {"mcpServers": {"notes": {"server": server, **entry}}, "gateway": section}, GatewayOptions()
    )
    async with served_app(manager.asgi_app()) as base:
        yield manager, base


OF_CALLER: Json = {"owner": {"claim": "user.name"}, "mail": {"from": "principal", "default": "none"}}
VIEW: Json = {
    "virtual": {"mine": {"prefix": "my_", "shape": [{"tools": "my_*", "name": "find", "arguments": OF_CALLER}]}}
}


@EACH_ERA
async def test_a_view_of_a_gateway_has_rules_of_its_own_that_send_who_calls(era: str) -> None:
    section = {**VIEW, "auth": {"api_keys": {"ci": {"key": KEY, "claims": {"user": {"name": "ada"}}}}}}
    rules = [{"arguments": {"query": {"name": "words"}}}]
    async with gateway(section, shape=rules) as (_, base):
        entry = {"auth": KEY, "protocol": era}
        async with (
            connect_mcp({"url": f"{base}/mcp/mine", **entry}, name="mine") as mine,
            connect_mcp({"url": f"{base}/mcp", **entry}, name="all") as everything,
        ):
            assert [spec.name for spec in await mine.list_tools()] == ["find"]
            schema = mine.snapshot()[0].input_schema
            assert (list(schema["properties"]), schema["required"]) == (["words"], ["words"])
            said = (await mine.call_tool("find", {"words": "x"})).text
            assert said.startswith('x of ada <["ci",')
            assert "set by the configuration" in str(await raw_call(mine, "find", {"words": "x", "owner": "bob"}))
            whole = await everything.call_tool("notes_search", {"words": "x", "owner": "bob"})
            assert whole.text == "x of bob <?>"
            wrong = await raw_call(everything, "notes_search", {"query": "x", "owner": "bob"})
            assert "is named 'words' here" in wrong


async def raw_call(connection: Any, name: str, arguments: Json) -> str:
    """The text of an answer to arguments that our own client would not send."""
    result = await connection.request("tools/call", {"name": name, "arguments": arguments})
    assert result["isError"] is True
    return str(result["content"][0]["text"])


@EACH_ERA
async def test_a_call_without_the_claim_that_a_rule_sends_is_refused(era: str) -> None:
    async with gateway(VIEW) as (_, base), connect_mcp({"url": f"{base}/mcp/mine", "protocol": era}) as mine:
        result = await mine.call_tool("find", {"query": "x"})

    assert (
        str(result.error)
        == "tool 'find' needs the claim 'user.name' of its caller, and this call has none; sign in first"
    )


@EACH_ERA
async def test_a_server_of_ours_sends_the_callers_claims_to_its_functions(era: str) -> None:
    auth = ApiKeyAuth([ApiKey(name="ci", key=KEY, claims={"user": {"name": "ada"}})])
    rule = ShapeRule(arguments={"owner": ArgumentRule(claim="user.name"), "mail": ArgumentRule(hide=True)})
    server = create_mcp_server(name="notes", tools=shaped(as_toolset([search]), [rule]), auth=auth)
    async with served_http(server) as url, connect_mcp({"url": url, "auth": KEY, "protocol": era}) as connection:
        assert (await connection.call_tool("search", {"query": "x"})).text == "x of ada <?>"


def test_a_wrong_rule_of_a_file_names_file_server_and_path(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"notes": {"command": "x", "shape": [{"tools": "a", "hid": True}]}}}))

    error = load_config(file).errors["notes"]

    assert isinstance(error, ConfigError)
    assert str(error) == f"{file}:1: server 'notes': 'shape[0]' has no setting 'hid'; did you mean 'hide'?"
    assert error.field == "shape[0].hid"


def test_a_wrong_rule_of_a_view_names_file_and_path(tmp_path: Path) -> None:
    file = tmp_path / "gateway.json"
    view = {"shape": [{"arguments": {"q": {"env": ""}}}]}
    file.write_text(json.dumps({"mcpServers": {"n": {"command": "x"}}, "gateway": {"virtual": {"v": view}}}))

    with pytest.raises(ConfigError) as caught:
        load_gateway_config(file)

    assert caught.value.message == "'gateway.virtual.v.shape[0].arguments.q.env' is empty"
    assert caught.value.path == str(file)


def test_a_variable_in_a_rule_is_expanded_and_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENANT_KEY", "hush-hush")
    file = tmp_path / "mcp.json"
    rule = {"arguments": {"tenant": {"value": "${TENANT_KEY}"}}}
    file.write_text(json.dumps({"mcpServers": {"notes": {"command": "x", "shape": [rule]}}}))

    config = load_config(file).servers["notes"]

    assert config.shape[0].arguments["tenant"].value == Secret("hush-hush")
    assert "hush" not in repr(config)
    assert "hush" not in json.dumps(config.to_dict())


@pytest.mark.parametrize("limit", ["5", 5, 5.0])
@pytest.mark.parametrize("rules", [[], [{"tools": "search_*", "arguments": {"owner": {"default": "ada"}}}]])
async def test_an_argument_is_not_changed_behind_the_rules_of_a_gateway(
    rules: list[Json], limit: Any, tmp_path: Path
) -> None:
    deny = AccessRule(effect="deny", when="has(args.limit) && args.limit == 5")
    middleware = [AccessRules(rules=[deny], default="allow")]
    gateway = create_gateway({"notes": notes(tmp_path, shape=rules)}, middleware=middleware)
    async with connect_mcp({"server": gateway, "repair_arguments": False, "validate_input": False}) as caller:
        arguments: Json = {"query": "x", "owner": "ada"}
        allowed = await caller.execute("notes_search_notes", {**arguments, "limit": 4})
        refused = await caller.execute("notes_search_notes", {**arguments, "limit": limit})

    assert allowed.text == "x of ada, 4"
    assert refused.is_error
    assert "of ada" not in refused.text
