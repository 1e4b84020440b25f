"""Requests for offers of upstreams that are not there: they could not be reached so far, or are still starting.

What such an upstream offers is not known, so that a request for it fits no offer. The name that it has shows the
upstream, and the answer says how that is instead of "unknown". The text of its error is for the log: it may hold more
than a caller should see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolweave.connect import ConnectionState
from toolweave.errors import ErrorKind, RequestError, ToolError
from toolweave.hub import Hub
from toolweave.hub._hub import down_servers
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.serve import MayUse, Request
from toolweave.serve._unknown import not_offered
from toolweave.serve.request import Json, OfferKind, may_use
from toolweave.tools import ToolResult
from toolweave.tools.mcp import call_result

_STARTING = frozenset({ConnectionState.IDLE, ConnectionState.CONNECTING})
_REASONS = {
    ConnectionState.AUTH_REQUIRED: "does not accept the credentials of this gateway",
    ConnectionState.DEGRADED: "cannot list its tools now",
}


class UnreachedUpstreams:
    """The upstreams of a gateway whose offers are not known.

    Args:
        hub: The upstreams.
        shows: Whether callers see anything of an upstream, by its name.
        prefix: Put before the names of tools by a virtual server.
        relays_unlisted: Returns the upstream that gets requests for offers that are not listed, or None.
    """

    def __init__(
        self,
        hub: Hub,
        shows: Callable[[str], bool],
        prefix: Callable[[], str],
        relays_unlisted: Callable[[], str | None],
    ) -> None:
        self._hub = hub
        self._down = down_servers(hub)
        self._shows = shows
        self._prefix = prefix
        self._relays_unlisted = relays_unlisted

    def called(self, request: Request, name: str) -> Json | None:
        """Return the error result of a call whose tool is of such an upstream, or None."""
        reason = self._reason(request, "tools", name.removeprefix(self._prefix()))
        if reason is None:
            return None
        return _not_sent(request, reason)

    def holder_of_unlisted(self, request: Request, name: str) -> str | None:
        """Return the upstream that answers requests for an unlisted offer; None if the name stays unknown."""
        server = self._relays_unlisted()
        if server is None or request.client.may is not None:
            return None
        if name in self._hub.clients[server].withheld:
            return None
        return server

    def unlisted(self, request: Request, server: str, name: str) -> Json:
        """Return the error result of a call at an upstream whose connection for this caller cannot list its tools."""
        return _not_sent(request, _unknown_whether(f"server {server!r} {_REASONS[ConnectionState.DEGRADED]}", name))

    def error_for_prompt(self, request: Request, name: str) -> RequestError | None:
        """Return the error of a request whose prompt is of such an upstream, or None."""
        reason = self._reason(request, "prompts", name)
        if reason is None:
            return None
        return RequestError(reason, code=INTERNAL_ERROR)

    def no_resource(self, request: Request, uri: str) -> RequestError:
        """Return the error for a resource that no upstream has which could be asked."""
        error = not_offered("resources", uri, modern=request.modern)
        missing = self.names(request.client.may)
        if missing:
            others = ", ".join(map(repr, missing))
            text = f"{error.message} (servers that may have it cannot be asked now: {others})"
            error = RequestError(text, code=error.code, data=error.data)
        return error

    def names(self, may: MayUse | None) -> Sequence[str]:
        """Return the names of those that a caller may be shown: all or, where rules restrict it, none."""
        if may is not None:
            return []
        return [name for name in self._down.unlisted if self._shows(name)]

    def described(self, name: str) -> str:
        """Return a sentence that says how an upstream is."""
        state = self._hub.states().get(name, ConnectionState.FAILED)
        # else it is down, and only tried again
        if state in _STARTING and name not in self._hub.errors:
            return f"server {name!r} is still connecting"
        return f"server {name!r} {_REASONS.get(state, 'cannot be reached now')}"

    def _reason(self, request: Request, kind: OfferKind, name: str) -> str | None:
        server = self._down.owner(name)
        if server is None or not self._shows(server):
            return None
        if not may_use(request.client.may, kind, name, server=server):
            return None
        self._down.reconnect(server)
        return _unknown_whether(self.described(server), name)


def _unknown_whether(state: str, name: str) -> str:
    return f"{state}, so it is not known whether it has {name!r}; try again later"


def _not_sent(request: Request, reason: str) -> Json:
    error = ToolError(f"MCP error: {reason}", kind=ErrorKind.NOT_SENT, retryable=True)
    return call_result(ToolResult.failure(error), modern=request.modern)
