"""The cached state of one list of a server: its items, age and changes, and when to read it again.

For tools, prompts, resources and templates alike. Reads through a given request function; decides when a
reading is due, but never reads by itself.
"""

from __future__ import annotations

import logging
import math
import operator
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

import anyio
import anyio.lowlevel

from toolweave._backoff import backoff
from toolweave._json_types import JsonObject
from toolweave._value import Value
from toolweave.connect._feed.list_reader import FetchedList, ParsedList, SendRequest, ToolRefusal, list_all
from toolweave.errors import ProtocolError, printable
from toolweave.protocol import methods
from toolweave.protocol.codes import METHOD_NOT_FOUND
from toolweave.protocol.lenient_offers import NoteChange

_log = logging.getLogger("toolweave.connect")
_FIRST_WAIT_SECONDS = 1.0
_MAX_WAIT_SECONDS = 30.0
_SHORTEST_TTL_SECONDS = 1.0
_MANY_ITEMS = 1_000
"""Items whose comparison with those of before is a step of the event loop by itself."""

ItemT = TypeVar("ItemT")

ListKind = Literal["tools", "prompts", "resources", "resourceTemplates"]
"""The lists of a server, by the member that holds their entries."""

_METHODS: dict[ListKind, str] = {
    "tools": methods.TOOLS_LIST,
    "prompts": methods.PROMPTS_LIST,
    "resources": methods.RESOURCES_LIST,
    "resourceTemplates": methods.RESOURCES_TEMPLATES_LIST,
}


class ListChanged(Value, frozen=True, kw_only=True):
    """A list of a server changed.

    The changes of one list in their order, applied to nothing, give the list: the first reading of a list
    adds all of it.

    Attributes:
        kind: The list: `"prompts"`, `"resources"`, `"resourceTemplates"` or `"tools"`.
        added: Names or URIs that are new.
        removed: Names or URIs that are gone.
        changed: Names or URIs whose definition differs.
        version: Grows by one with every change of the list.
    """

    kind: ListKind
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    version: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


class ListFacts(Value, Generic[ItemT], frozen=True, kw_only=True):
    """A list as it is known now, and the facts about it beside its items.

    Attributes:
        items: The items of the last good reading.
        listed: Whether that was in the server's present session.
        current: Whether it may be shown without being read again.
        ttl_ms: Milliseconds for which the server lets others keep it, from now on; None where it does not say.
        public: Whether the server says that all callers may share it.
        members: The other members of the server's result, such as `_meta`.
    """

    items: tuple[ItemT, ...]
    listed: bool
    current: bool
    ttl_ms: int | None
    public: bool
    members: JsonObject


def in_old_order(old: Sequence[ItemT], new: Sequence[ItemT], identity: Callable[[ItemT], str]) -> tuple[ItemT, ...]:
    """Return `new` in a stable order: old items keep their order.

    That is the server's own order while that is stable; else the remaining items are in the old order,
    followed by the new ones. An item that equals an old one is the very same object.
    """
    if len(old) == len(new) and all(map(operator.is_, old, new)):
        return tuple(old)
    before = {identity(item): item for item in old}
    after = {identity(item): item for item in new}
    for key in before.keys() & after.keys():
        if _same(before[key], after[key]):
            after[key] = before[key]
    stay = [key for key in before if key in after]
    if stay != [key for key in after if key in before]:
        added = [key for key in after if key not in before]
        return tuple(map(after.__getitem__, (*stay, *added)))
    return tuple(after.values())


def _same(old: object, new: object) -> bool:
    try:
        return old is new or old == new
    except RecursionError:  # a definition nested so deeply that it cannot be compared
        return False


def backoff_seconds(failures: int, jitter: float) -> float:
    """Return the seconds to wait after so many failures in a row: 1, 2, 4, ... 30, and up to a tenth more.

    `jitter` is between 0 and 1 and keeps many clients from returning at once.
    """
    return backoff(failures, first=_FIRST_WAIT_SECONDS, longest=_MAX_WAIT_SECONDS, spread=(1.0, 1.1), chance=jitter)


