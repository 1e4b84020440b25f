"""The tool calls of one streamed turn of Chat Completions, put together from their pieces. Pure.

The API gives each call an index and names id and tool in the first piece only. Servers deviate: one index for all
calls, no index, no id, another id or the name in every piece, a name in fragments, the whole call once more at its end,
all arguments so far in every piece, or `{}` before the arguments. Two mistakes are possible, and one is worse: a piece
that is read as a call makes a call that the model never made. So a piece begins a call only if nothing connects it with
the one before: neither an id, nor arguments that are still open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from toolweave._json_types import Json, JsonObject, object_or_empty, text_or_empty, without_members
from toolweave._repairs import Repair
from toolweave.models._base import ModelEvent, StopReason, StreamedToolCall, ToolCallDelta
from toolweave.models._history import CALL_ID
from toolweave.models._messages import ToolCallPart
from toolweave.providers import WireTools
from toolweave.tools.arguments import fresh_id, json_text, read_arguments, wire_id

ODD_PIECES = Repair(
    given="a streamed call in odd pieces: without an index or an id, with its name in each piece or late, "
    "or an object as a piece",
    read_as="the calls that the model made, each once",
    limit="a call without whole arguments is not run",
    switch="nothing: a call must be exactly one",
)
_CALL_MEMBERS = frozenset({"index", "id", "type", "function"})
_EMPTY = "{}"


@dataclass(slots=True)
class _PartialCall:
    id: str
    given: str | None
    index: int | None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    extra: Json = field(default_factory=dict[str, Any])
    announced: bool = False

    @property
    def text(self) -> str:
        """The arguments so far: the pieces joined, or the last one if each repeats the one before."""
        joined = "".join(self.pieces)
        if len(self.pieces) < 2:
            return joined
        # Some servers repeat all arguments so far in each piece: the last one is whole then, and the pieces joined
        # are not.
        if not _is_whole(self.pieces[-1]) or _is_whole(joined):
            return joined
        for earlier, later in pairwise(self.pieces):
            if not later.startswith(earlier):
                return joined
        return self.pieces[-1]

    def is_whole(self) -> bool:
        """Return whether the arguments so far are complete JSON."""
        return _is_whole(self.text)

    def is_open(self) -> bool:
        """Return whether the arguments have begun and are not complete."""
        return bool(self.pieces) and not self.is_whole()


@dataclass(frozen=True, slots=True)
class _Piece:
    given: str | None
    index: int | None
    name: str
    text: str


class StreamedCalls:
    """Puts the calls of one turn together.

    Args:
        wire: The tools of the request.
        provider: Marker of the members that only this provider understands.
        taken: The ids of the conversation so far.
    """

    def __init__(self, wire: WireTools, provider: str, taken: Collection[str]) -> None:
        self._wire = wire
        self._provider = provider
        self._ids = set(taken)
        self._calls: list[_PartialCall] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def read(self, members: JsonObject) -> Iterator[ModelEvent]:
        """Yield the events of one entry of `tool_calls`."""
        piece = _read(members)
        before = len(self._calls)
        call = self._call_of(piece)
        # A new call ends those before it: their names are whole now.
        if len(self._calls) > before:
            for earlier in self._calls[:before]:
                if earlier.name:
                    yield from self._announce(earlier)
        call.extra |= without_members(members, *_CALL_MEMBERS)
        if call.given is None and piece.given is not None:
            call.given = piece.given
            # The id that was announced stays: the reader of the stream knows the call by it.
            if not call.announced:
                call.id = self._free_id(piece.given)
        if piece.name != call.name:
            call.name += piece.name
        text = _new_text(call, piece)
        # A name may come in fragments. It is whole once arguments follow, or if no tool's name begins with it.
        is_named = bool(text) or not self._is_beginning(call.name)
        if call.name and is_named:
            yield from self._announce(call)
        if text:
            call.pieces.append(text)
            if call.announced:
                yield ToolCallDelta(id=call.id, arguments=text)

    def announce(self) -> Iterator[ModelEvent]:
        """Yield the events of calls that were not announced; one whose name never came is the agent's to answer."""
        for call in self._calls:
            yield from self._announce(call)

    def parts(self, reason: StopReason) -> Iterator[ToolCallPart]:
        """Yield the calls of the finished turn."""
        times = Counter(call.given for call in self._calls)
        for call in self._calls:
            arguments, malformed = read_arguments(call.text)
            name = self._wire.call_name(call.name)
            extra = call.extra
            # The id by which this provider knows the call. One that it gave to two calls of a turn cannot pair their
            # results.
            if call.given not in (None, wire_id(call.id)) and times[call.given] == 1:
                extra = {**extra, CALL_ID: call.given}
            yield ToolCallPart(
                id=call.id,
                name=name,
                arguments=self._wire.arguments(name, arguments),
                malformed=malformed,
                cut=self._is_cut(call, reason),
                extra=extra,
                provider=self._provider if extra else None,
            )

    def _is_cut(self, call: _PartialCall, reason: StopReason) -> bool:
        """Return whether a call may be incomplete, which this API does not say: only the last one can be.

        At the token limit not even complete JSON proves it: some servers close the brackets of a cut text. Without a
        finish reason only complete JSON proves that it is whole.
        """
        if call is not self._calls[-1]:
            return False
        if reason == "max_tokens":
            return True
        return reason in ("other", "malformed_call") and not call.is_whole()

    def _call_of(self, piece: _Piece) -> _PartialCall:
        """Return the call that a piece belongs to, or a new one."""
        known = self._last(piece)
        if known is not None and self._continues(piece, known):
            return known
        call = _PartialCall(id=self._free_id(piece.given), given=piece.given, index=piece.index)
        self._calls.append(call)
        return call

    def _last(self, piece: _Piece) -> _PartialCall | None:
        """Return the last call of this id and index, of this index, of this id, or the last one."""
        of_id: _PartialCall | None = None
        of_index: _PartialCall | None = None
        for call in reversed(self._calls):
            has_id = piece.given is not None and call.given == piece.given
            has_index = piece.index is None or call.index == piece.index
            if has_id and has_index:
                return call
            if has_id and of_id is None:
                of_id = call
            if has_index and of_index is None:
                of_index = call
        # The index of one call may differ from piece to piece. A piece with a name may begin another call of its id.
        if of_index is None and not piece.name:
            return of_id
        return of_index

    def _continues(self, piece: _Piece, call: _PartialCall) -> bool:
        """Return whether a piece belongs to the call that its id or index leads to, and does not begin another one."""
        if "" in (piece.name, call.name):
            return True
        ids = {piece.given, call.given}
        if len(ids - {None}) == 2:
            return call.is_open() and not _is_whole(piece.text)
        if piece.name != call.name:
            return not call.pieces and self._is_rest_of_name(call.name, piece.name)
        # The same name once more: of the same call while its arguments are open, else of another call of the tool.
        if not call.is_whole():
            return True
        if not piece.text.strip():
            return True
        if ids == {None}:
            return self._continues_without_ids(piece, call)
        if call.text in (piece.text, _EMPTY):
            return True
        return piece.given is None and not _begins_call(piece.text)

    def _continues_without_ids(self, piece: _Piece, call: _PartialCall) -> bool:
        if not piece.text.lstrip().startswith("{"):
            return True
        return call.text == _EMPTY and not _is_whole(piece.text)

    def _is_rest_of_name(self, begun: str, rest: str) -> bool:
        """Return whether `rest` is the end of the name begun, and not the name of another tool."""
        offered = self._wire.names.exposed
        if offered(begun + rest) is not None:
            return True
        return offered(begun) is None and offered(rest) is None

    def _is_beginning(self, name: str) -> bool:
        """Return whether a name may be the beginning of a longer one."""
        if self._wire.names.exposed(name) is None:
            return True
        return any(one != name and one.startswith(name) for one in self._wire.names.wire_names.values())

    def _free_id(self, given: str | None) -> str:
        if given is None or given in self._ids:
            given = fresh_id()
        self._ids.add(given)
        return given

    def _announce(self, call: _PartialCall) -> Iterator[ModelEvent]:
        if call.announced:
            return
        call.announced = True
        yield StreamedToolCall(id=call.id, name=self._wire.call_name(call.name))
        if call.pieces:
            yield ToolCallDelta(id=call.id, arguments=call.text)


