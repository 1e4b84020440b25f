"""The side of a connection that is for a gateway: its handshake, its lists, its direct calls.

Made by the connection for the rooms above; programs use the connection itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolweave._json_types import JsonObject, object_or_empty
from toolweave.connect._feed.list_cache import ListFacts, ListKind, LiveList
from toolweave.connect._feed.refresher import CAPABILITIES
from toolweave.errors import ConnectionLostError, ProtocolError
from toolweave.protocol import methods

if TYPE_CHECKING:
    from toolweave.connect._catalog import Catalog
    from toolweave.connect._direct import DirectCalls
    from toolweave.connect._requester import Requester
    from toolweave.connect._session import Agreement, OnNotification


class GatewaySide:
    """The part of a connection for hubs and gateways alone; requests of others go by `McpConnection.forward`."""

    def __init__(
        self,
        requester: Requester,
        catalog: Catalog,
        lists: Mapping[ListKind, LiveList[Any]],
        on_notification: OnNotification,
    ) -> None:
        self._requester = requester
        self._catalog = catalog
        self._lists = lists
        self._on_notification = on_notification

    async def agreement(self) -> Agreement:
        """Return the result of the handshake with the open server; connect, or wait for a restart, within the bounds.

        Raises:
            ServerError: The connection could not be opened.
        """
        return (await self._requester.session()).conversation.agreement

    async def checked_agreement(self) -> Agreement:
        """Return the result of the handshake with the server as it is now: one request shows whether it was replaced.

        Raises:
            ServerError: The connection could not be opened.
        """
        if (await self.agreement()).modern:
            method = methods.SERVER_DISCOVER
        else:
            method = methods.PING
        try:
            await self._requester.with_reconnect(lambda session: session.conversation.request(method), repeatable=True)
        except (ConnectionLostError, ProtocolError):
            # lost with the old server, or refused by the new one; the handshake of the new one counts
            pass
        return await self.agreement()

    def list_facts(self, kind: ListKind) -> ListFacts[Any]:
        """Return a list of the server as it is known now, without asking for it: its items, lifetime and members."""
        session = self._requester.last_session
        capabilities: JsonObject = session.conversation.agreement.capabilities if session else {}
        declared = object_or_empty(capabilities.get(CAPABILITIES[kind]))
        return self._lists[kind].facts(notified=declared.get("listChanged") is True)

    @property
    def direct_calls(self) -> DirectCalls:
        """Calls of tools for other clients that are sent at once, without a task or a scope; the sender waits for each.

        What an answer needs beyond that `forward` does, given the call as `ForwardedRequest.sent`.
        """
        return self._requester.direct

    def note_notification(self, method: str, params: JsonObject) -> None:
        """Handle a notification that the server sent on another connection to it, such as the change of a list."""
        self._on_notification(method, params)

    def note_arguments(self, name: str, changes: Sequence[str]) -> None:
        """Report the repairs of the arguments of a call before it is forwarded.

        Args:
            name: The server's name of the tool.
            changes: The kinds of changes.
        """
        self._catalog.note_arguments(name, changes)

    def note_forwarded(self, name: str, result: JsonObject) -> None:
        """Look for hidden characters in the result of a call that was sent by `direct_calls`, as the config says."""
        self._requester.note_forwarded(name, result)
