"""What tools and results look like: in a notebook as HTML in which a server's text does nothing, elsewhere as text."""

from __future__ import annotations

import base64
import inspect
from html.parser import HTMLParser
from typing import Any

import pytest

import toolweave
from tests.tools.doubles import Scripted, spec
from toolweave import ImageContent, TextContent, Tool, ToolList, ToolResult, ToolSpec, create_mcp_server, sync
from toolweave.agent import RunResult
from toolweave.models import Usage, tool_call

EVIL = "<script>alert(1)</script><img src=x onerror='alert(1)'>\"&"
PIXEL = base64.b64encode(b"\x89PNG pixels").decode()


class Parts(HTMLParser):
    """Collects the tags and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def html(shown: Any) -> Parts:
    return Parts(shown._repr_html_())


def evil_spec() -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {EVIL: {"type": EVIL, "description": EVIL}, "odd": True, "many": {"type": ["string", "null"]}},
        "required": ["odd"],
    }
    return spec(EVIL, server=EVIL, description=EVIL, input_schema=schema)


def tool() -> Tool:
    return Tool(evil_spec(), Scripted())


@pytest.mark.parametrize(
    "shown",
    [
        tool(),
        ToolList([tool()]),
        sync.SyncTool(tool()),
        sync.SyncToolList(ToolList([tool()])),
        ToolResult(content=(TextContent(text=EVIL),)),
        ToolResult(structured_content={EVIL: EVIL}),
        ToolResult(content=(ImageContent(data=EVIL, mime_type="image/png"),)),
        ToolResult(content=(ImageContent(data=PIXEL, mime_type=f"image/png{EVIL}"),)),
        ToolResult.failure(EVIL),
        RunResult(run_id="r", text=EVIL, pending=(tool_call(EVIL, id="c"),)),
        RunResult(run_id="r", status="failed", error=ValueError(EVIL)),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_what_a_server_wrote_is_text_in_a_notebook(shown: Any) -> None:
    found = html(shown)

    assert not {"script", "img"} & set(found.tags)
    assert set(found.attributes) <= {"style"}


def test_a_tool_shows_its_parameters_and_a_list_its_tools() -> None:
    shown = Tool(spec("add", input_schema={"properties": {"a": {"type": "integer"}}, "required": ["a"]}), Scripted())

    assert all(word in html(shown).text for word in ("add", "files", "integer", "yes"))
    assert all(word in html(ToolList([shown])).text for word in ("add", "files", "parameters"))
    assert html(Tool(spec("bare", server=None, input_schema={}), Scripted())).tags == ["div", "b", "p"]


def test_a_picture_is_shown_and_what_is_too_long_is_cut() -> None:
    shown = ToolResult(content=(ImageContent(data=PIXEL, mime_type="image/png"), TextContent(text="x" * 50_000)))

    assert html(shown).tags == ["div", "img", "pre"]
    assert "characters in all" in html(shown).text
    assert html(ToolResult()).tags == ["div", "pre"]


def test_the_result_of_a_run_shows_its_text_and_why_it_ended() -> None:
    usage = Usage(input_tokens=1000, output_tokens=234)
    done = html(RunResult(run_id="r", text="It is done.", steps=2, usage=usage))
    stopped = html(RunResult(run_id="r", status="stopped", stop_reason="max_steps", steps=9))
    failed = html(RunResult(run_id="r", status="failed", stop_reason="error", error=ValueError("no key")))

    assert done.tags == ["div", "pre", "small"]
    assert all(word in done.text for word in ("It is done.", "completed", "2 steps", "1,234 tokens"))
    assert "stopped: max_steps" in stopped.text
    assert ("no key" in failed.text, failed.attributes) == (True, ["style"])


def test_a_connection_for_plain_code_shows_its_server_and_tools() -> None:
    with sync.connect_mcp(create_mcp_server("sums", tools=[add]), name="sums") as client:
        shown = html(client)

    assert all(word in shown.text for word in ("sums", "ready", "add", "Add two numbers.", "a, b"))


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_no_public_class_is_shown_as_an_address() -> None:
    classes = [value for name in toolweave.__all__ if inspect.isclass(value := getattr(toolweave, name))]

    assert [
        one.__name__ for one in classes if one.__repr__ is object.__repr__ and not getattr(one, "_is_protocol", False)
    ] == []


def test_chained_wrappers_say_what_they_are_around_and_what_they_do() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    chained = toolweave.ToolRegistry([add]).prefixed("x").filtered(["x_add"]).renamed({"x_add": "sum"})

    assert repr(chained) == "<toolset of ToolRegistry(['add']): prefixed 'x', filtered, renamed>"


def test_a_representation_counts_one_tool_as_one() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    assert repr(toolweave.create_mcp_server("demo", tools=[add])) == "<McpServer 'demo', 1 tool>"
