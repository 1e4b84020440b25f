"""A call that a fast path sent already, for the parts behind it: a protocol alone."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from toolweave._json_types import Json
from toolweave.protocol.jsonrpc import RequestId


class SentCall(Protocol):
    """A call that was sent, and whose answer is waited for."""

    @property
    def answer(self) -> asyncio.Future[Any]:
        """The answer to come, which may be an error; its result is None when `renew` was called meanwhile."""
        ...

    def text(self, request_id: RequestId, answer: Any) -> bytes | None:
        """Return the whole JSON-RPC answer for the client, or None where the full path has to make it."""
        ...

    def members(self, answer: Any, *, texts: bool) -> Json | None:
        """Return the members of the result for the client, or None where the full path has to make them.

        Args:
            answer: The result of the future `answer`.
            texts: Whether members may be left as JSON texts, except those that differ from hop to hop.
        """
        ...

    def renew(self) -> None:
        """End the wait for `answer`, which another one replaces."""
        ...

    def end(self) -> None:
        """Forget the call: it was answered, or its answer is no longer awaited."""
        ...

    async def give_up(self) -> None:
        """Cancel the call where it was sent; bounded."""
        ...
