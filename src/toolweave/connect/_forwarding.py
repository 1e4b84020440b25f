"""Requests that are made for another client, and sent as they are: the part of a connection that a gateway uses.

Pure; the requester sends them. Their results are passed on as they came. If the owner of a server wants errors in place
of repairs, a result that its client would have to repair is an error instead.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from toolweave._json_types import JsonObject, as_object
from toolweave.config import ServerConfig
from toolweave.connect._catalog import Catalog
from toolweave.connect._client_features.callbacks import AnswerRequest
from toolweave.connect._direct import DirectCall
from toolweave.connect._output_check import checked_result
from toolweave.connect._session import ClientDeclaration, OnNotification
from toolweave.protocol import methods
from toolweave.protocol.tasks import is_task
from toolweave.tools.mcp import tool_result


class ForwardedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of another client; its result comes back as the server gave it.

    Attributes:
        method: The method.
        params: The parameters as they are sent, without `_meta`.
        meta: The client's own members of `_meta`; the envelope of the era and the progress token are added.
        declared: The client, as modern servers see it in the envelope; None declares this one.
        on_progress: Gets the parameters of the request's progress notifications; None asks for none.
        on_news: Gets the other notifications on the request's own stream, such as log messages, where the transport
            has one.
        sole: Whether no other request of a client runs on the connection, so that all its notifications are of this.
        answer: Answers the input that a modern server asks for, in rounds; None returns its requests as the result.
        follow_tasks: Whether a call that becomes a task is followed to its end.
        sent: The call as it was sent already, with its outcome; the requester continues from there.
    """

    method: str
    params: JsonObject
    meta: JsonObject
    declared: ClientDeclaration | None = None
    on_progress: Callable[[JsonObject], None] | None = None
    on_news: OnNotification | None = None
    sole: bool = False
    answer: AnswerRequest | None = None
    follow_tasks: bool = True
    sent: DirectCall | None = None

    @property
    def exclusive_listener(self) -> OnNotification | None:
        """The listener to all notifications of the connection, if no other request runs on it."""
        if self.sole:
            return self.on_news
        return None

    @property
    def stream_listener(self) -> OnNotification | None:
        """The listener to the notifications on the request's own stream, if other requests run on the connection."""
        if self.sole:
            return None
        return self.on_news


def refuse_repairs(request: ForwardedRequest, result: JsonObject, config: ServerConfig, catalog: Catalog) -> None:
    """Refuse a tool's result that its client would have to repair.

    Args:
        request: The request.
        result: Its result.
        config: The server, whose owner wants errors in place of repairs.
        catalog: Its tools, and its repairs.

    Raises:
        ProtocolError: The result is outside of the specification.
    """
    if request.method == methods.TOOLS_CALL:
        is_over = result.get("resultType", "complete") == "complete" and not is_task(result)
        if not is_over:
            return
        target = catalog.original_target(request.params["name"])
        read = tool_result(result, server=config.name, note=catalog.repairs.of_tool(target.name))
        if target.spec is not None and "structuredContent" not in result:
            # notes a text that has to be read as structured content
            checked_result(config, catalog, target.spec, read)
        return
    outcome: JsonObject | None = None
    if request.method == methods.TASKS_RESULT:
        outcome = result
    elif request.method == methods.TASKS_GET:
        outcome = as_object(result.get("result"))
    if outcome is not None:
        tool_result(
            outcome,
            server=config.name,
            note=lambda change: catalog.repairs.add(f"{request.method}: the result of the task {change}"),
        )
