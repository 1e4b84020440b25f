"""The output items of one streamed turn of the Responses API, put together from its events. Pure.

The API reports each item four times: when it is added, in deltas, when it is done, and in the whole response at the
end. Servers leave any of these out, leave out the index, give one index to two items, or another id to one item in each
event. So an item is kept from its first event on, and each later event adds to it. Events are connected by call id,
then by index, then by item id; an item that is done is complete, and a further one at its index is another item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolweave.protocol.json_types import as_array, as_object
from toolweave.tools._arguments import read_arguments

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
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any])
    index: int | None = None
    id: str = ""
    texts: dict[tuple[str, int], list[str]] = field(default_factory=dict[tuple[str, int], list[str]])
    done: bool = False

    @property
    def streamed(self) -> str:
        """The text or arguments in the pieces."""
        return "".join(piece for _, pieces in sorted(self.texts.items()) for piece in pieces)

    @property
    def text(self) -> str:
        """Its text: of the members and the pieces the longer one, because either may be left out."""
        told = "".join(texts(self.raw.get("content")))
        return max(told, self.streamed, key=len)

    @property
    def refused(self) -> bool:
        """Whether it is a refusal."""
        parts = map(as_object, as_array(self.raw.get("content")) or ())
        return "refusal" in {kind for kind, _ in self.texts} or any(
            part is not None and part.get("type") == "refusal" for part in parts
        )

    @property
    def thought(self) -> str:
        """The text of a thought: its summary, else its content."""
        told = "\n\n".join(texts(self.raw.get("summary"))) or "".join(texts(self.raw.get("content")))
        return told or self.streamed

    @property
    def arguments(self) -> str:
        """The arguments of a call: those of the members if they are complete, else the longer of both."""
        given = self.raw.get("arguments")
        told = given if isinstance(given, str) else ""
        if told.strip() and read_arguments(told)[1] is None:
            return told
        return max(told, self.streamed, key=len)

    @property
    def is_reported(self) -> bool:
        """Whether all of it was reported: its end, or complete arguments."""
        return self.done or bool(self.arguments.strip())

    def add(self, members: Mapping[str, Any], *, done: bool) -> None:
        """Add the members of a later event; those that are empty there are kept as they were."""
        # The status of an item that is not done yet is one of its beginning.
        known = {
            name: value for name, value in self.raw.items() if _is_there(value) and (name != "status" or self.done)
        }
        news = {name: value for name, value in members.items() if _is_there(value) or name not in known}
        self.raw = {**known, **news}
        self.done = self.done or done


class StreamedItems:
    """Puts the items of one turn together."""

    def __init__(self) -> None:
        self._items: list[StreamedItem] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def __iter__(self) -> Iterator[StreamedItem]:
        """Yield the items in the order of the output."""
        # A list is sorted stably: items of one place stay in the order in which they came.
        places = {id(item): number for number, item in enumerate(self._items)}
        return iter(sorted(self._items, key=lambda item: places[id(item)] if item.index is None else item.index))

    @property
    def last(self) -> StreamedItem | None:
        """The last item of the output."""
        if self._items:
            return list(self)[-1]
        return None

    def begin(self, event: Mapping[str, Any], *, done: bool) -> StreamedItem:
        """Return the item that an event reports whole, as it begins or as it is done."""
        members = as_object(event.get("item")) or {}
        index = _index(event)
        item = self._of_item(index, members, done=done)
        if item is None:
            item = StreamedItem(kind=_kind(members), index=index)
            self._items.append(item)
        item.add(members, done=done)
        return item

    def add_piece(self, name: str, event: Mapping[str, Any]) -> StreamedItem | None:
        """Return the item to which a piece of text or of arguments was added; None for an event of another kind."""
        kind = _OF_DELTA.get(name)
        delta = event.get("delta")
        if kind is None or not isinstance(delta, str):
            return None
        item = self._of_piece(kind, event)
        item.texts.setdefault(_part(name, event), []).append(delta)
        return item

    def end_piece(self, name: str, event: Mapping[str, Any]) -> None:
        """Take the whole text or arguments from the event that ends them, if that has more than the pieces."""
        kind = _OF_DELTA.get(name)
        whole = next((text for one in _TEXT_MEMBERS if isinstance(text := event.get(one), str) and text), None)
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
        left = {number: item for number, item in enumerate(map(as_object, output)) if item is not None}
        free = list(self._items)
        # The surest connections first, so that none takes the item of a surer one.
        for connects in (_is_named, _has_id, _is_at, _is_like):
            for number, members in tuple(left.items()):
                item = next((one for one in free if connects(one, number, members)), None)
                if item is not None:
                    free.remove(item)
                    item.add(left.pop(number), done=True)
        for number, members in left.items():
            item = StreamedItem(kind=_kind(members), index=number)
            item.add(members, done=True)
            self._items.append(item)

    def _of_item(self, index: int | None, members: Mapping[str, Any], *, done: bool) -> StreamedItem | None:
        """Return the item that a whole one is a later report of, or None for a new one."""
        newest = self._items[::-1]
        named = next((one for one in newest if _is_named(one, index, members)), None)
        if named is not None:
            if named.done and _is_another_call(named, members):
                return None
            return named
        if index is None and not done:
            return None
        fits = _is_like if index is None else _is_at
        return next((one for one in newest if not one.done and fits(one, index, members)), None)

    def _of_piece(self, kind: str, event: Mapping[str, Any]) -> StreamedItem:
        """Return the item of a piece, which may be its first event."""
        index = _index(event)
        item_id = event.get("item_id")
        same_kind = [one for one in reversed(self._items) if one.kind == kind]
        named = [one for one in same_kind if item_id and one.raw.get("id") == item_id]
        if index is not None:
            at = [one for one in same_kind if one.index == index]
        else:
            at = [one for one in same_kind if not item_id or not one.raw.get("id")]
        unfinished = [one for one in at if not one.done]
        found = next(iter([one for one in named if one in at] or unfinished or named or at), None)
        if found is None:
            found = StreamedItem(kind=kind, index=index, raw={"id": item_id} if item_id else {})
            self._items.append(found)
        return found


def texts(value: Any) -> Iterator[str]:
    """Yield the texts in the parts of an item's content or summary."""
    if isinstance(value, str):
        yield value
    for members in map(as_object, as_array(value) or ()):
        if members is None:
            text = None
        else:
            text = members.get("text") or members.get("refusal")
        if isinstance(text, str):
            yield text


