"""The requests that a server has sent to one legacy client, until they are answered.

Independent of the transport: messages go out through a function.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import msgspec

from toolweave._json_types import as_integer, as_object, as_text, object_or_empty
from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import CONNECTION_CLOSED, INTERNAL_ERROR
from toolweave.protocol.jsonrpc import StrictMessage, encode_notification, encode_request
from toolweave.serve.request import Json

_log = logging.getLogger("toolweave.serve")
_COURTESY_SECONDS = 1.0


class PendingRequests:
    """Sends requests to one client and matches its answers, by ids that are unique for the client.

    Args:
        first: The first id.
    """

    def __init__(self, first: int = 1) -> None:
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._ids = itertools.count(first)
        self._over = False

    async def ask(self, method: str, params: Mapping[str, Any], send: Callable[[bytes], Awaitable[None]]) -> Json:
        """Send the client a request and return its result; a cancelled one is withdrawn.

        Raises:
            RequestError: The client refused, or is gone.
        """
        if self._over:
            raise _gone()
        key = next(self._ids)
        answer = self._answers[key] = asyncio.get_running_loop().create_future()
        try:
            # The future is there before the request is sent: over a pipe, the answer may arrive while `send` still
            # waits.
            await send(encode_request(key, method, params, errors="replace"))
            return await answer
        except asyncio.CancelledError:
            # The client is notified that nobody waits any more. Shielded, as this task is being cancelled, and bounded,
            # as the client may not read.
            if not self._over:
                reason = {"requestId": key, "reason": "the answer is not needed any more"}
                with anyio.move_on_after(_COURTESY_SECONDS, shield=True):
                    await send(encode_notification(methods.NOTIFICATIONS_CANCELLED, reason))
            raise
        finally:
            del self._answers[key]

    def waits_for(self, message: StrictMessage) -> bool:
        """Whether an answer is that to a request of this process."""
        return isinstance(message.id, int) and message.id in self._answers

    def take(self, message: StrictMessage) -> None:
        """Pass an answer of the client to the request it belongs to; one without a pending request is dropped."""
        answer = self._answers.get(message.id) if isinstance(message.id, int) else None
        result = as_object(message.result)
        # Late, or invented: an answer that arrives after a cancellation is normal, and must not end the conversation.
        if answer is None or answer.done():
            _log.debug("a response without a pending request is dropped")
        elif message.error is not msgspec.UNSET:
            answer.set_exception(_refusal(message.error))
        elif result is not None:
            answer.set_result(dict(result))
        else:
            answer.set_exception(RequestError("the client's answer is not a result", code=INTERNAL_ERROR))

    def fail(self) -> None:
        """Fail the pending requests, and all later ones: the client is gone."""
        self._over = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(_gone())


def _refusal(error: object) -> RequestError:
    members = object_or_empty(error)
    message = as_text(members.get("message"))
    code = as_integer(members.get("code"))
    if message is None:
        message = "the client refused"
    if code is None:
        code = INTERNAL_ERROR
    return RequestError(message, code=code, data=members.get("data"))


def _gone() -> RequestError:
    return RequestError("the conversation ended before the client answered", code=CONNECTION_CLOSED)
