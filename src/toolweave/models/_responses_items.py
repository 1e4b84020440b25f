"""The output items of one streamed turn of the Responses API, put together from its events. Pure.

The API reports each item four times: when it is added, in deltas, when it is done, and in the whole response at the
end. Servers leave any of these out, leave out the index, give one index to two items, or another id to one item in each
event. So an item is kept from its first event on, and each later event adds to it. Events are connected by call id,
then by index, then by item id; an item that is done is complete, and a further one at its index is another item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from toolweave._json_types import (
    Json,
    JsonObject,
    array_or_empty,
    as_object,
    object_or_empty,
    text_entries,
    text_or_empty,
)
from toolweave.tools.arguments import read_arguments

ARGUMENTS = "response.function_call_arguments"
_OF_DELTA = {
    "response.output_text": "message",
    "response.refusal": "message",
    "response.reasoning_summary_text": "reasoning",
    "response.reasoning_text": "reasoning",
    ARGUMENTS: "function_call",
}
"""Types of the items to which events belong, by the events' names without `.delta` and `.done`."""

_TEXT_MEMBERS = ("text", "refusal", "arguments")
_Connects: TypeAlias = "Callable[[StreamedItem, int | None, JsonObject], bool]"
"""Returns whether an item is connected with the members of a report at a place."""


@dataclass(slots=True, eq=False)
class StreamedItem:
    """One item of the output.

    Attributes:
        kind: Its type, such as `"message"`.
        raw: Its members as far as they are known.
        index: Its place in the output, or None.
        id: The call's id as it was announced; empty before that.
        texts: The pieces of its text or arguments, by the part of its content.
        done: Whether its end was reported.
    """

    kind: str
    raw: JsonObject = field(default_factory=dict[str, Any])
    index: int | None = None
    id: str = ""
    texts: dict[tuple[str, int], list[str]] = field(default_factory=dict[tuple[str, int], list[str]])
    done: bool = False

    @property
    def streamed(self) -> str:
        """The text or arguments in the pieces."""
        return "".join("".join(self.texts[part]) for part in sorted(self.texts))

    @property
    def text(self) -> str:
        """Its text: of the members and the pieces the longer one, because either may be left out."""
        reported = "".join(texts(self.raw.get("content")))
        return max(reported, self.streamed, key=len)

    @property
    def refused(self) -> bool:
        """Whether it is a refusal."""
        if any(kind == "refusal" for kind, _ in self.texts):
            return True
        parts = map(object_or_empty, array_or_empty(self.raw.get("content")))
        return any(part.get("type") == "refusal" for part in parts)

    @property
    def thought(self) -> str:
        """The text of a thought: its summary, else its content."""
        summary = "\n\n".join(texts(self.raw.get("summary")))
        if summary:
            return summary
        return "".join(texts(self.raw.get("content"))) or self.streamed

    @property
    def arguments(self) -> str:
        """The arguments of a call: those of the members if they are complete, else the longer of both."""
        reported = text_or_empty(self.raw.get("arguments"))
        if reported.strip() and read_arguments(reported)[1] is None:
            return reported
        return max(reported, self.streamed, key=len)

    @property
    def is_reported(self) -> bool:
        """Whether all of it was reported: its end, or complete arguments."""
        return self.done or bool(self.arguments.strip())

    def add(self, members: JsonObject, *, done: bool) -> None:
        """Add the members of a later event; those that are empty there are kept as they were."""
        merged: Json = {}
        for name, value in self.raw.items():
            # The status of an item that is not done yet is one of its beginning.
            is_current = self.done or name != "status"
            if is_current and _is_there(value):
                merged[name] = value
        for name, value in members.items():
            if _is_there(value) or name not in merged:
                merged[name] = value
        self.raw = merged
        self.done = self.done or done


