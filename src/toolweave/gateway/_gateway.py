"""The public object: a gateway in front of the servers of a hub.

Puts the relay, the lists and the transports together; each feature is a file beside this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolweave.hub import Hub
from toolweave.serve._endpoint import Endpoint
from toolweave.serve._request import Offered
from toolweave.serve._runners import ServerRunners
from toolweave.tools import Toolset

__all__ = ["Gateway"]


class Gateway(ServerRunners):
    """One endpoint in front of many servers, which loses nothing between them and its callers.

    Attributes:
        hub: The upstreams; servers may be added and removed while it is served.
        tools: The tools that callers see: the hub, or a view of it.
        endpoint: Answers the requests of every transport.
        changes: The change notifications and their subscribers.
    """

    hub: Hub
    tools: Toolset
    endpoint: Endpoint

    def tool_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool that is offered under this name, or None."""
        spec = self.tools.snapshot().find(name)
        return None if spec is None else spec.input_schema

    def offers_of(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about, with the scopes that their definitions need."""
        raise NotImplementedError
