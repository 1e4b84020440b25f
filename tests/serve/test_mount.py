"""A server is mounted in another one: its offers are there below a namespace, with its own middleware and lifespan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, ERAS, connected
from toolweave import Callbacks, CallContext, ToolRegistry, create_mcp_server, tool
from toolweave.errors import ProtocolError, RequestError
from toolweave.serve import BearerAuth, CallNext, McpServer, Request, ResourcesChanged


def weather(**options: Any) -> McpServer:
    server = create_mcp_server("weather", state={"sky": "blue"}, **options)

    @server.tool(tags={"sky"})
    async def now(city: str, ctx: CallContext) -> str:
        """The weather now."""
        return f"{city}: {ctx.state['sky']}"

    @server.tool
    async def ask(ctx: CallContext) -> str:
        """Ask the user."""
        return (await ctx.elicit("Sure?")).action

    @server.resource("notes://{number}", name="note")
    def note(number: int) -> str:
        """A note of the weather."""
        return f"weather note {number}"

    @server.resource("sky://colour")
    def colour(ctx: CallContext) -> str:
        """The colour of the sky."""
        return ctx.state["sky"]

    @server.prompt
    def report(city: str) -> str:
        """Ask for a report."""
        return f"Report from {city}."

    @server.completion(ref="prompt:report", argument="city")
    def cities(value: str) -> list[str]:
        return [city for city in ("Oslo", "Rome") if city.startswith(value)]

    return server


def main(*mounted: McpServer, **options: Any) -> McpServer:
    server = create_mcp_server("main", state={"sky": "none"}, **options)

    @server.tool
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.resource("notes://{number}", name="note")
    def note(number: int) -> str:
        """A note."""
        return f"main note {number}"

    for one in mounted:
        server.mount(one, one.name)
    return server


@pytest.mark.requirement("R83")
@EACH_CARRIER
async def test_a_mounted_server_offers_all_that_it_has_below_its_namespace(carrier: str, era: str) -> None:
    async with connected(main(weather()), carrier, era) as client:
        assert (await client.list_tools()).names == ("echo", "weather_now", "weather_ask")
        assert (await client.list_tools())["weather_now"].spec.tags == {"sky"}
        assert (await client.call_tool("weather_now", {"city": "Oslo"})).text == "Oslo: blue"
        assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
        assert [one.name for one in await client.list_prompts()] == ["weather_report"]
        found = await client.get_prompt("weather_report", {"city": "Rome"})
        assert found.messages[0].content.render() == "Report from Rome."
        ref = {"type": "ref/prompt", "name": "weather_report"}
        assert (await client.complete(ref, "city", "O")).values == ("Oslo",)
        assert [one.uri for one in await client.list_resources()] == ["sky://colour"]
        assert (await client.read_resource("sky://colour"))[0].text == "blue"


@EACH_ERA
async def test_a_uri_that_both_have_is_qualified_by_the_namespace(era: str) -> None:
    async with connected(main(weather()), era=era) as client:
        templates = [one.uri_template for one in await client.list_resource_templates()]
        assert templates == ["notes://{number}", "weather+notes://{number}"]
        assert (await client.read_resource("notes://3"))[0].text == "main note 3"
        (theirs,) = await client.read_resource("weather+notes://3")
        assert (theirs.uri, theirs.text) == ("weather+notes://3", "weather note 3")
        with pytest.raises(ProtocolError, match="Resource not found: nowhere://"):
            await client.read_resource("nowhere://x")
        with pytest.raises(ProtocolError, match="Unknown prompt"):
            await client.get_prompt("weather_nothing")


@EACH_ERA
async def test_the_middleware_and_what_a_mounted_server_hides_hold_there(era: str) -> None:
    seen: list[tuple[str, Any]] = []

    async def watch(request: Request, call_next: CallNext) -> dict[str, Any]:
        seen.append((request.method, request.params.get("name")))
        if request.params.get("arguments") == {"city": "Nowhere"}:
            raise RequestError("no such city", code=-32602)
        return dict(await call_next(request))

    inner = weather(middleware=[watch])
    server = main(inner)
    async with connected(server, era=era) as client:
        assert (await client.call_tool("weather_now", {"city": "Oslo"})).text == "Oslo: blue"
        assert ("tools/call", "now") in seen
        with pytest.raises(ProtocolError, match="no such city"):
            await client.call_tool("weather_now", {"city": "Nowhere"})
        inner.disable("now", "report", "sky://colour")
        await client.refresh()
        assert (await client.list_tools()).names == ("echo", "weather_ask")
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("weather_now", {"city": "Oslo"})
        with pytest.raises(ProtocolError, match="Unknown prompt"):
            await client.get_prompt("weather_report", {"city": "Rome"})
        with pytest.raises(ProtocolError, match="Resource not found"):
            await client.read_resource("sky://colour")
    async with connected(server, era=era) as client:
        assert await client.list_prompts() == ()
        assert await client.list_resources() == ()


@EACH_ERA
async def test_a_mounted_handler_asks_the_client(era: str) -> None:
    callbacks = Callbacks(elicitation=lambda question: {})
    async with connected(main(weather()), era=era, callbacks=callbacks) as client:
        assert (await client.call_tool("weather_ask")).text == "accept"


@EACH_ERA
async def test_what_a_mounted_server_offers_later_is_there_too(era: str) -> None:
    inner = weather()
    server = main(inner)
    async with connected(server, era=era) as client:
        changed = anyio.Event()
        client.on("tools_changed", lambda change: changed.set())
        await client.list_tools()
        changed = anyio.Event()
        inner.tool(tool(lambda: "later", name="later"))
        await changed.wait()
        assert "weather_later" in (await client.list_tools()).names
        assert (await client.call_tool("weather_later")).text == "later"
        server.mount(create_mcp_server("more", tools=[tool(lambda: "more", name="more")]), "more")
        assert (await client.call_tool("more_more")).text == "more"


async def test_servers_are_mounted_in_mounted_ones_and_toolsets_too() -> None:
    registry = ToolRegistry([tool(lambda: "deep", name="deep")])
    middle = main(weather())
    middle.mount(registry, "tools")
    outer = create_mcp_server("outer")
    outer.mount(middle, "m")
    async with connected(outer) as client:
        assert (await client.list_tools()).names == (*("m_echo", "m_weather_now", "m_weather_ask", "m_tools_deep"),)
        assert (await client.call_tool("m_weather_now", {"city": "Oslo"})).text == "Oslo: blue"
        assert (await client.call_tool("m_tools_deep")).text == "deep"
        assert (await client.read_resource("sky://colour"))[0].text == "blue"
        found = await client.get_prompt("m_weather_report", {"city": "Rome"})
        assert found.messages[0].content.render() == "Report from Rome."


async def test_what_cannot_be_mounted_is_refused_with_what_to_do() -> None:
    server = main()
    with pytest.raises(ValueError, match="in itself"):
        server.mount(server, "me")
    with pytest.raises(ValueError, match="is not a namespace"):
        server.mount(weather(), "not one")
    with pytest.raises(ValueError, match="auth=, which"):
        server.mount(weather(auth=BearerAuth(tokens=["a-token-of-16-chars"])), "weather")
    with pytest.raises(ValueError, match="tasks=, which"):
        server.mount(weather(tasks={"now": "optional"}), "weather")
    with pytest.raises(TypeError, match="not str"):
        server.mount("weather", "weather")  # pyright: ignore[reportArgumentType]
    server.mount(weather(), "weather")
    with pytest.raises(ValueError, match="is taken"):
        server.mount(weather(), "weather")


@pytest.mark.slow
async def test_a_mounted_tool_that_becomes_a_task_goes_through_its_middleware() -> None:
    async def refuse(request: Request, call_next: CallNext) -> dict[str, Any]:
        raise RequestError("not you", code=-32602)

    server = main(weather(middleware=[refuse]), tasks={"weather_now": "optional"})
    with anyio.fail_after(60):
        async with connected(server, era=ERAS[1]) as client:
            with pytest.raises(Exception, match="not you"):
                await client.call_tool("weather_now", {"city": "Oslo"})


async def test_the_scopes_of_mounted_offers_are_those_of_their_definitions() -> None:
    inner = create_mcp_server("inner")

    @inner.resource("secret://{name}", scopes=["read"])
    def secret(name: str) -> str:
        """A secret."""
        return name

    @inner.prompt(scopes=["write"])
    def ask() -> str:
        """Ask."""
        return "ask"

    server = main()
    server.mount(inner, "inner")
    found = (
        *server.offers_of("resources/read", {"uri": "secret://a"}),
        *server.offers_of("prompts/get", {"name": "inner_ask"}),
    )
    assert [one.scopes for one in found] == [(), ("read",), ("write",)]


class Counted:
    """A source of one resource, which counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def resources(self) -> Sequence[dict[str, Any]]:
        self.asked += 1
        return [{"uri": "sky://colour", "name": "colour"}]

    async def templates(self) -> Sequence[dict[str, Any]]:
        return []

    async def read(self, uri: str, ctx: CallContext) -> dict[str, Any] | None:
        return None

    def subscribe(self, listener: Callable[[ResourcesChanged], None]) -> Callable[[], None]:
        return lambda: None


async def test_with_many_mounted_servers_each_list_costs_a_few_readings_for_each() -> None:
    source = Counted()
    count = 12
    server = create_mcp_server("main", resources=[source])
    for number in range(count):
        server.mount(weather(), f"w{number}")

    async with connected(server, era=ERAS[1]) as client:
        before = source.asked
        uris = [one.uri for one in await client.list_resources()]

    assert uris == ["sky://colour", *(f"w{number}+sky://colour" for number in range(count))]
    assert source.asked - before <= 3 * count
