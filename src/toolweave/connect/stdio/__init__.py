"""The server as a child process: found, started in its own group, spoken to over pipes, ended with all it started.

Refuses to know JSON-RPC: it moves whole lines.
"""

from __future__ import annotations

__all__: list[str] = []
