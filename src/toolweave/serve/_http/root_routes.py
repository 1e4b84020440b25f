"""Routes to an app in the application that it is mounted in. Knows nothing of MCP."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from toolweave.serve._http.asgi import App

_log = logging.getLogger("toolweave.serve._http.app")


@runtime_checkable
class TakesRoutes(Protocol):
    """An application that takes routes: one of Starlette or FastAPI."""

    @property
    def routes(self) -> Sequence[object]:
        """Its routes."""
        ...

    def add_route(self, path: str, route: Any, *, include_in_schema: bool = True) -> None:
        """Serve a path by an ASGI app."""
        ...


def add_routes(outer: TakesRoutes, paths: Iterable[str], app: App) -> None:
    """Route paths to an app, after the application's own routes; a warning names each path that it serves itself."""
    routes = {getattr(route, "path", None): getattr(route, "endpoint", None) for route in outer.routes}
    for path in paths:
        if path not in routes:
            outer.add_route(path, app, include_in_schema=False)
        elif routes[path] is not app:
            _log.warning("the application that MCP is mounted in serves %r itself: clients may need it", path)
