"""Servers over HTTP: request checks, the requests of both eras, sessions, authorization, and the socket.

Knows no feature; requests go to the endpoint.
"""

from __future__ import annotations

__all__: list[str] = []