def _is_named(item: StreamedItem, index: int | None, members: Mapping[str, Any]) -> bool:
    """Return whether an item has the call id or the id of these members, and no other place."""
    elsewhere = None not in (index, item.index) and index != item.index
    return not elsewhere and _has_id(item, index, members)


def _has_id(item: StreamedItem, _: int | None, members: Mapping[str, Any]) -> bool:
    """Return whether an item has the call id or the id of these members, at any place."""
    if item.kind != _kind(members):
        return False
    known = item.raw.get("call_id")
    given = members.get("call_id")
    if known and given:
        return known == given
    return bool(members.get("id")) and item.raw.get("id") == members["id"]


def _is_at(item: StreamedItem, index: int | None, members: Mapping[str, Any]) -> bool:
    """Return whether an item of this type has this place; its id may be another one in each event."""
    return item.index == index and _is_like(item, index, members)


def _is_like(item: StreamedItem, index: int | None, members: Mapping[str, Any]) -> bool:
    """Return whether an item is of this type, and not of another call."""
    known = item.raw.get("call_id")
    given = members.get("call_id")
    return item.kind == _kind(members) and (not known or not given or known == given)


def _is_another_call(item: StreamedItem, members: Mapping[str, Any]) -> bool:
    """Return whether members with the id of a call that is done are another call: some servers repeat ids."""
    given = members.get("arguments")
    return item.kind == "function_call" and isinstance(given, str) and given.strip() not in ("", item.arguments.strip())


def _is_there(value: Any) -> bool:
    return value not in (None, "", [], {})


def _kind(members: Mapping[str, Any]) -> str:
    return str(members.get("type") or "")


def _part(name: str, event: Mapping[str, Any]) -> tuple[str, int]:
    place = event.get("content_index", event.get("summary_index"))
    return name.rpartition(".")[2], place if isinstance(place, int) else 0


def _index(event: Mapping[str, Any]) -> int | None:
    index = event.get("output_index")
    if type(index) is int and index >= 0:
        return index
    return None
