"""A kept token whose numbers are costly to read is read in time that is proportional to its length."""

from __future__ import annotations

import time

import pytest

from toolweave.errors import StoreError
from toolweave.oauth._stores.records import read_record

COUNT = 5_000


def processor_seconds(text: bytes) -> float:
    """Return the least processor time of three runs."""
    times: list[float] = []
    for _ in range(3):
        start = time.thread_time()
        with pytest.raises(StoreError):
            read_record(text)
        times.append(time.thread_time() - start)
    return min(times)


@pytest.mark.parametrize("member", ["expires_at", "saved_at", "another"])
def test_a_number_of_a_record_that_is_repeated_takes_about_as_long_as_an_ordinary_one(member: str) -> None:
    """A record that lacks its other members is refused after all of it has been read."""
    ordinary = b"{" + b",".join([b'"%s":1.5' % member.encode()] * COUNT) + b"}"

    assert processor_seconds(ordinary.replace(b"1.5", b"1e308")) < 30 * processor_seconds(ordinary)
