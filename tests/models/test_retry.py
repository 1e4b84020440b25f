"""When a request is sent again, and what an answer asks to wait. Pure, no clock."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.models._retry import NO_RETRY, Retry, retry_after


@given(st.integers(1, 200), st.floats(0, 1))
def test_waits_grow_up_to_the_longest_and_end(failed: int, chance: float) -> None:
    retry = Retry(attempts=100, first=0.5, longest=30)

    wait = retry.wait(failed, chance=lambda: chance)

    if failed >= 100:
        assert wait == math.inf
    else:
        whole = min(0.5 * 2 ** (failed - 1), 30)
        assert whole * 0.75 <= wait <= whole


@pytest.mark.parametrize(("asked", "wait"), [(0.0, 0.0), (7.0, 7.0), (45.0, 45.0), (60.0, 60.0), (60.1, math.inf)])
def test_what_the_provider_asks_for_is_kept_to_or_the_request_given_up(asked: float, wait: float) -> None:
    assert Retry(longest=30, max_retry_after=60).wait(1, asked) == wait


def test_a_quota_by_the_minute_is_waited_for_by_default() -> None:
    assert Retry().wait(1, 60.0) == 60.0


def test_no_retry_never_waits() -> None:
    assert NO_RETRY.wait(1) == math.inf


@pytest.mark.parametrize("options", [{"attempts": 0}, {"first": -1}, {"longest": -1}, {"max_retry_after": -1}])
def test_impossible_policies_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="attempts"):
        Retry(**options)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "Thursday, 01-Jan-70 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 99999999999999999999 00:01:40 GMT"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 +999999"}, None),
        ({"retry-after": "Thu, 99 Foo 1970 00:01:40 GMT"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_the_wait_that_an_answer_asks_for_is_read(headers: Mapping[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=lambda: 60.0) == seconds


@pytest.mark.parametrize("text", ["Thu, 01 Jan 1970 00:01:40 -0000", "Thu Jan  1 00:01:40 1970"])
def test_a_date_that_names_no_zone_is_universal_time_wherever_it_is_read(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert retry_after({"retry-after": text}, now=lambda: 60.0) == 40.0
    finally:
        monkeypatch.undo()
        time.tzset()
