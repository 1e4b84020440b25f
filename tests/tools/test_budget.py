"""A toolset with a budget for its results: what is cut, how it is read on, and by whom."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clocks import Clock
from tests.export.offers import PNG
from tests.serve.serving import served_http
from tests.tools.doubles import Scripted, spec
from toolweave import ImageContent, TextContent, ToolResult, connect_mcp, create_mcp_server, tool
from toolweave.export import plain_functions
from toolweave.providers import AnthropicTools
from toolweave.serve import ApiKey, ApiKeyAuth, resource
from toolweave.tools import BudgetedToolset, CallContext, ResultPolicy, ToolCall, ToolsChanged, as_toolset, budgeted
from toolweave.tools._truncation import ResultCache

SMALL = ResultPolicy(max_chars=1000)
LINES = "\n".join(f"line {number}: the quick brown fox" for number in range(2000))
ROWS = {"rows": [{"id": number} for number in range(1000)]}
NOTE = re.compile(r"\n\[\.\.\. .*? left out here; read_tool_result\(id=\"(.+?)\", offset=(\d+)\).* \.\.\.\]\n")
FOR_USER = {"audience": ["user"]}


def lines() -> str:
    """List lines."""
    return LINES


def rows() -> dict[str, Any]:
    """List rows."""
    return ROWS


def short() -> dict[str, Any]:
    """List little."""
    return {"n": 1}


def mixed() -> ToolResult:
    """Report."""
    picture = ImageContent(data=PNG, mime_type="image/png", annotations=FOR_USER)
    table = TextContent(text="t" * 5000, annotations=FOR_USER)
    return ToolResult(content=(TextContent(text=LINES), picture, table))


def budget(*tools: Any, policy: ResultPolicy = SMALL, **options: Any) -> BudgetedToolset:
    return budgeted(as_toolset(list(tools)), policy, **options)


def cut(text: str) -> tuple[str, str, int, str]:
    """Return head, id, offset and tail of a text that was cut."""
    found = NOTE.search(text)
    assert found, text
    return text[: found.start()], found[1], int(found[2]), text[found.end() :]


async def read(toolset: Any, **arguments: Any) -> str:
    result = await toolset.execute("read_tool_result", arguments)
    return result.raise_for_error().text


def page_of(answer: str) -> str:
    return answer.rpartition("\n[characters ")[0]


async def test_head_pages_and_tail_are_the_whole_text() -> None:
    toolset = budget(lines)
    head, key, offset, tail = cut((await toolset.execute("lines")).text)

    pages = head
    while len(pages) < len(LINES) - len(tail):
        pages += page_of(await read(toolset, id=key, offset=len(pages), length=10_000))

    assert offset == len(head)
    assert pages[: len(LINES) - len(tail)] + tail == LINES


async def test_the_tool_that_reads_on_comes_with_the_first_result_that_was_cut() -> None:
    toolset = budget(lines, short)
    changes: list[ToolsChanged] = []
    toolset.subscribe(changes.append)

    assert (await toolset.execute("short")).structured_content == {"n": 1}
    assert toolset.tools.names == ("lines", "short")
    await toolset.execute("lines")

    assert toolset.tools.names == ("lines", "short", "read_tool_result")
    assert [change.added for change in changes] == [("read_tool_result",)]
    assert budget(short, always=True).tools.names == ("short", "read_tool_result")


async def test_words_are_found_with_their_places() -> None:
    toolset = budget(lines)
    _, key, _, _ = cut((await toolset.execute("lines")).text)

    found = await read(toolset, id=key, search="LINE 1234:")
    at = int(re.findall(r"^offset (\d+): ", found, re.MULTILINE)[0])
    many = await read(toolset, id=key, search="fox")
    later = int(many.rpartition("offset=")[2].rstrip("]"))

    assert LINES[at:].startswith("line 1234:")
    assert found.endswith("[1 place with 'LINE 1234:' from character 0 on]")
    assert len(many) <= SMALL.max_chars
    assert LINES[later:].startswith("fox")
    assert "line 1: " not in await read(toolset, id=key, search="fox", offset=later)
    assert (await read(toolset, id=key, search="(a+)+$")).startswith("[0 places")


async def test_a_search_looks_through_a_bounded_part_and_says_where_to_go_on() -> None:
    toolset = budget(tool(lambda: "a" * 3_000_000 + "needle", name="long"))
    _, key, _, _ = cut((await toolset.execute("long")).text)

    first = await read(toolset, id=key, search="needle")
    offset = int(first.rpartition("offset=")[2].rstrip("]"))

    assert first.startswith("[0 places")
    assert "1 place" in await read(toolset, id=key, search="needle", offset=offset)


async def test_what_is_unknown_or_gone_is_told() -> None:
    result = await budget(lines, always=True).execute("read_tool_result", {"id": "x" * 500})

    assert result.is_error
    assert "call its tool again" in result.text
    assert len(result.text) < 300


async def test_structured_content_stays_for_programs_unless_it_is_to_be_dropped() -> None:
    kept = await budget(rows).execute("rows")
    dropping = budget(rows, short, structured="drop")
    dropped = await dropping.execute("rows")
    head, key, _, tail = cut(dropped.text)

    assert kept.structured_content == ROWS
    assert len(kept.text) <= SMALL.max_chars
    assert dropped.structured_content is None
    assert json.dumps(ROWS).startswith(head)
    assert json.dumps(ROWS).endswith(tail)
    assert (await dropping.execute("short")).structured_content == {"n": 1}
    assert all(one.output_schema is None for one in dropping.snapshot())
    assert page_of(await read(dropping, id=key, length=50)) == head[:50]


async def test_dropped_structured_content_is_read_after_a_text_of_its_own() -> None:
    answer = ToolResult(content=(TextContent(text="a thousand rows"),), structured_content=ROWS)
    result = await budget(tool(lambda: answer, name="rows"), structured="drop").execute("rows")

    assert result.text.startswith('a thousand rows\n{"rows"')
    assert result.structured_content is None


async def test_what_is_for_the_user_goes_on_to_the_user_and_is_bounded_too() -> None:
    result = await budget(mixed).execute("mixed")

    assert "ttt" not in result.for_model().text
    assert [block.type for block in result.for_person().content] == ["text", "image", "text"]
    assert all(len(block.render()) <= SMALL.max_chars for block in result.content)


async def test_a_short_result_and_an_error_stay_what_they_are() -> None:
    failing = Scripted([spec("fails")], fault=ValueError("it broke"))
    toolset = budgeted(failing, SMALL)

    assert (await toolset.execute("fails")).is_error
    assert (await toolset.execute("none")).is_error
    assert (await budget(short).execute("short")) == ToolResult.of({"n": 1})


async def test_a_tool_of_the_same_name_keeps_it() -> None:
    toolset = budgeted(Scripted([spec("read_tool_result")]), SMALL, always=True)

    assert len(toolset.snapshot()) == 1
    assert (await toolset.execute("read_tool_result")).text == "read_tool_result ran"


# bounds of what is kept


async def kept(cache: ResultCache, key: str) -> bool:
    return not (await cache.call(ToolCall(name="read_tool_result", arguments={"id": key}), CallContext())).is_error


async def test_results_are_kept_for_a_time_and_the_oldest_go_first() -> None:
    clock = Clock(0.0)
    policy = ResultPolicy(max_chars=400, keep_chars=2500, keep_seconds=60)
    cache = ResultCache(policy, clock=clock, always=True)
    for key in ("a", "b", "c"):
        cache.cut(ToolResult.of(key * 1000), CallContext(), result_id=key)
        clock.now += 1
    at_first = [await kept(cache, key) for key in "abc"]
    clock.now = 61.5

    assert at_first == [False, True, True]
    assert [await kept(cache, key) for key in "abc"] == [False, False, True]


class Principal:
    """A caller that is nothing but its principal."""

    def __init__(self, principal: str) -> None:
        self.principal = principal


def of(principal: str) -> CallContext:
    caller: Any = Principal(principal)
    return CallContext(caller=caller)


async def test_one_caller_neither_reads_nor_crowds_out_the_results_of_another() -> None:
    toolset = budget(lines, policy=ResultPolicy(max_chars=1000, keep_chars=4 * len(LINES)))
    _, mine, _, _ = cut((await toolset.execute("lines", ctx=of("ada"))).text)
    for _ in range(10):
        await toolset.execute("lines", ctx=of("eve"))

    assert not (await toolset.execute("read_tool_result", {"id": mine}, of("ada"))).is_error
    assert (await toolset.execute("read_tool_result", {"id": mine}, of("eve"))).is_error
    assert (await toolset.execute("read_tool_result", {"id": mine})).is_error


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    text=st.text(st.characters(exclude_categories=()), max_size=3000),
    size=st.integers(400, 900),
    head=st.floats(0, 1),
    length=st.integers(-5, 700),
    pair=st.integers(0, 3000),
)
async def test_whatever_the_text_nothing_of_its_form_for_a_model_is_lost(
    text: str, size: int, head: float, length: int, pair: int
) -> None:
    result = ToolResult.of(text[:pair] + "\ud83d\ude00" * 300 + text[pair:])
    policy = ResultPolicy(max_chars=size, head=head)
    cache = ResultCache(policy, always=True)
    shown = cache.cut(result, CallContext(), result_id="i" * 64).text
    text = result.for_model().text

    assert len(shown) <= size
    first, key, _, last = cut(shown)
    assert text.startswith(first)
    assert text.endswith(last)
    whole = first
    while len(whole) < len(text) - len(last):
        answer = await cache.read(CallContext(), key, len(whole), length)
        assert len(answer) <= size
        page = page_of(answer)
        assert page
        whole += page
    assert whole[: len(text) - len(last)] + last == text


# in exports and on servers


async def test_an_export_lists_the_tool_with_the_next_request() -> None:
    toolset = budget(lines)
    tools = AnthropicTools(toolset)
    before = [one["name"] for one in tools.definitions()]
    block: dict[str, Any] = {"type": "tool_use", "id": "c", "name": "lines", "input": {}}
    (answer,) = await tools.dispatch([block])

    assert before == ["lines"]
    assert [one["name"] for one in tools.definitions()] == ["lines", "read_tool_result"]
    assert len(json.dumps(answer)) < 1500
    assert [one.__name__ for one in plain_functions(budget(lines, always=True))] == ["lines", "read_tool_result"]


@asynccontextmanager
async def served(protocol: str, **options: Any) -> AsyncGenerator[Any]:
    server = create_mcp_server("rows", tools=[budget(rows, structured="drop")])
    async with served_http(server) as url, connect_mcp({"url": url, "protocol": protocol, **options}) as client:
        yield client


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_a_client_of_a_server_reads_on_in_every_era(protocol: str) -> None:
    async with served(protocol) as client:
        result = await client.execute("rows")
        _, key, offset, _ = cut(result.text)
        with anyio.fail_after(20):
            while "read_tool_result" not in client.snapshot().by_name:
                await anyio.sleep(0.01)
        page = await read(client, id=key, offset=offset, length=100)

    assert result.structured_content is None
    assert page_of(page) == json.dumps(ROWS)[offset : offset + 100]


async def test_the_rest_can_be_offered_as_a_resource() -> None:
    tools = budget(lines)
    server = create_mcp_server("lines", tools=[tools], resources=[resource("results://{id}/{offset}")(tools.read)])
    async with connect_mcp(server) as client:
        _, key, offset, _ = cut((await client.execute("lines")).text)
        (contents,) = await client.read_resource(f"results://{key}/{offset}")

    assert contents.text is not None
    assert LINES.startswith(page_of(contents.text), offset)


async def test_the_rest_can_be_searched_as_a_resource() -> None:
    tools = budget(lines)
    search = resource("results://{id}/{offset}/search/{search}", name="search")(tools.read)
    server = create_mcp_server(
        "lines", tools=[tools], resources=[resource("results://{id}/{offset}")(tools.read), search]
    )
    async with connect_mcp(server) as client:
        _, key, _, _ = cut((await client.execute("lines")).text)
        (contents,) = await client.read_resource(f"results://{key}/0/search/LINE%201500")
        (later,) = await client.read_resource(f"results://{key}/{LINES.index('line 1501')}/search/line%201500")

    assert contents.text is not None
    assert contents.text.startswith(f"offset {LINES.index('line 1500')}: ")
    assert later.text is not None
    assert later.text.startswith("[0 places with 'line 1500'")


async def test_a_client_with_another_key_cannot_read_what_was_kept() -> None:
    ada_key, eve_key = "a" * 32, "e" * 32
    auth = ApiKeyAuth([ApiKey(name="ada", key=ada_key), ApiKey(name="eve", key=eve_key)])
    server = create_mcp_server("rows", tools=[budget(rows, always=True)], auth=auth)
    async with (
        served_http(server) as url,
        connect_mcp(url, auth=ada_key) as ada,
        connect_mcp(url, auth=eve_key) as eve,
    ):
        _, key, _, _ = cut((await ada.execute("rows")).text)
        mine = await ada.execute("read_tool_result", {"id": key})
        theirs = await eve.execute("read_tool_result", {"id": key})

    assert not mine.is_error
    assert theirs.is_error
