"""Calls of tools as a gateway makes them: forwarded, or sent at once and completed afterwards. Asserts nothing."""

from __future__ import annotations

import asyncio
import gc
import json
from contextlib import suppress
from typing import Any, Literal

from tests.connect.targets import Json
from toolweave import McpConnection
from toolweave.connect._direct import DirectCall
from toolweave.connect._forwarding import ForwardedRequest
from toolweave.errors import ProtocolError, ServerError, ToolError
from toolweave.protocol.jsonrpc import encode_value

__all__ = ["WAYS", "Outcome", "Way", "completed", "objects", "outcome_of", "posted"]

Way = Literal["forwarded", "sent", "awaited"]
WAYS: tuple[Way, ...] = ("sent", "awaited")
"""How a call is sent at once: completed by the connection from the start, or once its answer is there or needs more."""
_ARGUMENTS: Json = {"a": [1, "é"]}
Outcome = tuple[Any, ...]
"""The result of a call, or the facts of its error; then what was received before."""


def posted(connection: McpConnection, name: str, arguments: Json, *, progress: bool = False) -> DirectCall | None:
    """Send a call at once; None if it cannot be sent so."""
    direct = connection.gateway_side.direct_calls
    loop = asyncio.get_running_loop()
    session = direct.session_for(name, loop)
    if session is None:
        return None
    news = direct.news() if progress else None
    meta = {} if news is None else {"progressToken": news.progress_token()}
    params = encode_value(session.conversation.stamped({"name": name, "arguments": arguments}, meta, None))
    return direct.send(session, name, b',"method":"tools/call","params":%b}' % params, loop, news)


async def outcome_of(connection: McpConnection, name: str, way: Way, *, progress: bool = False) -> Outcome:
    """Call a tool, and return what came of it."""
    sent = None if way == "forwarded" else posted(connection, name, _ARGUMENTS, progress=progress)
    if sent is not None and way == "awaited":
        with suppress(ServerError, ToolError):
            await sent.answer
    return await completed(connection, name, sent, progress=progress)


async def completed(
    connection: McpConnection, name: str, sent: DirectCall | None, *, progress: bool = False
) -> Outcome:
    """Forward a call, which may be sent already, and return what came of it."""
    received: list[Json] = []

    def note_progress(params: Any) -> None:
        received.append({name: value for name, value in params.items() if name != "progressToken"})

    def note_news(method: str, params: Any) -> None:
        received.append({"method": method, **params})

    request = ForwardedRequest(
        method="tools/call",
        params={"name": name, "arguments": _ARGUMENTS},
        meta={},
        on_progress=note_progress if progress else None,
        on_news=note_news,
        sent=sent,
    )
    try:
        result = await connection.forward(request)
    except ProtocolError as exc:
        outcome: Outcome = (type(exc), exc.message, exc.code, json.dumps(exc.data))
    except ServerError as exc:
        outcome = (type(exc), exc.message, getattr(exc, "sent", None), getattr(exc, "exit_code", None))
    else:
        outcome = ("result", json.dumps(result, sort_keys=True))
    return (*outcome, json.dumps(received))


def objects() -> int:
    """Return the number of objects that are kept."""
    gc.collect()
    return len(gc.get_objects())
