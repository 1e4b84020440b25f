"""Many MCP servers behind one endpoint: requests relayed between callers and upstreams of every era."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolweave._lazy import lazy_exports

if TYPE_CHECKING:
    from toolweave.gateway._gateway import Gateway, create_gateway

__all__ = ["Gateway", "create_gateway"]

__getattr__, __dir__ = lazy_exports(__name__, {"_gateway": ("Gateway", "create_gateway")})
