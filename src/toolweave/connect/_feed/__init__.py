"""Server lists kept up to date: paged listings, snapshots, subscriptions.

Refuses to know how a connection is opened, and how a tool is used.
"""

from __future__ import annotations

__all__: list[str] = []
