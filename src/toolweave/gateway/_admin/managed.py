"""The port between a gateway's manager and the pages that show and change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from toolweave.gateway._admin.in_flight import InFlightRequests
from toolweave.gateway._admin.status import GatewayStatus, Readiness, UpstreamStatus
from toolweave.gateway._callers.revoked_keys import RevokedKeys
from toolweave.gateway._config.config import GatewayConfig
from toolweave.gateway._config.reload import ConfigChange
from toolweave.gateway._gateway import Gateway
from toolweave.gateway._replicas.fleet import Fleet
from toolweave.gateway._replicas.pin_decisions import PinDecisions
from toolweave.hub import Hub

if TYPE_CHECKING:
    from toolweave.gateway._observe.runs import StoredRuns


class ManagedGateway(Protocol):
    """The part of a `GatewayManager` that pages use; see there."""

    name: str
    hub: Hub
    config: GatewayConfig
    server: Gateway
    in_flight: InFlightRequests
    runs: StoredRuns | None
    keys: RevokedKeys
    pins: PinDecisions
    fleet: Fleet

    def status(self) -> GatewayStatus:
        """Return the state of the gateway."""
        ...

    def readiness(self) -> Readiness:
        """Return whether the gateway is ready."""
        ...

    async def reload(self, *, confirmed: bool = False) -> ConfigChange:
        """Read the config again."""
        ...

    async def add(self, name: str, config: Any) -> UpstreamStatus:
        """Add a server."""
        ...

    async def remove(self, name: str) -> None:
        """Remove a server."""
        ...

    async def restart(self, name: str) -> UpstreamStatus:
        """Reconnect a server."""
        ...

    def console_link(self) -> str | None:
        """Return the path of a link that signs in to the console, if there is one."""
        ...
