"""Pages that callers were led to by the error -32042, until the upstream reports that they were visited.

The report arrives after the call has ended, on whichever connection to the upstream it has: it names the page, and so
finds the conversation that got the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolweave.protocol import methods
from toolweave.protocol.client_requests import ELICITATION_ID, required_pages
from toolweave.serve import Client
from toolweave.serve._changes import Changes, Topic

_COMPLETE = methods.NOTIFICATIONS_ELICITATION_COMPLETE
_MAX_PAGES = 10_000
_MAX_ID = 1024  # characters


class PageVisits:
    """The pages that are still to be visited.

    Args:
        changes: Notifies conversations.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._conversations: dict[tuple[str, str], str] = {}

    def note_required(self, server: str, client: Client, error_data: object) -> None:
        """Remember the caller that an upstream's error leads to pages; modern callers are not notified."""
        if client.modern or client.conversation is None:
            return
        for page in required_pages(error_data):
            key = page.get(ELICITATION_ID)
            # The upstream chooses the id, and all of them are kept.
            if isinstance(key, str) and len(key) <= _MAX_ID:
                # to the end: the oldest are forgotten first
                self._conversations.pop((server, key), None)
                self._conversations[server, key] = client.conversation
        while len(self._conversations) > _MAX_PAGES:
            del self._conversations[next(iter(self._conversations))]

    def note_notification(self, server: str, notification: tuple[str, Mapping[str, Any]]) -> None:
        """Notify the caller of a page that an upstream reports as visited; ignore any other notification."""
        method, params = notification
        key = params.get(ELICITATION_ID)
        if method != _COMPLETE or not isinstance(key, str):
            return
        # By the server as well: two servers may choose the same id, and each reports its pages alone.
        conversation = self._conversations.pop((server, key), None)
        if conversation is not None:
            self._changes.publish_to(conversation, Topic(_COMPLETE, key), params)


def all_visited(pages: Iterable[str], answers: Mapping[str, Any]) -> bool:
    """Whether a caller answered that its user visits each of these pages, which the keys of its answers name."""
    return all(key in answers and answers[key].get("action") == "accept" for key in pages)
