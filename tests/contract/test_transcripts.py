"""The comparison itself: what is recorded, what is made equal, and that a difference nobody listed is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.differences import FROM_THE_CLIENT, differences
from tests.contract.plays import MODERN
from tests.contract.transcript import Json, Transcript, read


def recorded(folder: Path, *messages: Json) -> Transcript:
    """Return the transcript of messages sent over stdio."""
    file = folder / "record"
    file.write_text("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages), encoding="utf-8")
    return read(file)


def call(number: int | str, name: str = "add", **params: object) -> Json:
    """Return the request of a call."""
    return {"id": number, "method": "tools/call", "params": {"name": name, **params}}


def test_ids_tokens_and_sealed_states_are_compared_by_their_order_of_appearance(tmp_path: Path) -> None:
    one = [call(1, _meta={"progressToken": 1}), call(2, requestState="abc"), call(3, requestState="abc")]
    other = [call("a", _meta={"progressToken": "x"}), call("b", requestState="uvw"), call("c", requestState="uvw")]
    lost = [*other[:2], call("c", requestState="else")]

    assert recorded(tmp_path, *one) == recorded(tmp_path, *other)
    assert recorded(tmp_path, *one) != recorded(tmp_path, *lost)


def test_a_listing_may_come_at_any_time_and_more_than_once(tmp_path: Path) -> None:
    listing: Json = {"id": 7, "method": "tools/list", "params": {}}

    assert recorded(tmp_path, listing, call(8)) == recorded(tmp_path, call(1), listing, {**listing, "id": 9})


def test_an_id_used_twice_is_told(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="used twice"):
        recorded(tmp_path, call(1), call(1))


def test_a_line_still_being_written_is_no_message_yet(tmp_path: Path) -> None:
    file = tmp_path / "record"
    file.write_text('{"jsonrpc": "2.0", "method": "ping", "id": 1}\n{"jsonrpc": "2', encoding="utf-8")

    assert read(file).methods() == ["ping"]


@pytest.mark.parametrize(
    "changed",
    [
        {"id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": "1"}}},
        {"id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}, "_meta": {}}},
        {"id": 1, "method": "tools/call", "params": {"name": "add"}},
    ],
)
def test_a_difference_that_nobody_listed_is_told(changed: Json, tmp_path: Path) -> None:
    ours, theirs = recorded(tmp_path, call(1, arguments={"a": 1})), recorded(tmp_path, changed)

    with pytest.raises(AssertionError, match="more differs than is known"):
        differences(ours, theirs, FROM_THE_CLIENT, transport="stdio", version=MODERN)


def test_a_listed_difference_is_named_where_it_shows_and_only_there(tmp_path: Path) -> None:
    ping: Json = {"id": 1, "method": "ping"}
    ours, theirs = recorded(tmp_path, {**ping, "params": {}}), recorded(tmp_path, ping)

    found = differences(ours, theirs, FROM_THE_CLIENT, transport="stdio", version="2025-11-25")
    assert found == {"params that would be empty"}
    assert differences(ours, ours, FROM_THE_CLIENT, transport="stdio", version="2025-11-25") == set()
