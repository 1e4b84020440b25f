"""The sessions of legacy clients over HTTP: which there are, whose they are, and when they end.

Independent of requests and responses.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Self
from uuid import uuid4

import anyio

from toolweave.protocol.jsonrpc import RequestId
from toolweave.protocol.versions import POLLING_VERSION
from toolweave.serve._http.asgi import Cancels, Scope
from toolweave.serve._http.events import EventStore, EventStream, NotificationStream, SharedStream, stream_label
from toolweave.serve._http.session_peers import SharedEvents
from toolweave.serve._http.shares import HttpShares, Shares
from toolweave.serve._pending_requests import PendingRequests
from toolweave.serve._task_spawner import SpawnsTasks
from toolweave.serve.request import ChangeSubscriptions, Client

NOTIFICATIONS = "notifications"
"""The name of the stream that belongs to no request."""


class InFlight:
    """A request that a session counts until `release`, or until the block ends; see `HttpSession.count`.

    Args:
        session: The session, which it keeps open.
    """

    __slots__ = ("_session",)

    def __init__(self, session: HttpSession) -> None:
        self._session: HttpSession | None = session
        session.in_flight += 1

    def release(self) -> None:
        """Stop counting the request, which may still run: its client may be gone. Once only."""
        session = self._session
        if session is not None:
            self._session = None
            session.in_flight -= 1
            session.idle_since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()


class HttpSession:
    """The session of one client, from its `initialize` on.

    Args:
        principal: The authorized principal that began it.
        caller: The caller that it counts for.
        tasks: Where its notifications are written.
        store: Keeps its events, or None.

    Attributes:
        id: The id that the client sends; it cannot be guessed.
        caller: The caller that it counts for.
        name: Its name inside the server, which no client learns.
        client: The client, as it declared itself.
        latest: The same, with the identity of its latest request.
        pending: The requests sent to the client.
        running: Its requests that run, by id.
        listening: The responses that carry one of its streams after a GET.
        notifications: The stream that belongs to no request.
        streams: The streams of its requests that can be resumed, by their names in the store.
        store: Keeps its events, or None.
        shared: Keeps the streams of its requests for other processes, or None.
        prefix: Begins the ids of its events, and the names of its streams in the store.
        ended: Whether it is over.
        in_flight: The number of its HTTP requests that are being served.
        idle_since: When the last of them ended, on the monotonic clock.
    """

    def __init__(self, principal: str | None, caller: str, tasks: SpawnsTasks, store: EventStore | None) -> None:
        self.id: str = uuid4().hex
        self.caller = caller
        self.name: str = uuid4().hex
        self.principal = principal
        self.client: Client = Client(version="", principal=principal, conversation=self.name)
        self.latest: Client = self.client
        self.pending: PendingRequests = PendingRequests()
        self.running: dict[RequestId, Cancels] = {}
        self.listening: set[anyio.CancelScope] = set()
        self.store = store
        self.shared: SharedEvents | None = None
        self.prefix: str = secrets.token_hex(8) + "."
        self.notifications: NotificationStream = NotificationStream(
            f"{self.prefix}{NOTIFICATIONS}", self.prefix, store, tasks
        )
        self.streams: dict[str, EventStream] = {self.notifications.name: self.notifications}
        self.in_flight = 0
        self.idle_since: float = time.monotonic()
        self.ended: bool = False
        self._leave: Callable[[], None] | None = None

    def become(self, session_id: str, client: Client) -> None:
        """Adopt the id and the client of a session that began in another process."""
        self.id = session_id
        self.name = client.conversation or self.name
        self.client = self.latest = client
        # The client may answer a request of another process here. So the ids of requests to it are unique among all
        # processes: each draws its own number for the upper bits. They stay exact in JSON, below 2**53.
        self.pending = PendingRequests((1 + secrets.randbits(20)) << 32)

    def share(self, events: SharedEvents) -> None:
        """Keep the streams of its requests for other processes, which know its events by the same ids."""
        self.shared = events
        # All processes must find the same prefix without asking one another, and no client may guess that of another
        # session. The name has both properties: it is in the shared session, and no client learns it.
        self.prefix = f"{sha256(self.name.encode()).hexdigest()[:16]}."
        self.notifications.mark = self.prefix + NOTIFICATIONS

    @property
    def can_resume(self) -> bool:
        """Whether the events of its streams are kept, so that its client can resume them."""
        return self.store is not None or self.shared is not None

    @property
    def polls(self) -> bool:
        """Whether its client comes back for a stream that the server closed (revision 2025-11-25)."""
        return self.client.version >= POLLING_VERSION

    @property
    def header(self) -> tuple[bytes, bytes]:
        """The header that names it to the client."""
        return b"mcp-session-id", self.id.encode()

    def join(self, conversations: ChangeSubscriptions | None) -> None:
        """Subscribe to changes from now on; once."""
        if self._leave is None and conversations is not None and not self.ended:
            self._leave = conversations.join(self.notifications.push, conversation=self.name)

    def stream(self, key: RequestId) -> EventStream | None:
        """Return a new stream, for the answer to a request; None where it could not be resumed."""
        if self.shared is not None:
            label = stream_label(key)
            if label is None:
                return None
            return SharedStream(label, self.prefix, self.shared)
        if self.store is None:
            return None
        # The ids 1 and "1" are two requests, and a client may use an id a second time: the type and a random part keep
        # their events apart in the store.
        name = f"{self.prefix}{type(key).__name__}:{key}:{secrets.token_hex(4)}"
        made = self.streams[name] = EventStream(name, self.prefix, self.store)
        return made

    def count(self) -> InFlight:
        """Count one more HTTP request, until it is released."""
        return InFlight(self)

    def end(self) -> None:
        """End it: cancel its calls, and fail the requests to its client."""
        self.ended = True
        if self._leave is not None:
            self._leave()
            self._leave = None
        self.pending.fail()
        for scope in (*self.running.values(), *self.listening):
            scope.cancel()


class HttpSessions:
    """The open sessions; those of each caller in the order of their last use.

    Args:
        maximum: Maximum number of sessions.
        idle_seconds: Seconds without a request after which a session ends.
        store: Keeps the events of their streams, or None.
        retry: How long clients wait before they resume a stream, in milliseconds.
        shares: The shares of the app.

    Attributes:
        caller_of: Returns the caller that a session counts for.
    """

    def __init__(
        self,
        maximum: int,
        idle_seconds: float,
        *,
        shares: HttpShares,
        store: EventStore | None = None,
        retry: int | None = None,
    ) -> None:
        self.store = store
        self.retry = retry
        self._maximum = maximum
        self._idle_seconds = idle_seconds
        self._open: dict[str, HttpSession] = {}
        self._by_caller: dict[str, OrderedDict[str, HttpSession]] = {}
        self._shares = Shares(shares.figures["sessions"])
        self.caller_of: Callable[[Scope], str] = shares.callers.of

    def make_room(self, caller: str) -> bool:
        """Return whether a caller can begin another session; one may be ended for it.

        The one that is ended is of the caller that has the most. Its unused sessions come first, then those of which
        only a stream is open. A session with a running request is ended only for a caller that has less even then.
        """
        figures = self._shares.figures
        if len(self._open) < self._maximum:
            return True
        found = self._to_evict(self._shares.of(caller))
        if found is None:
            figures.refused += 1
            return False
        figures.evicted += 1
        self.remove(found)
        return True

    def _to_evict(self, held: int) -> HttpSession | None:
        for caller, number in self._shares.largest_first():
            if number < held:
                break
            sessions = self._by_caller[caller].values()
            found = next((one for one in sessions if not one.in_flight), None)
            if found is None and number > held + 1:
                found = next((one for one in sessions if not one.running), None) or next(iter(sessions))
            if found is not None:
                return found
        return None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def streams(self) -> int:
        """The number of open responses to a GET."""
        return sum(len(session.listening) for session in self._open.values())

    def add(self, session: HttpSession) -> None:
        """Open a session."""
        if session.id not in self._open:
            self._shares.add(session.caller)
        self._open[session.id] = session
        self._by_caller.setdefault(session.caller, OrderedDict())[session.id] = session

    def find(self, session_id: str, principal: str | None) -> HttpSession | None:
        """Return an open session of this principal, or None; sessions of other principals are not found."""
        session = self._open.get(session_id)
        if session is None or session.principal != principal or self._is_idle(session):
            return None
        self._by_caller[session.caller].move_to_end(session_id)
        return session

    def by_id(self, session_id: str) -> HttpSession | None:
        """Return the open session of this id, of any principal, or None."""
        return self._open.get(session_id)

    def remove(self, session: HttpSession) -> None:
        """End a session and forget it."""
        if self._open.get(session.id) is session:
            del self._open[session.id]
            self._shares.remove(session.caller)
            there = self._by_caller[session.caller]
            del there[session.id]
            if not there:
                del self._by_caller[session.caller]
        session.end()

    def end_all(self) -> None:
        """End all of them."""
        for session in list(self._open.values()):
            self.remove(session)

    async def end_idle(self) -> None:
        """End idle sessions, until cancelled."""
        while True:
            await anyio.sleep(min(self._idle_seconds / 4, 30))
            for session in list(self._open.values()):
                if self._is_idle(session):
                    self.remove(session)

    def _is_idle(self, session: HttpSession) -> bool:
        return session.in_flight == 0 and time.monotonic() - session.idle_since > self._idle_seconds
