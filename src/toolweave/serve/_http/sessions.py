"""The sessions of legacy clients over HTTP: which there are, whose they are, and when they end.

Independent of requests and responses.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from uuid import uuid4

import anyio

from toolweave.protocol.jsonrpc import RequestId
from toolweave.serve._http.asgi import Cancels
from toolweave.serve._http.events import EventStore, EventStream, NotificationStream, SharedStream, stream_label
from toolweave.serve._http.session_peers import SharedEvents
from toolweave.serve._pending_requests import PendingRequests
from toolweave.serve._request import ChangeSubscriptions, Client
from toolweave.serve._task_spawner import SpawnsTasks

NOTIFICATIONS = "notifications"
"""The name of the stream that belongs to no request."""


class HttpSession:
    """The session of one client, from its `initialize` on.

    Args:
        principal: The authorized principal that began it.
        tasks: Where its notifications are written.
        store: Keeps its events, or None.

    Attributes:
        id: The id that the client sends; it cannot be guessed.
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

    def __init__(self, principal: str | None, tasks: SpawnsTasks, store: EventStore | None) -> None:
        self.id = uuid4().hex
        self.name = uuid4().hex
        self.principal = principal
        self.client = self.latest = Client(version="", principal=principal, conversation=self.name)
        self.pending = PendingRequests()
        self.running: dict[RequestId, Cancels] = {}
        self.listening: set[anyio.CancelScope] = set()
        self.store = store
        self.shared: SharedEvents | None = None
        self.prefix = secrets.token_hex(8) + "."
        self.notifications = NotificationStream(f"{self.prefix}{NOTIFICATIONS}", self.prefix, store, tasks)
        self.streams: dict[str, EventStream] = {self.notifications.name: self.notifications}
        self.in_flight = 0
        self.idle_since = time.monotonic()
        self.ended = False
        self._leave: Callable[[], None] | None = None

    def become(self, session_id: str, client: Client) -> None:
        """Adopt the id and the client of a session that began in another process."""
        self.id, self.name = session_id, client.conversation or self.name
        self.client = self.latest = client
        # the ids of requests to the client are unique among all processes, and exact in every JSON
        self.pending = PendingRequests((1 + secrets.randbits(20)) << 32)

    def share(self, events: SharedEvents) -> None:
        """Keep the streams of its requests for other processes, which know its events by the same ids."""
        self.shared = events
        # of its name, which no client learns: an id of another session cannot be made
        self.prefix = f"{sha256(self.name.encode()).hexdigest()[:16]}."
        self.notifications.mark = self.prefix + NOTIFICATIONS

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
            return None if label is None else SharedStream(label, self.prefix, self.shared)
        if self.store is None:
            return None
        # ids 1 and "1" are two requests, and a client may use an id again
        name = f"{self.prefix}{type(key).__name__}:{key}:{secrets.token_hex(4)}"
        made = self.streams[name] = EventStream(name, self.prefix, self.store)
        return made

    def occupy(self, key: RequestId, call: Cancels) -> None:
        """Count a request whose answer is JSON, until `vacate`."""
        self.in_flight += 1
        self.running[key] = call

    def vacate(self, key: RequestId) -> None:
        """Release the id that `occupy` reserved."""
        self.leave()
        self.running.pop(key, None)

    def leave(self) -> None:
        """Stop counting a request that may still run: its client is gone."""
        self.in_flight -= 1
        self.idle_since = time.monotonic()

    @contextmanager
    def used(self) -> Generator[Callable[[], None]]:
        """Count one more HTTP request while the block runs, or until the yielded function is called."""
        self.in_flight += 1
        counted = True

        def release() -> None:
            nonlocal counted
            if counted:
                counted = False
                self.in_flight -= 1
                self.idle_since = time.monotonic()

        try:
            yield release
        finally:
            release()

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
    """The open sessions, the one that is unused for longest first.

    Args:
        most: Maximum number of sessions.
        idle_seconds: Seconds without a request after which a session ends.
        store: Keeps the events of their streams, or None.
        retry: How long clients wait before they resume a stream, in milliseconds.
    """

    def __init__(
        self, most: int, idle_seconds: float, *, store: EventStore | None = None, retry: int | None = None
    ) -> None:
        self.store = store
        self.retry = retry
        self._most = most
        self._idle_seconds = idle_seconds
        self._open: OrderedDict[str, HttpSession] = OrderedDict()

    def make_room(self, *, forget: bool) -> bool:
        """Return whether another session can begin.

        Args:
            forget: Whether an unused one may be ended for it, because it can come back.
        """
        if len(self._open) >= self._most and forget:
            unused = next((one for one in self._open.values() if not one.in_flight), None)
            if unused is not None:
                self.remove(unused)
        return len(self._open) < self._most

    def __len__(self) -> int:
        return len(self._open)

    @property
    def streams(self) -> int:
        """The number of open responses to a GET."""
        return sum(len(session.listening) for session in self._open.values())

    def add(self, session: HttpSession) -> None:
        """Open a session."""
        self._open[session.id] = session

    def find(self, session_id: str, principal: str | None) -> HttpSession | None:
        """Return an open session of this principal, or None; sessions of other principals are not found."""
        session = self._open.get(session_id)
        if session is None or session.principal != principal or self._is_idle(session):
            return None
        self._open.move_to_end(session_id)
        return session

    def by_id(self, session_id: str) -> HttpSession | None:
        """Return the open session of this id, of any principal, or None."""
        return self._open.get(session_id)

    def remove(self, session: HttpSession) -> None:
        """End a session and forget it."""
        self._open.pop(session.id, None)
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
