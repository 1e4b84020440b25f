"""What holds for any bytes and any JSON a server may send."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.json_strategies import JSON, OBJECTS
from toolweave.connect._feed.list_reader import EntryReader, tool_reader
from toolweave.connect._stdio.process import ServerProcess
from toolweave.protocol.content import content_block
from toolweave.protocol.jsonrpc import value_of
from toolweave.protocol.lenient_messages import decode_lenient
from toolweave.protocol.server_features import (
    Prompt,
    Resource,
    ResourceTemplate,
    definition,
    read_completion,
    read_prompt,
    read_prompt_result,
    read_resource,
    read_resource_contents,
    read_template,
)

pytestmark = pytest.mark.slow


@given(JSON)
def test_any_json_value_is_a_content_block_that_can_be_shown(value: Any) -> None:
    block = content_block(value)
    assert isinstance(block.render(), str)
    if isinstance(value, dict):
        assert block.raw == value


@given(st.lists(JSON | OBJECTS, max_size=8))
def test_of_any_list_each_entry_is_a_tool_or_a_problem(entries: list[Any]) -> None:
    tools = tool_reader(entries, server="any")
    tools.read()
    listing = tools.result()
    assert len(listing.items) + len(listing.problems) == len(entries)
    names = [spec.name for spec in listing.items]
    assert len(names) == len(set(names))
    for spec in listing.items:
        assert spec.raw in entries
        assert json.loads(json.dumps(dict(spec.input_schema))) is not None


def without_icons(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    return {key: value for key, value in cast("dict[str, Any]", entry).items() if key != "icons"}


@given(st.lists(JSON | OBJECTS, max_size=6), OBJECTS)
def test_any_other_answer_is_read_or_a_value_error(entries: list[Any], answer: dict[str, Any]) -> None:
    kinds: list[tuple[str, Callable[[Mapping[str, Any]], Resource | ResourceTemplate | Prompt]]] = [
        ("uri", read_resource),
        ("uriTemplate", read_template),
        ("name", read_prompt),
    ]
    for key, read_entry in kinds:
        reader = EntryReader(entries, key, read_entry, noun="entry")
        reader.read()
        judged = reader.result()
        assert len(judged.items) + len(judged.problems) == len(entries)
        # Of the icons only those with a safe address are kept.
        known = [without_icons(entry) for entry in entries]
        assert all(without_icons(definition(item)) in known for item in judged.items)
    read_completion(answer)
    for read in (read_resource_contents, read_prompt_result):
        with suppress(ValueError):
            read(answer)


MESSAGES = st.lists(
    OBJECTS.map(lambda value: json.dumps(value, ensure_ascii=False).encode()) | st.sampled_from([b"{}", b"[1]"]),
    max_size=8,
)
"""Lines that a server may write; none that only begins an object, which is put together with those behind it."""


@given(MESSAGES, st.sampled_from([b"\n", b"\r\n", b"\n\n", b" \n"]), st.lists(st.integers(0, 400), max_size=12))
def test_any_cutting_of_the_output_gives_the_same_messages(messages: list[bytes], end: bytes, cuts: list[int]) -> None:
    output = b"".join(message + end for message in messages)
    process = ServerProcess()
    edges = sorted({0, len(output), *(cut for cut in cuts if cut < len(output))})
    for start, stop in pairwise(edges):
        process.pipe_data_received(1, output[start:stop])
    assert list(process._messages) == messages
    assert process.junk_lines == 0


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_no_output_breaks_the_reader(output: bytes, cuts: list[int]) -> None:
    whole, cut = ServerProcess(), ServerProcess()
    whole.pipe_data_received(1, output)
    edges = sorted({0, len(output), *(edge for edge in cuts if edge < len(output))})
    for start, stop in pairwise(edges):
        cut.pipe_data_received(1, output[start:stop])
    for process in (whole, cut):
        process.pipe_connection_lost(1, None)
    assert whole._messages == cut._messages
    assert whole.junk_lines == cut.junk_lines
    assert whole.failure == "it closed its standard output"


@given(st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_text_is_messages_or_a_value_error(text: bytes) -> None:
    try:
        messages = decode_lenient(text)
    except ValueError:
        return
    for message in messages:
        for member in (message.params, message.result, message.error):
            if isinstance(member, (bytes, memoryview)):
                value_of(member)  # pyright: ignore[reportArgumentType]


@given(st.binary(max_size=400), st.integers(1, 40))
def test_the_tail_of_standard_error_is_short_and_without_control_characters(output: bytes, lines: int) -> None:
    process = ServerProcess()
    process.pipe_data_received(2, output * 3)
    tail = process.stderr_tail(lines)
    assert tail.count("\n") <= lines
    assert not [char for char in tail if char not in "\n\t" and (ord(char) < 32 or 127 <= ord(char) < 160)]


def test_a_message_larger_than_the_bound_ends_the_conversation() -> None:
    process = ServerProcess(max_message_bytes=100)
    process.pipe_data_received(1, b"{" + b"x" * 200)
    assert process.failure is not None
    assert process.failure.startswith("it sent a message of more than 100 bytes")
    process.pipe_data_received(1, b'}\n{"id":1}\n')
    assert list(process._messages) == []
