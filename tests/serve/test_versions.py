"""Tools, prompts and resources have tags and versions: the newest is offered, an older one is called by asking."""

from __future__ import annotations

import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, connected
from toolweave import ToolRegistry, create_mcp_server, tool
from toolweave.errors import DuplicateToolError, ProtocolError
from toolweave.serve import McpServer, prompt, resource
from toolweave.tools import combined, prefixed


@tool(name="add", version="1.9", tags={"sums", "old"})
def add_two(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(name="add", version="1.10", tags=["sums"])
def add_all(values: list[int]) -> int:
    """Add numbers."""
    return sum(values)


@tool(name="add", version="2.0rc1")
def add_next(values: list[float]) -> float:
    """Add any numbers."""
    return sum(values)


@tool(tags="plain")
def echo(text: str) -> str:
    """Say it again."""
    return text


@prompt(name="review", version="1")
def review_old(topic: str) -> str:
    """Ask for a review, as it was."""
    return f"old {topic}"


@prompt(name="review", version="2", tags={"texts"})
def review_new(topic: str) -> str:
    """Ask for a review."""
    return f"new {topic}"


@resource("notes://{number}", name="note", version="1")
def note_old(number: int) -> str:
    """One note, as it was."""
    return f"old {number}"


@resource("notes://{number}", name="note", version="2", tags={"texts"})
def note_new(number: int) -> str:
    """One note."""
    return f"new {number}"


@resource("about://this", version="7")
def about() -> str:
    """Of what this is."""
    return "seven"


def server(**options: object) -> McpServer:
    return create_mcp_server(
        "sums",
        tools=[add_all, add_two, echo],
        prompts=[review_new, review_old],
        resources=[note_old, note_new, about],
        **options,  # pyright: ignore[reportArgumentType]
    )


@pytest.mark.requirement("R83")
@EACH_CARRIER
async def test_the_newest_version_is_listed_and_an_older_one_is_called_by_asking(carrier: str, era: str) -> None:
    async with connected(server(), carrier, era) as client:
        listed = await client.list_tools()
        assert listed.names == ("add", "echo")
        newest = listed["add"].spec
        assert (newest.version, newest.tags) == ("1.10", {"sums"})
        assert newest.meta["io.toolweave/versions"] == ["1.10", "1.9"]
        assert (await client.call_tool("add", {"values": [1, 2, 3]})).text == "6"
        assert (await client.call_tool("add", {"values": [4]}, version="1.10")).text == "4"
        assert (await client.call_tool("add", {"a": 1, "b": 2}, version="1.9")).text == "3"
        wrong = await client.call_tool("add", {"values": [1]}, version="1.9")
        assert wrong.is_error
        assert "tool 'add'" in wrong.text
        assert listed["echo"].spec.version is None
        assert listed["echo"].spec.tags == {"plain"}


@EACH_ERA
async def test_a_version_that_is_not_there_is_an_unknown_tool_prompt_or_resource(era: str) -> None:
    async with connected(server(), era=era) as client:
        with pytest.raises(ProtocolError, match="Unknown tool: add, version 3"):
            await client.call_tool("add", {"a": 1, "b": 2}, version="3")
        with pytest.raises(ProtocolError, match=r"Unknown tool: add@1\.9"):
            await client.call_tool("add@1.9", {"a": 1, "b": 2})
        with pytest.raises(ProtocolError, match="Unknown prompt"):
            await client.get_prompt("review", {"topic": "x"}, version="3")
        with pytest.raises(ProtocolError, match="Resource not found"):
            await client.read_resource("notes://1", version="3")
        with pytest.raises(ProtocolError, match="Resource not found"):
            await client.read_resource("about://this", version="3")


@EACH_ERA
async def test_prompts_and_resources_have_versions_and_tags_likewise(era: str) -> None:
    async with connected(server(), era=era) as client:
        (listed,) = await client.list_prompts()
        assert (listed.version, listed.tags, listed.description) == ("2", {"texts"}, "Ask for a review.")
        assert listed.meta["io.toolweave/versions"] == ["2", "1"]
        (template,) = await client.list_resource_templates()
        assert (template.version, template.tags) == ("2", {"texts"})
        found = await client.get_prompt("review", {"topic": "plants"})
        assert found.messages[0].content.render() == "new plants"
        found = await client.get_prompt("review", {"topic": "plants"}, version="1")
        assert found.messages[0].content.render() == "old plants"
        assert (await client.read_resource("notes://3"))[0].text == "new 3"
        assert (await client.read_resource("notes://3", version="1"))[0].text == "old 3"
        assert (await client.read_resource("about://this", version="7"))[0].text == "seven"


async def test_a_server_offers_some_tags_and_versions_only() -> None:
    async with connected(server(versions="<1.10")) as client:
        listed = await client.list_tools()
        assert listed.names == ("add", "echo")
        assert listed["add"].spec.version == "1.9"
        assert "io.toolweave/versions" not in listed["add"].spec.meta
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("add", {"values": []}, version="1.10")
        assert (await client.get_prompt("review", {"topic": "x"})).messages[0].content.render() == "old x"
        assert await client.list_resources() == ()
    async with connected(server(include_tags={"sums", "texts"}, exclude_tags="old")) as client:
        listed = await client.list_tools()
        assert listed.names == ("add",)
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("add", {"a": 1, "b": 2}, version="1.9")
        with pytest.raises(ProtocolError, match="Unknown prompt"):
            await client.get_prompt("review", {"topic": "x"}, version="1")
        assert [one.uri_template for one in await client.list_resource_templates()] == ["notes://{number}"]


async def test_a_tag_that_nothing_has_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    made = server(include_tags=["sums", "textes"], exclude_tags=["old", "internal", "late"])

    @made.prompt(tags=["late"])
    def added() -> str:
        """Be added before the server runs."""
        return "x"

    for _ in range(2):
        async with connected(made):
            pass

    assert [text for text in caplog.messages if "_tags" in text] == [
        "include_tags: no tool, prompt or resource has the tag 'textes'; did you mean 'texts'?",
        "exclude_tags: no tool, prompt or resource has the tag 'internal'; there are late, old, plain, sums, texts",
    ]


async def test_tags_of_a_toolset_that_has_no_tools_yet_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    made = create_mcp_server(name="empty", tools=[ToolRegistry([])], include_tags=["sums"])

    async with connected(made):
        pass

    assert [text for text in caplog.messages if "_tags" in text] == []


async def test_a_version_is_added_and_removed_while_clients_are_connected() -> None:
    made = server()
    async with connected(made) as client:
        made.tool(add_next)
        assert (await client.list_tools())["add"] is not None
        assert (await client.call_tool("add", {"values": [1.5]}, version="2.0rc1")).text == "1.5"
        with pytest.raises(DuplicateToolError):
            made.tool(add_next)
        with pytest.raises(DuplicateToolError):
            made.tool(tool(add_two.function, name="add"))
        made.remove_tool("add@1.9")
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("add", {"a": 1, "b": 2}, version="1.9")
        made.remove_tool("add")
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("add", {"values": [1]}, version="1.10")


async def test_versions_are_ordered_as_numbers_and_a_candidate_comes_before_its_release() -> None:
    registry = ToolRegistry()
    for version in ("1.0", "0.9", "1.0.1", "1.0rc2", "v1.2", "1.10", "2026-07-28"):
        registry.add(tool(echo.function, name="echo", version=version))
    assert registry.snapshot()[0].meta["io.toolweave/versions"] == [
        *("2026-07-28", "1.10", "v1.2", "1.0.1", "1.0", "1.0rc2", "0.9")
    ]


async def test_toolsets_around_a_registry_keep_its_versions() -> None:
    registry = ToolRegistry([add_two, add_all])
    other = ToolRegistry([tool(echo.function, name="add", version="1.9"), tool(echo.function, name="add", version="5")])
    joined = combined(prefixed(registry, "my"), registry, other)
    assert joined.tools.names == ("my_add", "add", "add_2")
    assert (await joined.execute("my_add@1.9", {"a": 1, "b": 2})).text == "3"
    assert (await joined.execute("add@1.9", {"a": 1, "b": 2})).text == "3"
    assert (await joined.execute("add_2@1.9", {"text": "hi"})).text == "hi"
    assert joined.snapshot().find_version("my_add", "1.9") is not None
    assert (await joined.execute("add@5", {"text": "hi"})).is_error


@pytest.mark.parametrize("tag", ["", " ", 3, "a\nb", "x" * 129])
async def test_a_tag_or_a_version_that_is_none_is_refused(tag: object) -> None:
    with pytest.raises(ValueError, match="is not a tag"):
        tool(echo.function, tags=[tag])  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(ValueError, match="is not a version"):
        prompt(version=tag)(echo.function)  # pyright: ignore[reportArgumentType, reportCallIssue]


async def test_a_slip_in_a_definition_or_a_range_is_refused() -> None:
    with pytest.raises(TypeError, match="'tag'"):
        tool(tag="a")(echo.function)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="'tag'"):
        prompt(tag="a")(echo.function)  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValueError, match="not a version"):
        tool(echo.function, version="1 @2")
    with pytest.raises(ValueError, match="not a range"):
        server(versions="1.2")


async def test_the_scopes_of_a_version_are_its_own() -> None:
    made = server()
    made.tool(tool(add_two.function, name="add", version="1", scopes=["sum"]))
    newest = made.offers_of("tools/call", {"name": "add"})
    older = made.offers_of("tools/call", {"name": "add", "_meta": {"io.toolweave/version": "1"}})
    assert [(one.name, one.scopes) for one in (*newest, *older)] == [("add", ()), ("add", ("sum",))]


async def test_the_tags_and_versions_of_fastmcp_are_read() -> None:
    spec = echo.spec.replace(meta={"fastmcp": {"tags": ["a", 3], "version": "4"}})
    assert (spec.tags, spec.version) == ({"a"}, "4")
