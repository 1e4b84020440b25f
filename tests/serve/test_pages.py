from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import overload

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.errors import RequestError
from toolweave.serve._offers.pagination import page

pytestmark = [pytest.mark.requirement("R98")]


def name_of(item: str) -> str:
    return item


def names(count: int) -> tuple[str, ...]:
    return tuple(f"item-{number}" for number in range(count))


def all_pages(items: Sequence[str], size: int) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: str | None = None
    while True:
        found, cursor = page(items, cursor, size, key=name_of)
        pages.append(list(found))
        if cursor is None:
            return pages


@pytest.mark.slow
@given(count=st.integers(0, 60), size=st.integers(1, 70))
def test_the_pages_of_a_list_put_together_are_the_list(count: int, size: int) -> None:
    items = names(count)
    pages = all_pages(items, size)
    assert [item for found in pages for item in found] == list(items)
    assert all(len(found) == size for found in pages[:-1])


def test_a_list_that_ends_with_a_page_has_no_empty_page_after_it() -> None:
    assert [len(found) for found in all_pages(names(6), 3)] == [3, 3]


def test_without_a_size_there_is_one_page() -> None:
    assert page(names(5), None, None, key=name_of) == (names(5), None)


@pytest.mark.slow
@given(data=st.data(), size=st.integers(1, 6))
def test_a_list_that_changes_between_pages_neither_skips_nor_repeats_what_stayed(
    data: st.DataObject, size: int
) -> None:
    items = list(names(20))
    stayed = set(items)
    added = 0
    seen: list[str] = []
    cursor: str | None = None
    while True:
        try:
            found, cursor = page(items, cursor, size, key=name_of)
        except RequestError:
            seen, cursor = [], None  # as the specification wants it: drop all pages and begin again
            continue
        seen += found
        if cursor is None:
            break
        for gone in data.draw(st.lists(st.sampled_from(items), max_size=4, unique=True)) if items else ():
            items.remove(gone)
            stayed.discard(gone)
        for _ in range(data.draw(st.integers(0, 2)) if added < 20 else 0):
            items.insert(data.draw(st.integers(0, len(items))), f"new-{added}")
            added += 1
    assert len(seen) == len(set(seen))
    assert [item for item in seen if item in stayed] == [item for item in items if item in stayed]


def test_a_cursor_goes_on_at_a_replica_whose_list_is_in_the_same_order_at_other_places() -> None:
    _, cursor = page(names(10), None, 4, key=name_of)
    found, _ = page(("first", *names(10)), cursor, 4, key=name_of)
    assert list(found) == ["item-4", "item-5", "item-6", "item-7"]


def test_a_page_whose_last_items_are_gone_goes_on_behind_those_that_are_left() -> None:
    items = names(10)
    _, cursor = page(items, None, 5, key=name_of)
    found, _ = page(items[:2] + items[5:], cursor, 5, key=name_of)
    assert found == items[5:]


@pytest.mark.parametrize(
    "cursor",
    ["", "0", "5", "AAAA", "not a cursor", "é", "A" * 100_000, "AAAAAAAAAAAAAA", 0, 1, True, ["x"], {}],
    ids=repr,
)
def test_a_cursor_that_no_page_gave_is_refused(cursor: object) -> None:
    with pytest.raises(RequestError, match="cursor") as refused:
        page(names(10), cursor, 3, key=name_of)
    assert refused.value.code == -32602


def test_a_cursor_of_another_list_is_refused() -> None:
    _, cursor = page(names(10), None, 3, key=name_of)
    with pytest.raises(RequestError):
        page(tuple(f"other-{number}" for number in range(10)), cursor, 3, key=name_of)


@pytest.mark.slow
@given(st.text(max_size=60) | st.binary(max_size=40).map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_no_cursor_at_all_makes_anything_but_a_page_or_a_refusal(cursor: str) -> None:
    try:
        found, _ = page(names(10), cursor, 3, key=name_of)
    except RequestError:
        return
    assert len(found) <= 3


def test_a_cursor_shows_nothing_of_the_names_of_a_list() -> None:
    _, cursor = page(("secret-a", "secret-b"), None, 1, key=name_of)
    assert cursor is not None
    assert b"secret" not in base64.urlsafe_b64decode(cursor + "==")


class Counted(Sequence[str]):
    """A list that counts the items that are read."""

    def __init__(self, count: int) -> None:
        self._items = names(count)
        self.looked_at = 0

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        found = self._items[index]
        self.looked_at += 1 if isinstance(found, str) else len(found)
        return found

    def __len__(self) -> int:
        return len(self._items)


def test_a_page_deep_in_a_long_list_looks_at_a_page_of_items() -> None:
    items = Counted(10_000)
    cursor: str | None = None
    for _ in range(99):
        _, cursor = page(items, cursor, 100, key=name_of)
    items.looked_at = 0
    found, cursor = page(items, cursor, 100, key=name_of)
    assert (found[0], cursor) == ("item-9900", None)
    assert items.looked_at <= 110
