"""Detection of a server that was replaced, during a conversation, by a version of the other era.

A stateless conversation over HTTP does not end with its server, nor does the pipe of a process that relays to one, and
a session may be refused in ways that no specification lists.
A refusal that may be due to the era is therefore checked by one request that every server of the era answers.

Why it costs little: a check is due only after a request was accepted, and otherwise once in some seconds. A server that
refuses everything from the start is not checked at all.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping

import anyio

from toolweave._json_types import JsonObject, array_or_empty, object_or_empty, only_members
from toolweave.errors import ConnectionLostError, ProtocolError, ServerError
from toolweave.protocol import methods
from toolweave.protocol.codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
)
from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION

SendCheck = Callable[[str, JsonObject], Awaitable[tuple[int, JsonObject | ProtocolError]]]
"""Sends a request by its method and parameters; returns the status of HTTP, and the result or the refusal."""

_ENVELOPE = (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES)
_CHECK_SECONDS = 10.0
_PAUSE_SECONDS = 5.0
_SILENCE_SECONDS = 300.0
"""The pause after a check that had no response: each one holds up the refusal that caused it."""
_OTHER_CAUSES = frozenset({401, 403, 407, 408, 413, 414, 421, 425, 429, 431, *range(500, 600)})
"""The statuses of refusals that concern a client, a request or its moment, and no era."""
_FAULTS = frozenset({500, 501})
"""The statuses of servers that fail at requests of an era which they do not know."""
_MODERN_CODES = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, INVALID_PARAMS})
"""The codes by which modern servers refuse modern requests."""


class EraCheck:
    """The check of one conversation.

    Attributes:
        due_at: The time, on the event loop's clock, from which a refusal is checked; 0 after an accepted request.

    Args:
        send: Sends the request of a check.
        seconds: How long a check waits for its response.
    """

    def __init__(self, send: SendCheck, *, seconds: float = _CHECK_SECONDS) -> None:
        self.due_at: float = math.inf
        self._send = send
        self._seconds = seconds
        self._silent_until = -math.inf
        self._changed = False
        self._running = anyio.Lock()

    async def is_other_era(self, error: ProtocolError, status: int, method: str, params: JsonObject) -> bool:
        """Return whether a request was refused because the server does not speak the era of the conversation any more.

        Args:
            error: The refusal.
            status: The status of HTTP that it came with.
            method: The method of the request.
            params: The parameters of the request; those of a modern one have its envelope.
        """
        envelope = object_or_empty(params.get("_meta"))
        modern = PROTOCOL_VERSION in envelope
        # A request for what does not exist has this error in every era: a resource, a prompt. One for a tool that the
        # server lists, or without parameters, does not.
        params_fit = method == methods.TOOLS_CALL or not params.keys() - {"_meta"}
        if not _is_suspicious(error, status, modern=modern, params_fit=params_fit):
            return False
        # Calls that run side by side are refused together: one check serves them all.
        async with self._running:
            # The stream of the session may have found it out meanwhile: a second check would meet a closed connection.
            if self._changed:
                return True
            if anyio.current_time() < max(self.due_at, self._silent_until):
                return False
            self.due_at = anyio.current_time() + _PAUSE_SECONDS
            if modern:
                self._changed = await self._is_not_modern(only_members(envelope, _ENVELOPE))
            else:
                self._changed = await self._refuses_session()
        return self._changed

    async def refuses_session(self) -> bool:
        """Return whether a session is refused whose event stream was open before."""
        async with self._running:
            if not self._changed:
                self._changed = await self._refuses_session()
        return self._changed

    async def _is_not_modern(self, envelope: JsonObject) -> bool:
        """Return whether the server responds, and not as a modern one."""
        status, answer = await self._answer(methods.SERVER_DISCOVER, {"_meta": envelope})
        if isinstance(answer, ProtocolError):
            return status not in _OTHER_CAUSES
        if not isinstance(answer, Mapping):
            return False
        return envelope[PROTOCOL_VERSION] not in array_or_empty(answer.get("supportedVersions"))

    async def _refuses_session(self) -> bool:
        """Return whether the server refuses the ping of a session."""
        status, answer = await self._answer(methods.PING, {})
        if isinstance(answer, ConnectionLostError):
            return not answer.sent  # the session is not known any more
        if not isinstance(answer, ProtocolError):
            return False
        # A ping has no parameters that could be wrong: what is missing is the envelope of the other era.
        if answer.code in (UNSUPPORTED_VERSION, INVALID_PARAMS):
            return True
        # Any other error with status 200 is that of a legacy server that has no ping.
        return status not in _OTHER_CAUSES | {200}

    async def _answer(self, method: str, params: JsonObject) -> tuple[int, JsonObject | ServerError | None]:
        """Send a request; return the status, and the result or the error, or None without a response in time."""
        with anyio.move_on_after(self._seconds):
            try:
                return await self._send(method, params)
            except ServerError as exc:
                return 0, exc
        self._silent_until = anyio.current_time() + _SILENCE_SECONDS
        return 0, None


def _is_suspicious(error: ProtocolError, status: int, *, modern: bool, params_fit: bool) -> bool:
    """Return whether a refusal may be due to the era; `params_fit` says that it is not due to the parameters."""
    if error.code == UNSUPPORTED_VERSION:
        return True
    if status in _OTHER_CAUSES:
        return status in _FAULTS
    if status >= 400:
        return not modern or error.code not in _MODERN_CODES
    if error.code == INVALID_PARAMS:
        return params_fit
    if modern:
        return error.code in (INVALID_REQUEST, METHOD_NOT_FOUND)
    return error.code == INVALID_REQUEST