class LiveList(Generic[ItemT]):
    """One list: an immutable tuple that is replaced as a whole.

    `judge` parses the entries, given the wire's check for tools that must not be offered; `on_change` is called
    once after every change of the items, for any caller that requested the reading, and after the first one. `note` is
    called with each malformed part that is read as it is meant; without it none is read so. `redact` masks the secrets
    of the config in problems.

    Attributes:
        kind: The list: the member of the result that holds the entries.
        method: The request that reads it.
        items: The current items, each with another identity.
        version: 0 before the first reading; grows with every change.
        problems: The entries of the last reading that were left out or are suspicious, with the reasons.
        pages: The number of requests of the last reading.
        ttl_seconds: The seconds for which the server allows to cache the list, or None.
        public: Whether the server says that all callers may share the list.
        members: The members of its result beside the entries, such as `_meta`.
        failures: The number of failed readings in a row.
        on_read: Called at the end of every reading, good or bad.
        on_problem: Called with each problem that is new.
    """

    def __init__(
        self,
        server: str,
        kind: ListKind,
        *,
        identity: Callable[[ItemT], str],
        judge: Callable[[list[Any], ToolRefusal | None], Awaitable[ParsedList[ItemT]]],
        on_change: Callable[[ListChanged], None],
        max_bytes: int | None = None,
        note: NoteChange | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._redact = redact
        self.items: tuple[ItemT, ...] = ()
        self.version: int = 0
        self.problems: tuple[str, ...] = ()
        self.pages: int = 0
        self.ttl_seconds: float | None = None
        self.public: bool = False
        self.members: JsonObject = {}
        self.failures: int = 0
        self.kind: ListKind = kind
        self.method: str = _METHODS[kind]
        self.on_read: Callable[[], None] = lambda: None
        self.on_problem: Callable[[str], None] = lambda problem: None
        self._server = server
        self._max_bytes = max_bytes
        self._note_repair = note
        self._identity = identity
        self._judge = judge
        self._on_change = on_change
        self._epoch = 0  # grows whenever the server may have changed the list
        # in which the last good reading began; None: not on this line
        self._read_epoch: int | None = None
        self._read_at = self._failed_at = 0.0
        self._jitter = 0.0
        self._reading: _SharedRead | None = None

    @property
    def fresh(self) -> bool:
        """Whether the items may be used without asking the server again."""
        if self._read_epoch != self._epoch:
            return False
        if self.ttl_seconds is None:
            return True
        return anyio.current_time() < self._read_at + self.ttl_seconds

    @property
    def tried(self) -> bool:
        """Whether a reading from this server has ended, good or bad."""
        return self.listed or self.failures > 0

    @property
    def listed(self) -> bool:
        """Whether the list was read from this server."""
        return self._read_epoch is not None

    @property
    def is_being_read(self) -> bool:
        """Whether a reading is under way."""
        return self._reading is not None

    @property
    def outdated(self) -> bool:
        """Whether the list was read from this server, which has announced a change since."""
        return self.listed and self._read_epoch != self._epoch

    @property
    def due(self) -> float:
        """The time of the next reading that keeps the list up to date, on the event loop's clock.

        A failed reading is repeated with backoff. A `ttlMs` of 0 says that the list must not be
        cached, not that it changes all the time: it is not read again automatically.
        """
        if self.failures:
            return self._failed_at + backoff_seconds(self.failures, self._jitter)
        if self._read_epoch != self._epoch:
            return 0.0
        if not self.ttl_seconds:
            return math.inf
        return self._read_at + max(_SHORTEST_TTL_SECONDS, self.ttl_seconds) * (1 + self._jitter / 10)

    def facts(self, *, notified: bool) -> ListFacts[ItemT]:
        """Return the list as it is known now.

        Args:
            notified: Whether the server announces changes; the list is then current until it does, for any
                lifetime, which begins again for each caller. Without, a reading of this very second is also current.
        """
        ttl = self.ttl_seconds
        age = anyio.current_time() - self._read_at
        if self._read_epoch != self._epoch:
            current = False
            left = 0.0
        elif notified:
            current = True
            left = ttl or 0.0
        else:
            current = age < max(_SHORTEST_TTL_SECONDS, ttl or 0.0)
            left = max(0.0, (ttl or 0.0) - age)
        return ListFacts(
            items=self.items,
            listed=self.listed,
            current=current,
            ttl_ms=None if ttl is None else round(left * 1000),
            public=self.public,
            members=self.members,
        )

    def expire(self) -> None:
        """NoteChange that the server has changed the list; cheap, since it may be called thousands of times."""
        self._epoch += 1

    def forget(self) -> None:
        """Reset for a new session, on which the list has not been read; the items stay until it is."""
        self._epoch += 1
        self._read_epoch = None
        self.failures = 0

    async def refresh(self, request: SendRequest, refusal: ToolRefusal | None = None) -> ListChanged:
        """Read the list and swap the items atomically; return the change since this was called.

        Concurrent callers share a reading under way, unless the list has expired since it started.
        When the caller that reads is cancelled, one of the others takes over.

        Raises:
            ServerError: The list could not be read; the old items stay. All callers who share the reading get it.
        """
        # One reads, the others wait for its `done`. A reader that is cancelled leaves neither a result nor a failure,
        # so the first waiter to wake finds `_reading` empty and reads itself.
        before = self.items
        wanted = self._epoch
        while (reading := self._reading) is not None:
            await reading.done.wait()
            # it began before the change that this caller wants to see
            if reading.epoch < wanted:
                continue
            if reading.failure is not None:
                raise reading.failure
            if reading.finished:
                return self._difference(before)
        reading = self._reading = _SharedRead(self._epoch)
        try:
            since, change = await self._read(request, refusal, reading.epoch)
            reading.finished = True
        except Exception as exc:
            reading.failure = exc
            raise
        finally:
            # cancelled ones count as well: they may have run out of time
            if not reading.finished:
                self.failures += 1
                self._failed_at = anyio.current_time()
            self._jitter = random.random()  # noqa: S311 - spreads readings, guards nothing
            self._reading = None
            reading.done.set()
            self.on_read()
        if since is before:
            return change
        return self._difference(before)

    async def _read(
        self, request: SendRequest, refusal: ToolRefusal | None, epoch: int
    ) -> tuple[tuple[ItemT, ...], ListChanged]:
        """Read the list once; return the previous items and the change."""
        try:
            listing = await list_all(
                request,
                self.method,
                self.kind,
                server=self._server,
                max_bytes=self._max_bytes,
                note=self._note_repair,
            )
        except ProtocolError as exc:
            if exc.code != METHOD_NOT_FOUND:
                raise
            listing = FetchedList()  # a server that has none, such as one of prompts only
        judged = await self._judge(listing.entries, refusal)
        before = self.items
        known = self.version > 0
        items = in_old_order(before, judged.items, self._identity)
        if len(items) > _MANY_ITEMS:
            await anyio.lowlevel.checkpoint()
        self.pages = listing.pages
        self.ttl_seconds = listing.ttl_seconds
        self.public = listing.public and listing.pages > 0
        self.members = listing.members
        # The epoch in which the reading began: a change that was announced meanwhile keeps the list outdated.
        self._read_epoch = epoch
        self._read_at = anyio.current_time()
        self.failures = 0
        self._note((*listing.problems, *judged.problems))
        self.items = items
        change = self._difference(before)
        if change or not known:
            self.version += 1
            change = change.replace(version=self.version)
            self._on_change(change)
        return before, change

    def _note(self, problems: tuple[str, ...]) -> None:
        known = set(self.problems)  # a list that is read every minute reports each problem once
        self.problems = tuple(map(self._redact, problems))  # they quote names and texts of the server
        for problem in self.problems:
            if problem not in known:
                self.report(problem)

    def report(self, problem: str) -> None:
        """Log a problem, and call `on_problem` with it."""
        _log.warning("server %r: %s", self._server, printable(problem))
        self.on_problem(problem)

    def _difference(self, before: tuple[ItemT, ...]) -> ListChanged:
        if self.items is before:
            return ListChanged(kind=self.kind, version=self.version)
        if not before:
            added = tuple(map(self._identity, self.items))
            return ListChanged(kind=self.kind, added=added, version=self.version)
        old = {self._identity(item): item for item in before}
        new = {self._identity(item): item for item in self.items}
        stay = [key for key in new if key in old]
        return ListChanged(
            kind=self.kind,
            added=tuple(key for key in new if key not in old),
            removed=tuple(key for key in old if key not in new),
            changed=tuple(key for key in stay if not _same(old[key], new[key])),
            version=self.version,
        )


class _SharedRead:
    """A reading under way, and its outcome; neither finished nor failed when its reader was cancelled."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.done = anyio.Event()
        self.finished = False
        self.failure: Exception | None = None
