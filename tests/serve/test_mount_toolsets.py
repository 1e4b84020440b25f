"""A connection or a hub is mounted in a server: tools, prompts, resources and templates, below a namespace."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from toolweave import CallContext, Hub, McpConnection, create_mcp_server
from toolweave.config import server_config
from toolweave.errors import ProtocolError, ServerError, ToolError
from toolweave.middleware import AccessRule, AccessRules
from toolweave.serve import McpServer


class LostConnection(McpConnection):
    """A connection whose server does not answer any more for offers other than tools."""

    async def _list(self, *args: Any, **kwargs: Any) -> Any:
        raise ServerError("it does not answer", server=self.name)

    async def read_resource(self, *args: Any, **kwargs: Any) -> Any:
        raise ServerError("it does not answer", server=self.name)


def weather(name: str = "weather") -> McpServer:
    server = create_mcp_server(name)

    @server.tool
    def now(city: str) -> str:
        """The weather now."""
        return f"{city}: blue, says {name}"

    @server.prompt
    def report(city: str) -> str:
        """Ask for a report."""
        return f"Report from {city} by {name}."

    @server.resource("sky://colour", description="The colour of the sky.")
    def colour() -> str:
        return f"blue, says {name}"

    @server.resource("notes://{number}", name="note")
    def note(number: int) -> str:
        if number > 9:
            raise ToolError("there are nine")
        return f"{name} note {number}"

    return server


def outer(mounted: Any, namespace: str = "w", **options: Any) -> McpServer:
    server = create_mcp_server("outer", **options)

    @server.resource("notes://{number}", name="note")
    def note(number: int) -> str:
        return f"outer note {number}"

    server.mount(mounted, namespace)
    return server


def connection() -> McpConnection:
    return McpConnection(server_config({"server": weather()}, name="weather"))


def hub(**more: Any) -> Hub:
    return Hub({"a": {"server": weather("a")}, "b": {"server": weather("b")}, **more})


@EACH_CARRIER
async def test_of_a_connection_all_is_there_below_the_namespace(carrier: str, era: str) -> None:
    async with connected(outer(connection()), carrier, era) as client:
        assert (await client.list_tools()).names == ("w_now",)
        (report,) = await client.list_prompts()
        assert (report.name, report.description) == ("w_report", "Ask for a report.")
        assert [(one.name, one.required) for one in report.arguments] == [("city", True)]
        (message,) = (await client.get_prompt("w_report", {"city": "Rome"})).messages
        assert (message.role, message.content.render()) == ("user", "Report from Rome by weather.")
        (colour,) = await client.list_resources()
        assert (colour.uri, colour.description) == ("sky://colour", "The colour of the sky.")
        (content,) = await client.read_resource("sky://colour")
        assert (content.uri, content.mime_type) == ("sky://colour", "text/plain")
        assert content.text == "blue, says weather"


@EACH_ERA
async def test_a_uri_that_the_server_has_itself_is_qualified(era: str) -> None:
    async with connected(outer(connection(), "w_1"), era=era) as client:
        templates = [one.uri_template for one in await client.list_resource_templates()]
        assert templates == ["notes://{number}", "w-1+notes://{number}"]
        assert (await client.read_resource("notes://3"))[0].text == "outer note 3"
        (theirs,) = await client.read_resource("w-1+notes://3")
        assert (theirs.uri, theirs.text) == ("w-1+notes://3", "weather note 3")


@EACH_CARRIER
async def test_of_a_hub_the_offers_of_all_its_servers_are_there(carrier: str, era: str) -> None:
    async with connected(outer(hub(), "all"), carrier, era) as client:
        assert (await client.list_tools()).names == ("all_a_now", "all_b_now")
        assert [one.name for one in await client.list_prompts()] == ["all_a_report", "all_b_report"]
        found = await client.get_prompt("all_b_report", {"city": "Rome"})
        assert found.messages[0].content.render() == "Report from Rome by b."
        assert [one.uri for one in await client.list_resources()] == ["sky://colour", "b+sky://colour"]
        assert (await client.read_resource("b+sky://colour"))[0].text == "blue, says b"
        templates = [one.uri_template for one in await client.list_resource_templates()]
        assert templates == ["notes://{number}", "all+notes://{number}", "b+notes://{number}"]
        assert (await client.read_resource("all+notes://4"))[0].text == "a note 4"
        assert (await client.read_resource("b+notes://4"))[0].text == "b note 4"


@EACH_ERA
async def test_what_nobody_has_is_unknown_and_refusals_of_the_server_pass(era: str) -> None:
    async with connected(outer(connection()), era=era) as client:
        for name in ("w_nothing", "report"):
            with pytest.raises(ProtocolError, match="Unknown prompt"):
                await client.get_prompt(name)
        for uri in ("sky://nothing", "w+sky://colour", "w+notes://x"):
            with pytest.raises(ProtocolError, match="Resource not found"):
                await client.read_resource(uri)
        with pytest.raises(ProtocolError, match="needs the argument 'city'") as refusal:
            await client.get_prompt("w_report")
        assert refusal.value.code == -32602
        with pytest.raises(ProtocolError, match="there are nine"):
            await client.read_resource("w+notes://12")


async def test_a_server_of_a_hub_that_fails_costs_the_others_nothing() -> None:
    broken = {"command": "no-such-command-anywhere"}
    async with connected(outer(hub(broken=broken), "all")) as client:
        assert len(await client.list_prompts()) == 2
        assert (await client.read_resource("sky://colour"))[0].text == "blue, says a"


async def test_a_change_of_the_lists_reaches_the_client() -> None:
    inner = weather()
    async with connected(outer(McpConnection(server_config({"server": inner}, name="weather")))) as client:
        changed = anyio.Event()
        client.on("prompts_changed", lambda change: changed.set() if "w_later" in change.added else None)
        await client.list_prompts()

        @inner.prompt
        def later() -> str:
            return "later"

        await changed.wait()
        assert (await client.get_prompt("w_later")).messages[0].content.render() == "later"


@pytest.mark.parametrize("denied", ["w+notes://{number}", "w+notes://*", "sky://*"])
async def test_rules_hold_for_what_is_mounted_before_anything_was_listed(denied: str) -> None:
    rules = AccessRules(rules=[AccessRule(effect="deny", kinds=("resources",), names=(denied,))], default="allow")
    uri = "sky://colour" if denied.startswith("sky") else "w+notes://3"
    async with connected(outer(connection(), middleware=[rules])) as client:
        for asked in (uri, f"w+{uri}"):
            with pytest.raises(ProtocolError, match="Resource not found"):
                await client.read_resource(asked)
        assert (await client.read_resource("notes://3"))[0].text == "outer note 3"


async def test_of_any_other_toolset_the_tools_are_mounted() -> None:
    server = create_mcp_server("outer")
    server.mount(hub().filtered(include=["a:now"]), "few")
    async with connected(server) as client:
        assert (await client.list_tools()).names == ("few_a_now",)
        assert "prompts" not in client.capabilities


async def test_a_hub_has_the_prompts_and_resources_of_all_its_servers() -> None:
    async with hub() as servers:
        assert [one.name for one in await servers.list_prompts()] == ["a_report", "b_report"]
        assert [one.uri for one in await servers.list_resources()] == ["sky://colour", "b+sky://colour"]
        templates = [one.uri_template for one in await servers.list_resource_templates()]
        assert templates == ["notes://{number}", "b+notes://{number}"]
        found = await servers.get_prompt("b_report", {"city": "Oslo"})
        assert found.messages[0].content.render() == "Report from Oslo by b."
        (content,) = await servers.read_resource("b+sky://colour")
        assert (content.uri, content.text) == ("b+sky://colour", "blue, says b")
        with pytest.raises(ProtocolError, match="no server has a prompt 'x'"):
            await servers.get_prompt("x")
        with pytest.raises(ProtocolError, match="no server has a resource 'x://y'"):
            await servers.read_resource("x://y")


async def test_a_server_that_does_not_answer_costs_those_that_are_mounted_beside_it_nothing() -> None:
    gone = LostConnection(server_config({"server": weather("gone")}, name="gone"))
    server = outer(gone, "gone")
    middle = create_mcp_server("middle")
    middle.mount(weather(), "w")
    server.mount(middle, "m")
    async with connected(server) as client:
        assert [one.name for one in await client.list_prompts()] == ["m_w_report"]
        assert [one.uri for one in await client.list_resources()] == ["sky://colour"]
        assert (await client.read_resource("sky://colour"))[0].text == "blue, says weather"


async def test_lists_of_many_mounted_servers_ask_each_of_them_once_for_each() -> None:
    asked = 0

    class Counted:
        """A source of one resource that counts how often it is listed."""

        async def resources(self) -> list[dict[str, Any]]:
            nonlocal asked
            asked += 1
            return [{"uri": "one://here", "name": "one"}]

        async def templates(self) -> list[dict[str, Any]]:
            return []

        async def read(self, uri: str, ctx: CallContext) -> dict[str, Any] | None:
            return None

        def subscribe(self, listener: Any) -> Any:
            return lambda: None

    server = create_mcp_server("outer", resources=[Counted()])
    for number in range(12):
        server.mount(weather(), f"w{number}")
    async with connected(server) as client:
        uris = [one.uri for one in await client.list_resources()]
    assert uris[:3] == ["one://here", "sky://colour", "w1+sky://colour"]
    assert len(uris) == 13
    assert asked <= 2 * 13
