"""Plain calls that go through middleware: sent at once behind it, if they are still plain.

Middleware may change a call, answer it, or make several of it. The call behind it is sent by `SendsCalls` if possible,
and otherwise takes the full path from there; in both cases the middleware runs once for each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from toolweave.protocol import methods
from toolweave.protocol.meta import trace_context_in
from toolweave.serve._plain_calls import ENVELOPE, PlainToolCall, SendsCalls, SentCall
from toolweave.serve._request import Client, Json, Request


async def answer_of(sent: SentCall) -> Any:
    """Wait for the answer of a call that was sent; None where the full path has to make it.

    A call whose wait is cancelled is cancelled where it was sent, too.
    """
    try:
        return await sent.answer
    except asyncio.CancelledError:
        await sent.give_up()
        raise
    except Exception:  # boundary: the full path meets it again, and handles it
        return None


class PlainRequest:
    """A plain call that was not sent yet: `Request.sent` until it is.

    Args:
        calls: Sends it.
        call: The call as it came.
        client: The client that connections know it by: the same object for all of its calls.
        asked: The client of the request, with its identity.
        loop: The running event loop.
    """

    __slots__ = ("_asked", "_call", "_calls", "_client", "_loop")

    def __init__(
        self,
        calls: SendsCalls,
        call: PlainToolCall,
        client: Client,
        asked: Client,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._calls = calls
        self._call = call
        self._client = client
        self._asked = asked
        self._loop = loop

    async def answer(self, request: Request, *, texts: bool) -> tuple[Json | None, SentCall | None]:
        """Send the call behind middleware and return its result.

        Args:
            request: The request behind all middleware.
            texts: Whether members of the result may be left as JSON texts.

        Returns:
            The result and None; or None, and the call if it was sent, which the full path completes.
        """
        call = self._plain(request)
        sent = None if call is None else self._calls.send(call, self._client, self._asked.principal, self._loop)
        if sent is None:
            return None, None
        answer = await answer_of(sent)
        result = None if answer is None else sent.members(answer, texts=texts)
        if result is None:
            return None, sent
        sent.end()
        return result, None

    def _plain(self, request: Request) -> PlainToolCall | None:
        """Return the call of a request behind middleware; None if it is no longer a plain one."""
        params: Mapping[str, Any] = request.params
        name = params.get("name")
        given, has_meta = "arguments" in params, "_meta" in params
        if request.method != methods.TOOLS_CALL or type(name) is not str or len(params) != 1 + given + has_meta:
            return None
        arguments: Any = params["arguments"] if given else None
        if (given and type(arguments) is not dict) or not self._is_same(request.client):
            return None
        call, trace = self._call, None
        if has_meta and (meta := params["_meta"]) is not None and not ENVELOPE.issuperset(meta):
            own = {key: value for key, value in cast("Json", meta).items() if key not in ENVELOPE}
            trace = trace_context_in(own)
            if len(trace) != len(own):
                return None
        if trace is None and not call.has_more and name == call.name and arguments is call.arguments:
            return call
        return PlainToolCall(call.id, name, cast("Json | None", arguments), call.client, call.meta, trace)

    def _is_same(self, client: Client) -> bool:
        """Whether upstreams and connections would see the client that called."""
        asked = self._asked
        return client is asked or (
            client.version == asked.version
            and client.capabilities is asked.capabilities
            and client.info is asked.info
            and client.principal == asked.principal
            and client.conversation == asked.conversation
        )
