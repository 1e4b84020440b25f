"""What a server offers, followed as it changes: paged listings, snapshots, subscriptions.

Refuses to know how a connection comes to be, and what is done with a tool.
"""

from __future__ import annotations

__all__: list[str] = []
