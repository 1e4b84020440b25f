"""Calls of tools by the person at a console, through the gateway's own endpoint: its rules and logs hold for them.

The caller is `console`, of the issuer `urn:toolweave:console`. It can answer no questions.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import anyio

from toolweave._json_types import without_members
from toolweave._text import shortened
from toolweave.errors import ProtocolError, RequestError
from toolweave.gateway._admin.managed import ManagedGateway
from toolweave.gateway._console.rendering import MAX_TEXT, as_json
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.content import ContentBlock, ImageContent
from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve import Client, Identity, Request
from toolweave.serve._http.asgi import Receive
from toolweave.serve.request import Json
from toolweave.tools.mcp import tool_result
from toolweave.version import VERSION

CALL_SECONDS = 300.0
_MAX_NOTES = 200
_MAX_IMAGE = 8 * 1024 * 1024
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Pictures that browsers draw and that run nothing."""

_IDENTITY = Identity(client_id="console", issuer="urn:toolweave:console")
_INFO = {"name": "toolweave console", "version": VERSION}


class ShownBlock(NamedTuple):
    """A block of a result as it is shown.

    Attributes:
        text: Its text, or a note about it.
        image: The address of its picture, which holds all of it; "" for none.
    """

    text: str
    image: str = ""


class TrialOutcome(NamedTuple):
    """The outcome of a call.

    Attributes:
        seconds: The time until it was there.
        title: The outcome in a few words.
        failed: Whether the tool or the call failed.
        blocks: The content of the result.
        structured: The structured content or the data of an error, as JSON; "" for none.
        notes: The notifications that came before.
        result: The result as it came; None if no result arrived.
    """

    seconds: float
    title: str
    failed: bool
    blocks: Sequence[ShownBlock] = ()
    structured: str = ""
    notes: Sequence[str] = ()
    result: Json | None = None


class TrialReplyChannel:
    """The reply channel of such a request: notifications are kept, questions refused.

    Attributes:
        notes: The notifications, as texts.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Keep a notification."""
        # A server may report without end, and all of it would be on one page.
        if len(self.notes) < _MAX_NOTES:
            shown = without_members(params, "progressToken", "_meta")
            self.notes.append(shortened(f"{method} {as_json(shown, indent=None)}", 500))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Refuse: this caller declares that it answers nothing.

        Raises:
            RequestError: Always.
        """
        raise RequestError("the console answers no questions", code=INTERNAL_ERROR)

    async def release(self) -> None:
        """Do nothing, because no stream is open."""


async def try_tool(gateway: ManagedGateway, name: str, arguments: Json, receive: Receive) -> TrialOutcome:
    """Call a tool, for five minutes at most and while the browser waits for it.

    Args:
        gateway: The gateway.
        name: The tool's name in it.
        arguments: The arguments.
        receive: ASGI's, after the body of the request: it reports when the browser is gone.
    """
    reply_channel = TrialReplyChannel()
    begun = time.perf_counter()
    params: Json = {"name": name, "arguments": arguments}
    try:
        result = await ask_gateway(gateway, methods.TOOLS_CALL, params, receive, reply_channel)
        late = f"no result within {CALL_SECONDS:g} s: the call was cancelled"
        if result is None:
            outcome = TrialOutcome(0, late, True)
        else:
            outcome = _shown(result)
    except RequestError as error:
        text = f"error {error.code}: {error.message}"
        data = error.data
        outcome = TrialOutcome(0, text, True, structured="" if data is None else as_json(data))
    return outcome._replace(seconds=time.perf_counter() - begun, notes=tuple(reply_channel.notes))


async def ask_gateway(
    gateway: ManagedGateway, method: str, params: Json, receive: Receive, reply_channel: TrialReplyChannel | None = None
) -> Json | None:
    """Make a request as the console; return its result, or None after five minutes or when the browser is gone.

    Args:
        gateway: The gateway.
        method: The method.
        params: The parameters, without `_meta`.
        receive: As for `try_tool`.
        reply_channel: Keeps the notifications before the result.

    Raises:
        RequestError: The answer is an error.
    """
    client = Client(
        version=MODERN_VERSION, capabilities={}, info=_INFO, principal=_IDENTITY.principal, identity=_IDENTITY
    )
    meta: Json = {
        PROTOCOL_VERSION: MODERN_VERSION,
        CLIENT_CAPABILITIES: {},
        CLIENT_INFO: _INFO,
        "progressToken": "console",
    }
    asked: Json = {**params, "_meta": meta}
    request = Request(
        method=method, params=asked, client=client, reply_channel=reply_channel or TrialReplyChannel(), id="console"
    )
    result: Json | None = None
    refused: RequestError | None = None
    with anyio.move_on_after(CALL_SECONDS):
        async with anyio.create_task_group() as tasks:
            # A person who closes the page does not wait for the result, so the tool should not run on.
            tasks.start_soon(_cancel_when_gone, receive, tasks.cancel_scope)
            try:
                result = await gateway.server.endpoint.answer(request)
            except RequestError as error:
                refused = error  # raised below, a task group would wrap it
            tasks.cancel_scope.cancel()
    if refused is not None:
        raise refused
    return result


async def _cancel_when_gone(receive: Receive, call: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    call.cancel()


def _shown(result: Json) -> TrialOutcome:
    # The console declares no capabilities, so a server should not ask; one that does is shown as it is.
    if result.get("resultType", "complete") != "complete":
        return TrialOutcome(0, "the response is not a result yet", True, structured=as_json(result))
    try:
        found = tool_result(result, server="the tool")
    except ProtocolError as error:
        return TrialOutcome(0, str(error), True, structured=as_json(result))
    if found.is_error:
        title = "the tool reports an error"
    else:
        title = "the tool answered"
    return TrialOutcome(
        seconds=0,
        title=title,
        failed=found.is_error,
        blocks=tuple(map(_block, found.content)),
        structured="" if found.structured_content is None else as_json(found.structured_content),
        result=result,
    )


def _block(block: ContentBlock) -> ShownBlock:
    # SVG is not among the types: it may hold scripts.
    if isinstance(block, ImageContent) and block.mime_type in _IMAGES and len(block.data) <= _MAX_IMAGE:
        try:
            # re-encoded: the address holds nothing else
            data = base64.b64encode(block.decode()).decode()
            return ShownBlock(block.render(), f"data:{block.mime_type};base64,{data}")
        except (ValueError, binascii.Error):
            return ShownBlock("[image: its base64 is broken]")
    return ShownBlock(shortened(block.render(), MAX_TEXT))
