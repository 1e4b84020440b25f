"""The ways through the package walk no more functions than before, and metadata takes a call on no other way."""

from __future__ import annotations

import json
import sys

import pytest

from tests.architecture.walks import CALLS, NUMBERS, WALKS, WITH_META, Walk, walk_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.gettrace() is not None, reason="a tracer of coverage changes what is walked"),
]

READS = (
    "_json.py:decode_json",
    "_json_types.py:",
    "protocol/component_meta.py:asked_version",
    "serve/_envelope.py:",
)
"""A `_meta` with more than the envelope is read, and its progress token and version are looked at."""
OF_SERVERS = (
    *READS,
    *("serve/_progress.py:ProgressStream.", "serve/_request_context.py:HandlerRunner."),
    "serve/_request_context.py:forwarded_meta",
)
OF_CLIENTS = ("connect/_progress_feed.py:", "connect/_session.py:ClientHandlers.")
ONLY_WITH_METADATA = {
    "server": OF_SERVERS,
    "server, in process": OF_SERVERS,
    "client, stdio": OF_CLIENTS,
    "client, HTTP": OF_CLIENTS,
    "gateway, stdio": (
        *READS,
        *("connect/_direct.py:CallNews.", "connect/_direct.py:DirectCalls.news", "connect/_session.py:ClientHandlers."),
        "gateway/_features/fast_calls.py:_Tail.with_members",
    ),
}
ONLY_WITH_METADATA["gateway, HTTP"] = ONLY_WITH_METADATA["gateway, stdio"]
"""What a call with a token, a trace context and a foreign key may run beside what a bare call runs: it reads and passes
on its `_meta`, and progress has a receiver."""


def kept_numbers() -> dict[str, dict[str, int]]:
    numbers: dict[str, dict[str, int]] = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return numbers


def check(name: str, walk: Walk) -> None:
    """Compare a walk with its kept numbers, which may only fall."""
    kept = kept_numbers()[name]
    found = walk.numbers
    assert found["functions"] <= kept["functions"], sorted(walk.functions)
    assert found["modules"] <= kept["modules"], sorted(walk.modules)
    hint = "the walk got shorter: run `python -m tests.architecture.walks --write`"
    assert found["functions"] >= kept["functions"] - 10, hint


@pytest.mark.parametrize("name", WALKS)
async def test_a_way_walks_no_more_functions_and_modules_than_before(name: str) -> None:
    check(name, await walk_of(name))


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_with_a_token_a_trace_and_a_foreign_key_walks_the_functions_of_a_bare_call(name: str) -> None:
    bare = await walk_of(name)
    full = await walk_of(name, WITH_META)

    check(f"{name}, with metadata", full)
    assert bare.functions <= full.functions
    assert [one for one in full.functions - bare.functions if not one.startswith(ONLY_WITH_METADATA[name])] == []


def test_every_way_has_its_numbers() -> None:
    assert set(kept_numbers()) == {*WALKS, *(f"{name}, with metadata" for name in CALLS)}
