"""The replicas of a gateway, and the messages they exchange through a shared store.

Each replica writes a heartbeat, and has a mailbox: documents that a signal announces, received by deleting them. Their
content is encrypted with the keys that replicas share, so a reader of the store learns nothing and can forge
nothing. While the store is away, everything that does not need it keeps working.

A message can get lost though the store had accepted it: when another server becomes the primary, it may lack the last
writes of the one before. So a question that is not answered is repeated. The repetition has the same key, and the other
replica acts on a key once: it ignores a message that it is working on, and sends a given answer again.

Why a message is acted on at most once: it is received by deleting its document, and one of two concurrent deletions
wins. Why a wait for an answer ends: with the answer, when the other replica is gone, when the store stays away, or
after a bound.

Why a replica that lives is not declared gone: a replica that ends deletes its two documents, so one without them has
ended. One that is only silent may be late, and is gone after a longer time. Both count only while the store is one and
the same server: after an outage all heartbeats may have expired, and a server that has become the primary may lack the
heartbeats that others still write to the one before. So absences count only once every replica had time to find the
server and to write a heartbeat. Whatever the store does, a replica without a heartbeat for half a minute is gone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeAlias, TypeVar

import anyio
import anyio.abc
import msgspec

from toolweave._json import decode_json
from toolweave._option_checks import SECRETS, TEXT, check_kind, check_kinds
from toolweave.errors import RequestError, StoreError
from toolweave.gateway._replicas.sealing import SealingKeys
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.serve.request import Json
from toolweave.state import Delete, Put, Store, iter_documents, listening
from toolweave.state._redis_address import RedisAddress, split_name
from toolweave.state.checks import STORE
from toolweave.state.store import MovingStore

ActT = TypeVar("ActT")

_log = logging.getLogger("toolweave.gateway")

_KINDS = {"keys": SECRETS, "group": TEXT}
_KNOWN = "gateway-known"
_LIVING = "gateway-living"
_MAIL = "gateway-mail"
_BEAT_SECONDS = 2.0
_LIVING_SECONDS = 6.0
_KNOWN_SECONDS = 60.0
"""A replica that misses heartbeats gets no requests but still gets broadcasts."""
_CHECK_SECONDS = 0.5
_GONE_SECONDS = 1.0
_SILENT_SECONDS = 4.0
_LOST_SECONDS = 30.0
"""Seconds without a heartbeat after which a replica is gone: if it has ended, if it is silent, or in any case."""
_RETURN_SECONDS = 3 * _BEAT_SECONDS
"""Time in which every replica finds the store, and writes a heartbeat to it."""
_MAIL_SECONDS = 120.0
_LISTEN_SECONDS = 5.0
_POLL_SECONDS = 0.2
_PAUSE_SECONDS = 0.5
_PATIENCE_SECONDS = 900.0
_MAX_AWAY = 60
"""So many checks without the store are waited for an answer."""
_REMIND_SECONDS = 2.0
_MAX_REMIND_SECONDS = 30.0
"""Seconds until an unanswered question is repeated, and the maximum between two repetitions."""
_ANSWER_SECONDS = 120.0
_MAX_ANSWERS = 256
_MAX_KEYS = 10_000
"""Bounds of the answers that are kept to be sent again, by age and number, and of the keys that are acted on once."""
_GOODBYE_SECONDS = 2.0
_WAIT_SECONDS = 2.0

LetterHandler: TypeAlias = "Callable[[Json], Awaitable[Json | None]]"
"""Acts on a message of another replica, and returns the answer; None when it is for another handler of the kind."""


class ReplicaGone(Exception):
    """The replica that was asked does not live any more."""


class UnknownToReplica(Exception):
    """The replica that was asked is alive, and does not know the object of the request."""


class _Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of one replica to another.

    Attributes:
        kind: The kind of message, by which it finds its handlers.
        sender: The replica that sent it.
        body: Its content.
        key: The key of the question that it is or answers; empty for neither.
        failed: Whether it says that the question could not be answered.
    """

    kind: str
    sender: str
    body: dict[str, Any]
    key: str = ""
    failed: bool = False


class _OpenQuestion:
    """A question to another replica that waits for its answer."""

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.letter: _Letter | None = None


