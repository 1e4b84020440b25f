"""The readiness probe of a gateway: `/readyz`, for balancers and orchestrators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from toolweave.serve._http.asgi import Receive, Scope, Send, respond
from toolweave.serve._http.response import respond_json

if TYPE_CHECKING:
    from toolweave.gateway._admin.managed import ManagedGateway
    from toolweave.serve import HttpApp


class ReadinessProbe:
    """Answers 200 while the gateway is ready, else 503; the body names the missing servers.

    Probes come under any name, often that of an address, so the guard does not look at their `Host`. A request whose
    `Host` is not served gets the status alone: it may come from a page in a user's browser.
    """

    def __init__(self, manager: ManagedGateway, app: HttpApp) -> None:
        self._manager = manager
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] not in ("GET", "HEAD"):
            await respond(send, 405, "Method Not Allowed", [(b"allow", b"GET, HEAD")])
            return
        found = self._manager.readiness()
        status = 200 if found.ready else 503
        headers = [(b"cache-control", b"no-store")]
        if self._app.serves_host(dict(scope["headers"]).get(b"host")):
            await respond_json(send, status, msgspec.json.encode(found), headers)
        else:
            await respond(send, status, "ready" if found.ready else "not ready", headers)
