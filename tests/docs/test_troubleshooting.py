"""docs/troubleshooting.md: each message on it is one that is produced here, and each that is produced is on it."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.docs.pages import CHECKOUT
from tests.models.http_server import Answer, Received, serve
from toolweave import Agent, ToolRegistry, connect_mcp, tool
from toolweave.config import server_config
from toolweave.models import model_from

PAGE = (CHECKOUT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = [text.rstrip("\n") for text in re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
NOBODY = "http://127.0.0.1:9/mcp"


@tool
def area(width: float, height: float) -> float:
    """Return the area of a rectangle."""
    return width * height


async def connect(**entry: Any) -> None:
    """Connect to the server of an entry."""
    async with connect_mcp(server_config(entry, name="github")):
        pass


def python(code: str, **more: Any) -> Callable[[], Awaitable[None]]:
    """Return a connection to a server that is a program in Python."""
    return lambda: connect(command=sys.executable, args=["-c", code], **more)


async def web_page() -> None:
    """Connect to a web page."""

    async def page(_: Received) -> Answer:
        return Answer(200, {"content-type": "text/html"}, [b"<html><title>Hello</title></html>"])

    async with serve(page) as server:
        await connect(url=server.url)


async def closed() -> None:
    """Use a connection that is closed."""
    connection = await connect_mcp(
        {"command": sys.executable, "args": ["-m", "toolweave.cli.demo.numbers"]}, name="numbers"
    )
    await connection.close()
    await connection.list_tools()


async def unknown() -> None:
    """Call a tool that is not there."""
    (await ToolRegistry([area]).execute("aera", {})).raise_for_error()


async def misspelled() -> None:
    """Call a tool with an argument that it does not have."""
    (await ToolRegistry([area]).execute("area", {"width": 3, "height": 4, "hight": 4})).raise_for_error()


async def twice() -> None:
    """Add a tool twice."""
    ToolRegistry([area]).add(area)


async def without_key() -> None:
    """Ask a model without the key of its provider."""
    Agent("anthropic:claude-sonnet-4-5")


async def without_provider() -> None:
    """Name a model without its provider."""
    model_from("gpt-5.1")


PRODUCED: Mapping[str, Callable[[], Awaitable[None]]] = {
    "'no-such-program' was not found": lambda: connect(command="no-such-program"),
    "'npx -y some-server' was not found": lambda: connect(command="npx -y some-server"),
    "ModuleNotFoundError": python("import no_such_module"),
    "was not MCP": python("print('hello')"),
    "did not finish connecting": python("import time; time.sleep(60)", timeout={"connect": 0.5}),
    "no answer from": lambda: connect(url=NOBODY),
    "text/html": web_page,
    "ws://": lambda: connect(url="ws://localhost/mcp"),
    "NO_SUCH_VAR": lambda: connect(command="x", env={"A": "${NO_SUCH_VAR}"}),
    "has both": lambda: connect(command="x", url=NOBODY),
    "has neither": lambda: connect(comand="x"),
    "did you mean 'area'": unknown,
    "invalid arguments": misspelled,
    "connect again": closed,
    "already in the registry": twice,
    "needs an API key": without_key,
    "is not a model": without_provider,
}
"""What produces each message, by words of it that no other has."""


@pytest.mark.parametrize("words", PRODUCED)
async def test_a_message_on_the_page_is_what_the_code_says(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    (shown,) = [message for message in MESSAGES if words in message]
    pattern = ".*".join(re.escape(part) for part in shown.split("..."))

    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is said by its text, below
        await PRODUCED[words]()

    assert re.match(pattern, str(caught.value), re.DOTALL), str(caught.value)


def test_every_message_on_the_page_is_tried() -> None:
    assert not [message for message in MESSAGES if not any(words in message for words in PRODUCED)]
