"""The budget of a server's questions to the user in one call: how many, how large, and how many at once.

Roots and pings are answered without a user, so they are free. In the handshake era a question names no call. There the
budget begins anew with each call, and with a question that comes a minute after the previous one.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from toolweave._json_types import JsonObject
from toolweave.errors import ProtocolError
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_REQUEST
from toolweave.protocol.jsonrpc import encode_value

_log = logging.getLogger("toolweave.connect")

MAX_QUESTIONS = 100
MAX_QUESTION_BYTES = 32 * 1024 * 1024
_MAX_AT_ONCE = 64
_PAUSE_SECONDS = 60.0
_COUNTED = frozenset({methods.SAMPLING_CREATE_MESSAGE, methods.ELICITATION_CREATE})


class QuestionBudget:
    """Counts the questions of one server since the last call began.

    Args:
        server: The server's name.
        max_questions: The number that is allowed in one call.
        max_bytes: The size of them together.
    """

    def __init__(self, server: str = "", *, max_questions: int | None = None, max_bytes: int | None = None) -> None:
        self._server = server
        self._max = MAX_QUESTIONS if max_questions is None else max_questions
        self._max_bytes = MAX_QUESTION_BYTES if max_bytes is None else max_bytes
        self._turns = anyio.Semaphore(_MAX_AT_ONCE)
        self._count = self._bytes = 0
        self._last = 0.0
        self._has_refused = False

    def copy(self) -> QuestionBudget:
        """Return a new budget with the same bounds, for one call."""
        return QuestionBudget(self._server, max_questions=self._max, max_bytes=self._max_bytes)

    def begin(self) -> None:
        """Note that a call begins, which has the whole budget."""
        self._count = self._bytes = 0
        self._has_refused = False

    def is_spent(self, method: str) -> bool:
        """Return whether a question of this method was refused in this call, and so is the next one."""
        return method in _COUNTED and self._has_refused and anyio.current_time() - self._last <= _PAUSE_SECONDS

    @asynccontextmanager
    async def spending(self, method: str, params: JsonObject) -> AsyncGenerator[None]:
        """Spend a question, and hold a turn while it is answered.

        Raises:
            ProtocolError: The server has asked too much; the text names the setting.
        """
        if method not in _COUNTED:
            yield
            return
        now = anyio.current_time()
        # A server may also ask while no call runs. Without calls that renew the budget, a pause does.
        if now - self._last > _PAUSE_SECONDS:
            self.begin()
        self._last = now
        # Spent before the wait for a turn, or questions beyond the bound would queue up without end.
        self._spend(len(encode_value(params, errors="replace", allow_nan=True)))
        async with self._turns:
            yield

    def _spend(self, size: int) -> None:
        self._count += 1
        self._bytes += size
        if self._count > self._max:
            raise self._refused(f"more than {self._max} questions in one call; raise 'max_questions' to allow more")
        if self._bytes > self._max_bytes:
            text = (
                f"questions of more than {self._max_bytes} bytes in one call; raise 'max_question_bytes' to allow more"
            )
            raise self._refused(text)

    def _refused(self, text: str) -> ProtocolError:
        if not self._has_refused:  # once a call: a server may send any number
            self._has_refused = True
            _log.warning("server %r: it sent %s", self._server, text)
        return ProtocolError(f"the server sent {text}", server=self._server, code=INVALID_REQUEST)
