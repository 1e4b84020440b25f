"""Subscriptions of callers to resources, made at the upstreams that have them.

Each connection to an upstream is subscribed to a resource once, in the form of its era, for as long as any caller
follows it. A caller is subscribed on the connection that it reaches. When it reaches another one, its subscriptions
move there: a process that starts for the caller has what its calls change, and one that has ended announces nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import anyio

from toolweave.config.secret_args import mask_url
from toolweave.connect import McpConnection
from toolweave.errors import ProtocolError, RequestError, ServerError, ToolError
from toolweave.gateway._callers.perspectives import Perspective, Perspectives
from toolweave.gateway._relay.connections import AskingConnections, Owner, owner_of
from toolweave.gateway._relay.handshake_connections import HandshakeConnections
from toolweave.hub._starting import USABLE
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from toolweave.protocol.eras import abilities
from toolweave.serve import Request
from toolweave.serve.request import may_use
from toolweave.tools import Unsubscribe

_log = logging.getLogger("toolweave.gateway")


class _Followed:
    """A resource that a caller is subscribed to.

    Attributes:
        request: The caller's request.
        uri: The resource.
        updated: Called with the URI after each update.
        targets: The connections that may have the resource.
        over: Whether the caller has unsubscribed.
    """

    def __init__(self, request: Request, uri: str, updated: Callable[[str], object]) -> None:
        self.request = request
        self.uri = uri
        self.updated = updated
        self.targets: Sequence[McpConnection] = ()
        self.over = False
        self._ends: list[Callable[[], None]] = []

    def allowed(self, server: str) -> bool:
        """Whether the caller may use a server's resource of this URI."""
        return may_use(self.request.client.may, "resources", self.uri, server=server)

    def replace(self, targets: Sequence[McpConnection], ends: list[Callable[[], None]]) -> None:
        """Keep other subscriptions instead of those that are there."""
        # The new ones are in place before the old ones end, so that no update falls between them.
        before = self._ends
        self._ends = ends
        self.targets = targets
        for end in before:
            end()

    def end(self) -> None:
        """Unsubscribe."""
        self.over = True
        self.replace((), [])


class ResourceUpdates:
    """The `ResourceFollower` of a gateway: follows resources at their upstreams, under exposed URIs.

    Args:
        perspectives: The resources of the upstreams, as callers reach them.
        connections: The connections that callers have of their own.
        handshakes: The connections in the handshake era to upstreams that speak both.
    """

    def __init__(
        self, perspectives: Perspectives, connections: AskingConnections, handshakes: HandshakeConnections
    ) -> None:
        self._perspectives = perspectives
        self._connections = connections
        self._handshakes = handshakes
        self._followed: dict[Owner | None, dict[_Followed, None]] = {}
        perspectives.on_reviewed = self._move

    async def follow(self, request: Request, uri: str, updated: Callable[[str], object]) -> Unsubscribe:
        """Subscribe a caller to a resource; return the end of that.

        Raises:
            RequestError: No upstream announces its updates, or this caller may not use it.
        """
        followed = _Followed(request, uri, updated)
        try:
            perspective = self._perspectives.attend(request.client)
            if not request.modern:
                # Before the subscription, which is then made on the connections that this caller's calls will use.
                await self._open_handshakes(request, perspective, uri)
            found = await self._subscribe(followed)
        except ProtocolError as error:
            raise RequestError(error.message, code=_code(request, error.code), data=error.data) from None
        except ToolError as error:  # pins withhold it
            raise RequestError(error.message, code=_code(request, INVALID_PARAMS), data={"uri": uri}) from None
        except ServerError as error:
            raise RequestError(f"resource {uri!r} cannot be subscribed to now: {error}", code=INTERNAL_ERROR) from None
        if not found:
            raise RequestError(
                f"no server announces updates of resource {uri!r}",
                code=_code(request, INVALID_PARAMS),
                data={"uri": uri},
            )
        owner = owner_of(request.client)
        self._followed.setdefault(owner, {})[followed] = None

        def unfollow() -> None:
            followed.end()
            there = self._followed.get(owner, {})
            there.pop(followed, None)
            # Without this, the dict would have an entry for every caller that ever subscribed.
            if not there:
                self._followed.pop(owner, None)

        return unfollow

    async def _subscribe(self, followed: _Followed) -> bool:
        """Subscribe on the connections that the caller reaches now; return whether any announces updates.

        Raises:
            ServerError: Every server that was asked refused.
            ToolError: The pins of every server that could be asked withhold it.
        """
        offers = self._perspectives.of(followed.request.client).offers
        end = await offers.subscribe(followed.uri, followed.updated, allowed=followed.allowed)
        if end is None:
            return False
        targets = [connection for connection, _ in offers.owners(followed.uri)]
        ends = [end, self._connections.hold(targets)]
        # The caller unsubscribed while the upstream was asked. `replace` has to end this subscription as well, since
        # no one else has its end.
        if followed.over:  # meanwhile
            followed.replace((), ends)
            ends = []
        followed.replace(targets, ends)
        return True

    async def _open_handshakes(self, request: Request, perspective: Perspective, uri: str) -> None:
        """Open the connections in the handshake era that a caller with a handshake reaches for a resource.

        Not a process that the caller would not use: one that can be asked gets its own with its first call.
        """
        await perspective.offers.resources()  # learns the owners
        can_be_asked = bool(abilities(request.client.capabilities))
        shared = self._perspectives.shared
        async with anyio.create_task_group() as tasks:
            for connection, _ in shared.offers.owners(uri):
                if not (can_be_asked and connection.config.transport == "stdio"):
                    tasks.start_soon(self._handshakes.opened, connection)

    async def _move(self, owner: Owner | None) -> None:
        """Move subscriptions to the connections that their callers reach now.

        Args:
            owner: The caller whose connections have changed; None for those that callers with a handshake share.
        """
        if owner is not None:
            # A copy, because a caller may unsubscribe while the loop below waits for an upstream.
            chosen = tuple(self._followed.get(owner, ()))
        else:
            chosen = tuple(one for there in self._followed.values() for one in there if not one.request.modern)
        for followed in chosen:
            offers = self._perspectives.of(followed.request.client).offers
            targets = [connection for connection, _ in offers.owners(followed.uri)]
            # Most changes of connections are about other resources: a subscription that has not moved is not made
            # again.
            if followed.over or targets == followed.targets:
                continue
            # Looked at before the new subscription replaces `targets`.
            was_lost = any(one.state not in USABLE for one in followed.targets)
            try:
                # No server has it now. The targets are kept even so: with them, the same state is not tried again.
                if not await self._subscribe(followed):
                    followed.replace(targets, [])
            except (ServerError, ToolError) as error:
                followed.replace(targets, [])
                _log.warning("%s; a caller is not notified of updates of %r any more", error, mask_url(followed.uri))
            if was_lost and not followed.over:  # an update may have been missed
                followed.updated(followed.uri)


def _code(request: Request, code: int) -> int:
    """Return the code of an error in the caller's era: that of an unknown resource is another one."""
    if code in (INVALID_PARAMS, RESOURCE_NOT_FOUND):
        # 2026-07-28 has one code for wrong parameters and for unknown resources; earlier revisions have a code of
        # their own for the second.
        if request.modern:
            return INVALID_PARAMS
        return RESOURCE_NOT_FOUND
    return code
