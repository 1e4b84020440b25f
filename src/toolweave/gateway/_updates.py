"""Subscriptions of callers to resources, made at the upstreams that have them.

Each upstream is subscribed to a resource once, in the form of its era, for as long as any caller follows it.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from toolweave.errors import ProtocolError, RequestError, ServerError, ToolError
from toolweave.gateway._handshake_connections import HandshakeConnections
from toolweave.hub._offers import HubOffers
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND
from toolweave.serve._request import Request
from toolweave.tools import Unsubscribe


class ResourceUpdates:
    """The `ResourceFollower` of a gateway: follows resources at their upstreams, under exposed URIs.

    Args:
        offers: The resources of the upstreams, as modern callers reach them.
        handshake_offers: The same, as callers with a handshake reach them.
        handshakes: The connections in the handshake era to upstreams that speak both.
    """

    def __init__(self, offers: HubOffers, handshake_offers: HubOffers, handshakes: HandshakeConnections) -> None:
        self._offers = offers
        self._handshake_offers = handshake_offers
        self._handshakes = handshakes

    async def follow(self, request: Request, uri: str, updated: Callable[[str], object]) -> Unsubscribe:
        """Subscribe a caller to a resource; return the end of that.

        Raises:
            RequestError: No upstream announces its updates, or this caller may not use it.
        """
        may = request.client.may

        def allowed(server: str) -> bool:
            return may is None or may("resources", uri, (), server)

        offers = self._offers if request.modern else await self._in_handshake_era(uri)
        try:
            end = await offers.subscribe(uri, updated, allowed=allowed)
        except ProtocolError as error:
            raise RequestError(error.message, code=_code(request, error.code), data=error.data) from None
        except ToolError as error:  # pins withhold it
            raise RequestError(error.message, code=_code(request, INVALID_PARAMS), data={"uri": uri}) from None
        except ServerError as error:
            raise RequestError(f"resource {uri!r} cannot be subscribed to now: {error}", code=INTERNAL_ERROR) from None
        if end is None:
            raise RequestError(
                f"no server announces updates of resource {uri!r}",
                code=_code(request, INVALID_PARAMS),
                data={"uri": uri},
            )
        return end

    async def _in_handshake_era(self, uri: str) -> HubOffers:
        """Return the resources as callers with a handshake reach them, once the owners are connected in that era."""
        await self._offers.resources()  # learns the owners
        async with anyio.create_task_group() as tasks:
            for shared, _ in self._offers.owners(uri):
                tasks.start_soon(self._handshakes.opened, shared)
        return self._handshake_offers


def _code(request: Request, code: int) -> int:
    """Return the code of an error in the caller's era: that of an unknown resource is another one."""
    if code in (INVALID_PARAMS, RESOURCE_NOT_FOUND):
        return INVALID_PARAMS if request.modern else RESOURCE_NOT_FOUND
    return code
