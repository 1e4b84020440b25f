"""The tools of other MCP servers in this project. The code is yours: change it.

`settings.py` says which servers and which of their tools; `client.py` connects to them.
"""

from __future__ import annotations

from .client import McpClients, connect_servers
from .settings import Settings

__all__ = ["McpClients", "Settings", "connect_servers"]
