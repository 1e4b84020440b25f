"""Relays one request between a caller and an upstream, whatever the era of either.

Four cases: a modern caller before a modern upstream passes rounds of input on, with sealed state; before a legacy
upstream, which asks while the call runs, the live call is parked between rounds; a legacy caller before a modern
upstream is asked by the gateway in a loop; before a legacy upstream questions pass on as they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from toolweave.gateway._routes import Route
from toolweave.serve._request import Json, Request

__all__ = ["Relay"]


class Relay(Protocol):
    """Sends requests to upstreams on behalf of callers."""

    async def request(self, request: Request, route: Route, method: str, params: Mapping[str, Any]) -> Json:
        """Forward a request and return the result in the form of the caller's era, complete or `input_required`.

        What the upstream asks meanwhile goes to this caller and no other; progress and log messages go to the stream
        of `request`; its cancellation reaches the upstream.

        Args:
            request: The caller's request: its client, `_meta`, state and input responses, and reply channel.
            route: The upstream; `route.spec` is the called tool.
            method: The method to send, which may differ from the caller's.
            params: The parameters without `_meta`, in the upstream's own names.

        Raises:
            RequestError: The answer is a JSON-RPC error: the upstream's own, with its code and data, or ours.
        """
        ...
