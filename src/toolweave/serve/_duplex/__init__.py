"""Servers over a duplex of whole messages: standard input and output, or queues in this process; no SDK.

Knows no method; requests go to the endpoint.
"""

from __future__ import annotations

__all__: list[str] = []
