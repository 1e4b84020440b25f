"""Servers as child processes: found, started in a group of their own, connected by pipes, ended with the group.

Refuses to know JSON-RPC: it moves whole lines.
"""

from __future__ import annotations

__all__: list[str] = []
