"""A value of a wrong type is refused by the constructor it was given to, with the parameter and what to pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hub.fleet import absent
from toolweave import (
    Agent,
    CallContext,
    ConfigError,
    Hub,
    McpPool,
    ScriptedModel,
    ToolCall,
    connect_mcp,
    connect_mcp_servers,
    create_mcp_server,
)
from toolweave.models import ToolMessage, tool_call
from toolweave.serve import directory


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(**options: Any) -> Agent[Any]:
    return Agent(ScriptedModel(["done"]), **options)


def test_an_agent_among_tools_is_refused_with_the_tool_to_pass() -> None:
    with pytest.raises(TypeError, match=r"as_tool\(\)"):
        agent(tools=[agent(name="other")])
    with pytest.raises(ConfigError, match=r"not an agent \(Agent\).*agents=\[\.\.\.\]"):
        connect_mcp(agent(name="other"))


def test_a_directory_is_refused_as_a_server_with_the_server_that_offers_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not Directory; .*create_mcp_server\(.*resources=\.\.\."):
        connect_mcp(directory(tmp_path))
    with pytest.raises(ConfigError, match=r"not function; .*create_mcp_server\("):
        connect_mcp(add)
    with pytest.raises(ConfigError, match=r"not the class Agent; pass an object of it"):
        connect_mcp(Agent)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Hub(callbacks=3), "callbacks is Callbacks(...), not int"),  # pyright: ignore[reportArgumentType]
        (lambda: Hub(patience="5"), "patience is a number of seconds, not str"),  # pyright: ignore[reportArgumentType]
        (lambda: Hub(names=3), "names is the names of servers, or None for all, not int"),  # pyright: ignore[reportArgumentType]
        (lambda: Hub(names=[None]), "each of names is the name of a server, not NoneType"),  # pyright: ignore[reportArgumentType]
        (lambda: Hub(names=[3]), "each of names is the name of a server, not int"),  # pyright: ignore[reportArgumentType]
        (lambda: connect_mcp_servers({}, callbacks=3), "callbacks is Callbacks(...), not int"),  # pyright: ignore[reportArgumentType]
        (lambda: connect_mcp("x", callbacks=3), "callbacks is Callbacks(...), not int"),  # pyright: ignore[reportArgumentType]
        (lambda: connect_mcp("x", lazy="no"), "lazy is True or False, not str"),  # pyright: ignore[reportArgumentType]
        (lambda: McpPool(max_idle="9"), "max_idle is a whole number of connections, not str"),  # pyright: ignore[reportArgumentType]
        (
            lambda: McpPool(idle_seconds="9"),  # pyright: ignore[reportArgumentType]
            "idle_seconds is a number of seconds, not str",
        ),
        (
            lambda: create_mcp_server("s", page_size="9"),  # pyright: ignore[reportArgumentType]
            "page_size is a whole number, or None for one page, not str",
        ),
        (
            lambda: create_mcp_server("s", tasks=3),  # pyright: ignore[reportArgumentType]
            "tasks is a mapping of tool names to rules, not int",
        ),
        (
            lambda: create_mcp_server("s", store="x.db"),  # pyright: ignore[reportArgumentType]
            "store is a store, such as SqliteStore(path) or open_store(url), or None, not str",
        ),
        (lambda: create_mcp_server("s", logging="no"), "logging is True or False, not str"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_wrong_type_is_refused_by_the_constructor_it_was_given_to(make: Callable[[], object], expected: str) -> None:
    with pytest.raises(TypeError) as error:
        make()
    assert str(error.value) == expected


async def test_a_call_of_a_tool_that_a_down_server_may_have_reports_the_server_and_why() -> None:
    async with Hub({"math": absent()}) as hub:
        helper = Agent(ScriptedModel([tool_call("add"), "done"]), tools=[hub])
        async with helper:
            result = await helper.send("What is 1 + 2?")
            assert helper.errors.keys() == {"math"}
        (reply,) = [message for message in result.messages if isinstance(message, ToolMessage)]
        direct = await hub.call(ToolCall(name="add"), CallContext())
    reason = str(hub.errors["math"]).split("\n", 1)[0]
    for text in (str(reply), direct.text):
        assert "It may be a tool of a server that is down" in text
        assert "math" in text
    assert reason in direct.text


async def test_similar_names_are_a_question_and_servers_that_are_down_a_sentence_behind_it() -> None:
    notes = create_mcp_server("notes")
    for name in ("add", "addend", "adding"):
        notes.tool(name=name)(add)
    async with Hub({"notes": {"server": notes}, "math": absent()}) as hub:
        text = (await hub.execute("notes_ad")).text
    assert text.startswith(
        "no tool 'notes_ad'; did you mean 'notes_add', 'notes_adding' or 'notes_addend'? It may be a"
    )


@pytest.mark.parametrize("bound", [0, -1])
def test_a_pool_that_could_lease_no_connection_is_refused(bound: int) -> None:
    with pytest.raises(ValueError, match=rf"^max_connections is at least 1, not {bound}$"):
        McpPool(max_connections=bound)