class _GivenAnswers:
    """The keys of questions that were acted on, and the latest answers, for replicas that ask once more."""

    def __init__(self) -> None:
        self._letters: OrderedDict[str, _Letter | None] = OrderedDict()
        self._kept: deque[tuple[float, str]] = deque()

    def __contains__(self, key: str) -> bool:
        return key in self._letters

    def get(self, key: str) -> _Letter | None:
        """Return the answer to a question, or None if it is not kept any more."""
        return self._letters.get(key)

    def add(self, letter: _Letter) -> None:
        """Keep an answer, and drop those that are too old or too many."""
        now = anyio.current_time()
        self._letters[letter.key] = letter
        self._kept.append((now, letter.key))
        while len(self._kept) > _MAX_ANSWERS or self._kept[0][0] < now - _ANSWER_SECONDS:
            self._letters[self._kept.popleft()[1]] = None
        while len(self._letters) > _MAX_KEYS:
            self._letters.popitem(last=False)


class Replicas:
    """One replica among those that share a store and keys.

    Args:
        store: The store: Redis or Valkey for several machines.
        keys: The secrets that all replicas have, the newest first.
        group: Names those that are changed together, such as the workers of one command; empty for none.

    Attributes:
        id: The id of this replica, new with every start.
        name: Its human-readable name: the host and the process.
        store: The store.
        group: The group of this replica.
        away: Why the store cannot be used now, or None.

    Raises:
        TypeError: An option has another type.
        ValueError: A key is too short, or none was given.
    """

    def __init__(self, store: Store, keys: Sequence[str | bytes], *, group: str = "") -> None:
        check_kind("Replicas.store", store, STORE)
        check_kinds({"keys": keys, "group": group}, _KINDS, owner="Replicas")
        self.id: str = secrets.token_hex(8)
        self.name: str = f"{socket.gethostname()}/{os.getpid()}"
        self.store = store
        self.group = group
        self.away: str | None = None
        self._sealing = SealingKeys(keys, "gateway replicas", "r1")
        self._handlers: dict[str, list[LetterHandler]] = {}
        self._questions: dict[str, _OpenQuestion] = {}
        self._answering: dict[str, anyio.CancelScope] = {}
        self._given = _GivenAnswers()
        self._back: list[Callable[[], Awaitable[None]]] = []
        self._running = anyio.Lock()
        self._returned = anyio.Event()
        self._back_since = -math.inf
        self._server_since = -math.inf
        self._answered_at = -math.inf

    # used by other modules

    def on(self, kind: str, handler: LetterHandler) -> Callable[[], None]:
        """Act on messages of a kind from now on; return a function that ends that."""
        return _added(self._handlers.setdefault(kind, []), handler)

    def on_return(self, act: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Act each time when the store is back, or is another server; return a function that ends that.

        Another server may lack the last writes. A document that is stored again must do no harm if it is there already.
        """
        return _added(self._back, act)

    async def broadcast(self, kind: str, body: Json, *, group: bool = False) -> None:
        """Send a message to all other replicas.

        Args:
            kind: The kind of message.
            body: The content.
            group: Send to the replicas of the own group only.

        Raises:
            RequestError: The store is away.
        """
        if self.away is not None:
            raise self.unreachable()
        try:
            there = [one async for one in iter_documents(self.store, _KNOWN) if one.key != self.id]
            others = [one.key for one in there if not group or one.value.get("group") == self.group]
            letters = [self._put(other, _Letter(kind, self.id, body)) for other in others]
            if letters:
                await self.store.write(letters, signal=_MAIL)
        except StoreError as exc:
            raise self.lost(exc) from None

    async def ask(self, replica: str, kind: str, body: Json) -> Json:
        """Ask another replica something and return the answer; a cancelled question is withdrawn there.

        Raises:
            ReplicaGone: It does not live any more.
            UnknownToReplica: It does not know the object of the request.
            RequestError: The store is away, or the answer did not come.
        """
        if self.away is not None:
            raise self.unreachable()
        # The key makes a question idempotent: the other replica acts once on each key, however often the question and
        # its reminders arrive, and sends the answer that it kept when it is asked once more.
        key = secrets.token_hex(8)
        question = _OpenQuestion()
        self._questions[key] = question
        try:
            letter = _Letter(kind, self.id, body, key)
            await self._send(replica, letter)
            return await self._answered(replica, letter, question)
        except asyncio.CancelledError:
            # Shielded, else the cancellation would end this await too, and the other replica would finish work that no
            # client waits for. Bounded, because the store may be away.
            with anyio.move_on_after(_GOODBYE_SECONDS, shield=True):
                await self._try_send(replica, _Letter("withdrawn", self.id, {}, key))
            raise
        finally:
            del self._questions[key]

    async def living(self) -> list[str]:
        """Return the ids of the other replicas that live.

        Raises:
            RequestError: The store is away.
        """
        return list(await self.others())

    async def others(self) -> dict[str, str]:
        """Return the names of the other replicas that live, by id.

        Raises:
            RequestError: The store is away.
        """
        if self.away is not None:
            raise self.unreachable()
        try:
            there = [one async for one in iter_documents(self.store, _LIVING) if one.key != self.id]
        except StoreError as exc:
            raise self.lost(exc) from None
        return {one.key: one.value.get("name") or one.key for one in there}

    def has_answered_since(self, moment: float) -> bool:
        """Whether the store has answered a heartbeat that was sent after this time of the event loop."""
        return self._answered_at > moment

    def unreachable(self) -> RequestError:
        """Return the error of an operation that needs the store while the store is away."""
        return RequestError(
            "this needs what the replicas of the gateway share, which cannot be reached now; try again",
            code=INTERNAL_ERROR,
            data={"retryable": True},
        )

    def sealed(self, value: object, bound: str) -> str:
        """Encrypt a JSON value for the store, bound to the name of its document."""
        return self._sealing.seal(msgspec.json.encode(value), bound.encode())

    def opened(self, text: object, bound: str) -> Any:
        """Decrypt a message; None if it does not authenticate."""
        payload = self._sealing.open(text, bound.encode())
        if payload is None:
            return None
        return decode_json(payload)

    # the own life

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Write heartbeats and read the mailbox until cancelled; of several callers one does.

        It has started once the others can know of it, or the store was found to be away.
        """
        # A gateway may be served in several places of one process, and each calls this. The lock lets one of them do
        # the work. The others wait for it and continue when that one is cancelled, so the heartbeats have no gap that
        # is longer than a replica may be silent. They report that they have started at once: the work is being done.
        taken_over = self._running.locked()
        if taken_over:
            task_status.started()
        async with self._running, AsyncExitStack() as stack, anyio.create_task_group() as tasks:
            with suppress(StoreError):  # the loop below meets and logs it again
                await stack.enter_async_context(self.store)
            try:
                tasks.start_soon(self._act_on_return)
                await tasks.start(self._live)
                if not taken_over:
                    task_status.started()
                await self._read(tasks)
            finally:
                tasks.cancel_scope.cancel()
                with anyio.move_on_after(_GOODBYE_SECONDS, shield=True):
                    await self._leave()

    async def _leave(self) -> None:
        try:
            if self.away is None:
                gone = [Delete(collection=collection, key=self.id) for collection in (_LIVING, _KNOWN)]
                await self.store.write(gone)
        except StoreError as exc:
            _log.debug("a replica could not take its leave: %s", exc)

    async def _live(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        was_reported = False
        while True:
            # Two documents with different lifetimes, since two things are to be told apart: a replica that has left
            # removed both, one that crashed or hangs loses the short one first. See `absence`.
            begun = anyio.current_time()
            try:
                await self.store.write(
                    [
                        Put(collection=_LIVING, key=self.id, value={"name": self.name}, ttl=_LIVING_SECONDS),
                        Put(collection=_KNOWN, key=self.id, value={"group": self.group}, ttl=_KNOWN_SECONDS),
                    ]
                )
            except StoreError as exc:
                self.lost(exc)
            else:
                # When it was sent, not when it was answered: a write that hung in between proves nothing about now.
                self._answered_at = begun
                self._found()
            if not was_reported:
                task_status.started()
                was_reported = True
            await anyio.sleep(_BEAT_SECONDS)

    def _found(self) -> None:
        """Note that the store is there, and which server it is."""
        moved = self._server() > self._server_since
        if self.away is None and not moved:
            return
        if self.away is not None:
            self._back_since = anyio.current_time()
            self.away = None
            _log.warning("the store that the replicas of the gateway share is there again")
        self._server_since = self._server()
        self._returned.set()

    def _server(self) -> float:
        """Return the time since when the store has been one and the same server."""
        if isinstance(self.store, MovingStore):
            return self.store.server_since
        return -math.inf

    async def _act_on_return(self) -> None:
        """Act each time when the store is back, beside the heartbeats: they must not wait for servers that start."""
        while True:
            # Replaced before the work: a return during the work sets the new event, and is acted on afterwards.
            await self._returned.wait()
            self._returned = anyio.Event()
            for act in list(self._back):
                await act()

    def lost(self, error: StoreError) -> RequestError:
        """Note that the store is away, and return the error of an operation that needs it."""
        if self.away is None:
            _log.warning("%s; calls go on without what the replicas of the gateway share", error)
        self.away = str(error)
        return self.unreachable()

    async def _read(self, tasks: anyio.abc.TaskGroup) -> None:
        prefix = f"{self.id}/"
        async with listening(self.store, _MAIL) as listener:
            while True:
                try:
                    found = await self.store.scan(_MAIL, prefix=prefix)
                    for one in found:
                        # Only a letter that this deletion removed is acted on: one that has expired meanwhile, or that
                        # a scan returns once more, is not acted on twice.
                        if await self.store.delete(_MAIL, one.key):
                            self._take(one.key, one.value, tasks)
                except StoreError as exc:
                    self.lost(exc)
                    await anyio.sleep(_PAUSE_SECONDS)
                    continue
                # The listener began before the scan, so a letter that is written after the scan wakes it. A store that
                # cannot promise to signal is read often instead.
                if not found:
                    await listener.wait(_LISTEN_SECONDS if listener.sure else _POLL_SECONDS)

    def _take(self, key: str, text: object, tasks: anyio.abc.TaskGroup) -> None:
        opened = self.opened(text, f"mail {key}")
        if opened is None:
            _log.warning("a message in the shared store was dropped: no replica with these keys wrote it")
            return
        letter = msgspec.convert(opened, _Letter)
        if letter.kind == "answer":
            question = self._questions.get(letter.key)
            if question is not None:
                question.letter = letter
                question.answered.set()
        elif letter.kind == "withdrawn":
            scope = self._answering.get(letter.key)
            if scope is not None:
                scope.cancel()
        elif letter.kind == "reminder":
            self._take_reminder(letter, tasks)
        else:
            self._begin(letter, tasks)

    def _take_reminder(self, reminder: _Letter, tasks: anyio.abc.TaskGroup) -> None:
        """Act on a question that got lost, or send its answer again if that got lost."""
        about = reminder.body
        answer = self._given.get(about["key"])
        if answer is not None:
            tasks.start_soon(self._try_send, reminder.sender, answer)
        elif about["age"] < _ANSWER_SECONDS:  # else it may have been acted on, and be forgotten
            self._begin(_Letter(about["kind"], reminder.sender, about["body"], about["key"]), tasks)

    def _begin(self, letter: _Letter, tasks: anyio.abc.TaskGroup) -> None:
        """Act on a message in its own task, and on a question once."""
        # No await between this check and the entry below, so a question and its reminder cannot both begin.
        if letter.key in self._answering or letter.key in self._given:
            return
        scope = anyio.CancelScope()
        if letter.key:
            self._answering[letter.key] = scope
        tasks.start_soon(self._act, letter, scope)

    async def _act(self, letter: _Letter, scope: anyio.CancelScope) -> None:
        """Act on a message; a question is answered."""
        answer: Json | None = None
        with scope:
            try:
                for handler in list(self._handlers.get(letter.kind, ())):
                    found = await handler(letter.body)
                    answer = found if found is not None else answer
            except RequestError as exc:
                _log.info("a message of another replica was refused: %s", exc)
            except Exception:  # boundary: one message must not end the mailbox
                _log.exception("a message of another replica could not be acted on")
            finally:
                self._answering.pop(letter.key, None)
        if letter.key and not scope.cancelled_caught:
            answer_letter = _Letter("answer", self.id, answer or {}, letter.key, failed=answer is None)
            self._given.add(answer_letter)
            await self._try_send(letter.sender, answer_letter)

    # sending

    def _put(self, replica: str, letter: _Letter) -> Put:
        key = f"{replica}/{time.time_ns():020d}{secrets.token_hex(4)}"
        return Put(collection=_MAIL, key=key, value=self.sealed(letter, f"mail {key}"), ttl=_MAIL_SECONDS)

    async def _send(self, replica: str, letter: _Letter) -> None:
        try:
            await self.store.write([self._put(replica, letter)], signal=_MAIL)
        except StoreError as exc:
            raise self.lost(exc) from None

    async def _try_send(self, replica: str, letter: _Letter) -> None:
        """Send a message that must not fail: it is tried again while the store is away, as long as it would count."""
        with anyio.move_on_after(_MAIL_SECONDS):
            while True:
                try:
                    return await self._send(replica, letter)
                except RequestError:
                    await anyio.sleep(_PAUSE_SECONDS)

    async def _remind(self, replica: str, letter: _Letter, age: float) -> None:
        """Repeat a question of this age, if the store is there.

        The reminder has no key, so a replica of a version that does not know reminders ignores it.
        """
        about = {"kind": letter.kind, "body": letter.body, "key": letter.key, "age": age}
        if self.away is None:
            with suppress(RequestError):
                await self._send(replica, _Letter("reminder", self.id, about))

    async def _answered(self, replica: str, letter: _Letter, question: _OpenQuestion) -> Json:
        """Wait for the answer while the other replica lives."""
        watch = ReplicaWatch(self, replica)
        away = 0
        begun = anyio.current_time()
        pause = _REMIND_SECONDS
        remind_at = begun + pause
        with anyio.move_on_after(_PATIENCE_SECONDS):
            while away < _MAX_AWAY:
                # Only time without the store counts: while it is away, an answer cannot arrive, and a replica cannot
                # be seen to be gone.
                away = 0 if self.away is None else away + 1
                with anyio.move_on_after(_CHECK_SECONDS):
                    await question.answered.wait()
                answer = question.letter
                if answer is not None and answer.failed:
                    raise UnknownToReplica
                if answer is not None:
                    return answer.body
                if await watch.is_gone():
                    raise ReplicaGone
                now = anyio.current_time()
                if now >= remind_at:
                    pause = min(2 * pause, _MAX_REMIND_SECONDS)
                    remind_at = now + pause
                    await self._remind(replica, letter, now - begun)
        raise self.unreachable()

    @property
    def settled(self) -> bool:
        """Whether every replica had time to write a heartbeat to the server that the store is now."""
        # A store that has just returned, or was replaced by its copy, may lack the heartbeats of replicas that live.
        since = max(self._back_since, self._server())
        return self.away is None and anyio.current_time() - since >= _RETURN_SECONDS

    async def absence(self, replica: str) -> float | None:
        """Return how many seconds a replica must be missing until it is gone; None if it lives or the store is away."""
        if self.away is not None:
            return None
        try:
            living, known = await self.store.read([(_LIVING, replica), (_KNOWN, replica)])
        except StoreError as exc:
            self.lost(exc)
            return None
        if living is not None:
            return None
        if known is None:
            return _GONE_SECONDS
        return _SILENT_SECONDS


class ReplicaWatch:
    """Detects that a replica is gone: it has ended, or its heartbeats are missing while the store is reachable.

    Args:
        replicas: Where it would show that it lives.
        replica: The replica.
    """

    def __init__(self, replicas: Replicas, replica: str) -> None:
        self._replicas = replicas
        self._replica = replica
        self._missing_since: float | None = None

    async def is_gone(self) -> bool:
        """Look once more; it has to be looked at least twice."""
        now = anyio.current_time()
        absence = await self._replicas.absence(self._replica)
        if absence is None:
            self._missing_since = None
            return False
        # Measured by this process alone, between two of its readings: clocks of machines differ.
        if self._missing_since is None:
            self._missing_since = now
        missing = now - self._missing_since
        if missing >= _LOST_SECONDS:
            return True
        return missing >= absence and self._replicas.settled


def shared_redis(url: str) -> Store:
    """Return the store at the URL of a Redis or Valkey, for the state of replicas, with short timeouts.

    Raises:
        StoreError: The URL is not understood, or the package `redis` is not installed.
    """
    from toolweave.state import RedisStore  # only where there is one

    address, name = split_name(url)
    RedisAddress(address).options()  # a wrong URL is reported at once, not taken for an outage
    return RedisStore(address, prefix=name or "toolweave", wait_seconds=_WAIT_SECONDS)


def _added(there: list[ActT], act: ActT) -> Callable[[], None]:
    there.append(act)

    def remove() -> None:
        if act in there:
            there.remove(act)

    return remove
