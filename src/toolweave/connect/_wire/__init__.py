"""Our own JSON-RPC over a `Channel` and over Streamable HTTP: lean, lossless, without the SDK.

Knows messages, ids and answers; refuses to know MCP's handshake, tools and restarts.
"""

from __future__ import annotations

__all__: list[str] = []
