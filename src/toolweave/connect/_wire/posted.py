"""Calls that a wire sends at once: what it returns for them, and the text that it sends. Knows no transport."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from toolweave._json_types import Json
from toolweave.connect._wire.responses import invalid
from toolweave.protocol.jsonrpc import REQUEST_HEAD, value_of
from toolweave.protocol.lenient_messages import RawResult

PostedRequest: TypeAlias = tuple[int, asyncio.Future[Any]]
"""A request that was sent at once: its id, and its outcome: a `RawResult`, a dict or an error."""

_FORM = REQUEST_HEAD + b"%d%b"


def posted_text(key: int, members: bytes) -> bytes:
    """Return a request as one JSON text.

    Args:
        key: Its id.
        members: The members behind the id, from the comma on to the last bracket.
    """
    return _FORM % (key, members)


def posted_result(answer: RawResult | Json, server: str) -> Json:
    """Return the result in the answer to a posted request.

    Raises:
        ProtocolError: It cannot be read.
    """
    if isinstance(answer, dict):
        return answer
    try:
        return {name: value_of(member) for name, member in answer.result.items()}
    except ValueError as exc:
        raise invalid(server, str(exc)) from None