class StreamedItems:
    """Puts the items of one turn together."""

    def __init__(self) -> None:
        self._items: list[StreamedItem] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def __iter__(self) -> Iterator[StreamedItem]:
        """Yield the items in the order of the output."""
        places: dict[int, int] = {}
        for number, item in enumerate(self._items):
            places[id(item)] = number if item.index is None else item.index
        # A list is sorted stably: items of one place stay in the order in which they came.
        return iter(sorted(self._items, key=lambda item: places[id(item)]))

    @property
    def last(self) -> StreamedItem | None:
        """The last item of the output."""
        if self._items:
            return list(self)[-1]
        return None

    def begin(self, event: JsonObject, *, done: bool) -> StreamedItem:
        """Return the item that an event reports whole, as it begins or as it is done."""
        members = object_or_empty(event.get("item"))
        index = _index(event)
        item = self._of_item(index, members, done=done)
        if item is None:
            item = StreamedItem(kind=_kind(members), index=index)
            self._items.append(item)
        item.add(members, done=done)
        return item

    def add_piece(self, name: str, event: JsonObject) -> StreamedItem | None:
        """Return the item to which a piece of text or of arguments was added; None for an event of another kind."""
        kind = _OF_DELTA.get(name)
        delta = event.get("delta")
        if kind is None or not isinstance(delta, str):
            return None
        item = self._of_piece(kind, event)
        item.texts.setdefault(_part(name, event), []).append(delta)
        return item

    def end_piece(self, name: str, event: JsonObject) -> None:
        """Take the whole text or arguments from the event that ends them, if that has more than the pieces."""
        kind = _OF_DELTA.get(name)
        whole = next(filter(None, text_entries([event.get(one) for one in _TEXT_MEMBERS])), None)
        if kind is None or whole is None:
            return
        item = self._of_piece(kind, event)
        part = _part(name, event)
        if len(whole) > len("".join(item.texts.get(part, ()))):
            item.texts[part] = [whole]
        if kind == "function_call" and isinstance(event.get("name"), str):
            item.raw = {"name": event["name"], **item.raw}

    def merge(self, output: list[Any]) -> None:
        """Add the items of the whole response to those that were streamed."""
        left: dict[int, JsonObject] = {}
        for number, reported in enumerate(output):
            members = as_object(reported)
            if members is not None:
                left[number] = members
        free = list(self._items)
        # The surest connections first, so that no guess takes an item that another one is surely connected with.
        for connects in (_is_named, _has_id, _is_at, _is_like):
            for number, members in tuple(left.items()):
                item = _first(free, connects, number, members)
                if item is not None:
                    free.remove(item)
                    item.add(left.pop(number), done=True)
        for number, members in left.items():
            item = StreamedItem(kind=_kind(members), index=number)
            item.add(members, done=True)
            self._items.append(item)

    def _of_item(self, index: int | None, members: JsonObject, *, done: bool) -> StreamedItem | None:
        """Return the item that a whole one is a later report of, or None for a new one."""
        newest = self._items[::-1]
        named = _first(newest, _is_named, index, members)
        if named is not None:
            if named.done and _is_another_call(named, members):
                return None
            return named
        # Without a place, the beginning of an item is always a new one; an end may be that of an unfinished one.
        if index is None and not done:
            return None
        unfinished = [one for one in newest if not one.done]
        return _first(unfinished, _is_like if index is None else _is_at, index, members)

    def _of_piece(self, kind: str, event: JsonObject) -> StreamedItem:
        """Return the item of a piece, which may be its first event."""
        index = _index(event)
        item_id = event.get("item_id")
        by_certainty: list[StreamedItem | None] = [None] * 4
        for one in self._items:
            if one.kind != kind:
                continue
            known_id = one.raw.get("id")
            is_named = bool(item_id) and known_id == item_id
            if index is not None:
                is_at = one.index == index
            else:
                is_at = not (item_id and known_id)
            # Later items replace earlier ones: of several that fit equally well, the last one is open.
            if is_named and is_at:
                by_certainty[0] = one
            if is_at and not one.done:
                by_certainty[1] = one
            if is_named:
                by_certainty[2] = one
            if is_at:
                by_certainty[3] = one
        found = next(filter(None, by_certainty), None)
        if found is None:
            found = StreamedItem(kind=kind, index=index, raw={"id": item_id} if item_id else {})
            self._items.append(found)
        return found


def texts(value: Any) -> Iterator[str]:
    """Yield the texts in the parts of an item's content or summary."""
    if isinstance(value, str):
        yield value
    for members in map(object_or_empty, array_or_empty(value)):
        text = members.get("text") or members.get("refusal")
        if isinstance(text, str):
            yield text


def _first(
    items: Iterable[StreamedItem], fits: _Connects, index: int | None, members: JsonObject
) -> StreamedItem | None:
    """Return the first item that is connected with members at a place."""
    return next((item for item in items if fits(item, index, members)), None)


def _is_named(item: StreamedItem, index: int | None, members: JsonObject) -> bool:
    """Return whether an item has the call id or the id of these members, and no other place."""
    if len({index, item.index} - {None}) == 2:
        return False
    return _has_id(item, index, members)


def _has_id(item: StreamedItem, _: int | None, members: JsonObject) -> bool:
    """Return whether an item has the call id or the id of these members, at any place."""
    if item.kind != _kind(members):
        return False
    known = item.raw.get("call_id")
    given = members.get("call_id")
    if known and given:
        return known == given
    return bool(members.get("id")) and item.raw.get("id") == members["id"]


def _is_at(item: StreamedItem, index: int | None, members: JsonObject) -> bool:
    """Return whether an item of this type has this place; its id may be another one in each event."""
    return item.index == index and _is_like(item, index, members)


def _is_like(item: StreamedItem, index: int | None, members: JsonObject) -> bool:
    """Return whether an item is of this type, and not of another call."""
    if item.kind != _kind(members):
        return False
    known = item.raw.get("call_id")
    return not known or members.get("call_id") in (None, "", known)


def _is_another_call(item: StreamedItem, members: JsonObject) -> bool:
    """Return whether members with the id of a call that is done are another call: some servers repeat ids."""
    if item.kind != "function_call":
        return False
    given = text_or_empty(members.get("arguments")).strip()
    return given not in ("", item.arguments.strip())


def _is_there(value: Any) -> bool:
    return value not in (None, "", [], {})


def _kind(members: JsonObject) -> str:
    return text_or_empty(members.get("type"))


def _part(name: str, event: JsonObject) -> tuple[str, int]:
    place = event.get("content_index", event.get("summary_index"))
    return name.rpartition(".")[2], place if isinstance(place, int) else 0


def _index(event: JsonObject) -> int | None:
    index = event.get("output_index")
    if type(index) is int and index >= 0:
        return index
    return None
