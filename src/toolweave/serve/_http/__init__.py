"""Servers over HTTP: request checks, the fast path for tool calls, authorization, and the socket.

Knows no feature; requests go to the endpoint.
"""

from __future__ import annotations

__all__: list[str] = []
