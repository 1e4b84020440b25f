"""The change stream of a modern server: `subscriptions/listen` (SEP-2575).

Nothing is replayed on such a stream, so that a gap is reported as possibly missed changes; for a changed set of
resources a new stream is opened before the old one is closed. Knows the filters, not the use of the changes.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.abc

from toolweave.connect._feed.list_cache import backoff_seconds
from toolweave.connect._feed.subscriptions import ResourceSubscriptions
from toolweave.connect._session import Session
from toolweave.errors import AuthRequiredError, ProtocolError, ServerError
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from toolweave.protocol.json_types import as_array, as_object
from toolweave.protocol.meta import SUBSCRIPTION_ID
from toolweave.protocol.subscriptions import LIST_FILTERS, RESOURCE_SUBSCRIPTIONS

__all__ = ["ChangeStream"]

_log = logging.getLogger("toolweave.connect")
_STABLE_SECONDS = 60.0
_REFUSALS = frozenset({INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS})
_numbers = itertools.count(1)


class _ListenRequest:
    """One `subscriptions/listen` request."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self.id = f"listen-{next(_numbers)}"
        self.wanted = wanted
        self.honoured: Mapping[str, Any] | None = None  # None: not acknowledged yet
        self.scope = anyio.CancelScope()
        self.over = False
        self.failure: ServerError | None = None
        self.since = 0.0

    @property
    def uris(self) -> list[str]:
        return self.wanted.get(RESOURCE_SUBSCRIPTIONS, [])


class ChangeStream:
    """The change stream of one session.

    `on_missed` is called whenever changes may have been missed until now.
    """

    def __init__(
        self,
        session: Session,
        subscriptions: ResourceSubscriptions,
        *,
        server: str,
        on_missed: Callable[[], None],
    ) -> None:
        self._session = session
        self._subscriptions = subscriptions
        self._server = server
        self._on_missed = on_missed
        self._lists = _list_filters(session.agreement.capabilities)
        self._held: _ListenRequest | None = None
        self._opening: _ListenRequest | None = None
        self._refusal: ServerError | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._wake = anyio.Event()

    def look(self) -> None:
        """Review the wanted filters again."""
        self._wake.set()

    def retry_refused(self) -> None:
        """Try again if the server refused our credentials."""
        if isinstance(self._refusal, AuthRequiredError):
            self._refusal = None
            self._wake.set()

    def acknowledged(self, params: Mapping[str, Any]) -> None:
        """Handle the first message of a stream: the filters that the server honours."""
        named = (as_object(params.get("_meta")) or {}).get(SUBSCRIPTION_ID)
        stream = self._opening
        if stream is not None and named in (stream.id, None):
            honoured = as_object(params.get("notifications"))
            stream.honoured = stream.wanted if honoured is None else honoured
            self._wake.set()

    def cancelled(self, params: Mapping[str, Any]) -> None:
        """Handle the server's cancellation of a stream."""
        for stream in (self._opening, self._held):
            if stream is not None and stream.id == params.get("requestId"):
                stream.scope.cancel()

    async def run(self) -> None:
        """Keep the stream open until the session ends."""
        async with anyio.create_task_group() as tasks:
            while not self._session.wire.over:
                self._wake = anyio.Event()
                self._review()
                with anyio.move_on_after(self._begin(tasks)):
                    await self._wake.wait()

    def _review(self) -> None:
        """Update the state of the streams."""
        opening, held = self._opening, self._held
        if opening is not None and opening.honoured is not None:
            self._opening, self._held = None, opening
            opening.since = anyio.current_time()
            if held is not None:
                held.scope.cancel()  # only now: what came meanwhile came on both
            else:
                self._on_missed()
            self._settle(opening, after_gap=held is None)
        elif opening is not None and opening.over:
            self._opening = None
            self._failed(opening)
        if self._held is not None and self._held.over:
            lost, self._held = self._held, None
            self._failed(lost)
        if self._held is not None:
            self._settle(self._held, after_gap=False)  # somebody may have come anew for what is held

    def _begin(self, tasks: anyio.abc.TaskGroup) -> float | None:
        """Open or close a stream when the wanted filters changed; return the seconds until that is allowed, or None."""
        wanted = self._wanted()
        if self._opening is not None and self._opening.wanted != wanted:
            self._opening.scope.cancel()
            self._opening = None
        if self._opening is not None or wanted == (self._held.wanted if self._held is not None else {}):
            return None
        if not wanted and self._held is not None:
            self._held.scope.cancel()
            self._held = None
            return None
        wait = self._retry_at - anyio.current_time()
        if wait > 0:
            return wait
        self._opening = _ListenRequest(wanted)
        tasks.start_soon(self._hold, self._opening)
        return None

    async def _hold(self, stream: _ListenRequest) -> None:
        with stream.scope:
            try:
                wanted = {"notifications": stream.wanted}
                await self._session.request(methods.SUBSCRIPTIONS_LISTEN, wanted, request_id=stream.id)
            except ServerError as exc:
                stream.failure = exc
        stream.over = True
        self._wake.set()

    def _wanted(self) -> Mapping[str, Any]:
        uris = self._subscriptions.uris
        if self._refusal is not None:
            for uri in uris:
                self._subscriptions.refuse(uri, self._refusal)
            return {}
        return {**self._lists, RESOURCE_SUBSCRIPTIONS: list(uris)} if uris else self._lists

    def _settle(self, stream: _ListenRequest, *, after_gap: bool) -> None:
        """Confirm or refuse subscriptions by the filters that the server honours."""
        honoured = as_array((stream.honoured or {}).get(RESOURCE_SUBSCRIPTIONS)) or ()
        promised = {uri.rstrip("/") for uri in honoured if isinstance(uri, str)}
        for uri in stream.uris:
            if uri.rstrip("/") in promised:
                self._subscriptions.confirm(uri, after_gap=after_gap)
            else:
                text = f"it does not offer to tell of updates of {uri!r}"
                self._subscriptions.refuse(uri, ProtocolError(text, server=self._server, code=INVALID_PARAMS))

    def _failed(self, stream: _ListenRequest) -> None:
        now, failure = anyio.current_time(), stream.failure
        lasted = stream.honoured is not None and now - stream.since >= _STABLE_SECONDS
        self._failures = 1 if lasted else self._failures + 1
        self._retry_at = now + backoff_seconds(self._failures, random.random())  # noqa: S311 - spreads retries
        if failure is None or not _is_refusal(failure):
            _log.info("server %r: its stream of changes ended: %s", self._server, failure or "it closed it")
        elif stream.uris and isinstance(failure, ProtocolError) and failure.code != METHOD_NOT_FOUND:
            kept = self._held.uris if self._held is not None else []
            for uri in stream.uris:
                if uri not in kept:
                    self._subscriptions.refuse(uri, failure)
            self._retry_at = now  # the rest is not to wait for them
        else:
            _log.info("server %r: no subscription to its changes: %s", self._server, failure)
            self._refusal = failure


def _list_filters(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters for the lists whose changes a server declares to notify."""
    offered = {name: as_object(capabilities.get(name)) or {} for name in LIST_FILTERS}
    return {LIST_FILTERS[name]: True for name, one in offered.items() if one.get("listChanged") is True}


def _is_refusal(error: ServerError) -> bool:
    """Whether an error is permanent, so that a retry would get the same answer."""
    if isinstance(error, AuthRequiredError):
        return True
    if not isinstance(error, ProtocolError):
        return False
    status = (as_object(error.data) or {}).get("http_status")
    return error.code in _REFUSALS or (isinstance(status, int) and 400 <= status < 500 and status not in (408, 429))
