"""Streams of sessions that any of several processes can continue, for a client that comes back with `Last-Event-ID`.

The answer to a request is read from the shared store, also while another process still works on it. Notifications
beside requests are not kept: the client is notified that all lists may have changed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio

from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.jsonrpc import RequestId, StrictMessage, encode_error
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._http.events import read_event
from toolweave.serve._http.response import EventResponse, event_of
from toolweave.serve._http.session_peers import SharedEvent, SharedEvents, StreamLost
from toolweave.serve._http.sessions import NOTIFICATIONS, HttpSession

_log = logging.getLogger("toolweave.serve")

_LISTS = {
    "tools": methods.NOTIFICATIONS_TOOLS_LIST_CHANGED,
    "prompts": methods.NOTIFICATIONS_PROMPTS_LIST_CHANGED,
    "resources": methods.NOTIFICATIONS_RESOURCES_LIST_CHANGED,
}


async def resume_shared(
    session: HttpSession,
    events: SharedEvents,
    event: str,
    response: EventResponse,
    *,
    endpoint: Endpoint,
    memory: Sequence[StrictMessage],
    retry: int | None,
) -> None:
    """Write the events of a stream that a client has missed, and those still to come.

    Args:
        session: The client's session.
        events: Keeps the streams of requests.
        event: The id of the last event that the client had, without the prefix of the session.
        response: The response to its GET.
        endpoint: Knows which lists can change.
        memory: The state of the session, with its subscriptions.
        retry: How long the client may wait before it comes back, in milliseconds.
    """
    if event == NOTIFICATIONS:
        # Carried before it is primed: a notification that comes in between goes to this response, and not to the one
        # that is gone.
        session.notifications.carry(response)
        await session.notifications.prime(retry)
        _say_all_may_have_changed(session, endpoint, memory)
        await response.until_gone()
        return
    place = read_event(event)
    if place is None:
        return  # none of ours
    async with anyio.create_task_group() as tasks:

        async def follow() -> None:
            await _followed(session, events, place, response)
            tasks.cancel_scope.cancel()

        # Two ends, whichever comes first: the stream is written to its end, or the client goes; either ends the other
        # task.
        tasks.start_soon(follow)
        await response.until_gone()
        tasks.cancel_scope.cancel()


async def _followed(
    session: HttpSession, events: SharedEvents, place: tuple[str, RequestId, int], response: EventResponse
) -> None:
    """Write the stream that answers a request to its end, or to an error instead of the answer."""
    label, key, after = place

    async def write(event: SharedEvent) -> None:
        if event.message is not None:
            # The id names session, stream and number (resumability: unique in the session), so any replica finds the
            # place without asking the one that wrote it.
            name = f"{session.prefix}{label}.{event.number}"
            await response.write(event_of(event.message.encode(), name), last=event.last)

    try:
        await events.follow(session.prefix + label, after, write)
    # The replica that worked on the answer is gone. An error with the request's id ends the client's wait; silence
    # would last until its timeout.
    except StreamLost as lost:
        _log.info("a client came back for an answer that is lost: %s", lost)
        error = RequestError(str(lost), code=INTERNAL_ERROR)
        await response.write(event_of(encode_error(key, error.code, error.message, error.data)), last=True)


def _say_all_may_have_changed(session: HttpSession, endpoint: Endpoint, memory: Sequence[StrictMessage]) -> None:
    """Say of every list and of every subscribed resource that it may have changed."""
    offered = endpoint.capabilities(modern=False)
    for name, method in _LISTS.items():
        if offered.get(name, {}).get("listChanged"):
            session.notifications.push(method, {})
    for message in memory:
        uri = (message.params or {}).get("uri")
        if message.method == methods.RESOURCES_SUBSCRIBE and isinstance(uri, str):
            session.notifications.push(methods.NOTIFICATIONS_RESOURCES_UPDATED, {"uri": uri})