def _read(members: JsonObject) -> _Piece:
    inner = object_or_empty(members.get("function"))
    index = members.get("index")
    arguments = inner.get("arguments")
    if arguments is None:
        arguments = ""
    return _Piece(
        given=text_or_empty(members.get("id")) or None,
        index=index if isinstance(index, int) else None,
        name=text_or_empty(inner.get("name")),
        text=arguments if isinstance(arguments, str) else json_text(arguments),
    )


def _new_text(call: _PartialCall, piece: _Piece) -> str:
    """Return the new part of the arguments in a piece of a call; drop a placeholder before them."""
    text = piece.text
    # Only a text that begins like an object can repeat the arguments or replace them, so the others are not compared:
    # long arguments come in thousands of pieces.
    if not call.pieces or not text.lstrip().startswith(("{", "null")):
        return text
    known = call.text
    if known.strip() == _EMPTY:
        call.pieces.clear()
        return text
    if text != known and _begins_call(text):
        return text
    if _is_whole(known):
        return ""
    return text


def _begins_call(text: str) -> bool:
    """Return whether a text begins the arguments of a call, and is more than a placeholder for none."""
    return text.lstrip().startswith("{") and text.strip() != _EMPTY


def _is_whole(text: str) -> bool:
    return bool(text.strip()) and read_arguments(text)[1] is None
