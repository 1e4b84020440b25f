"""This project as an MCP server. The code is yours: change what you like.

`tools.py` has the tools, `settings.py` what is offered and under which name,
`bridge.py` how results look to clients; `server.py` puts them together.
"""

from __future__ import annotations

from .server import create_server
from .settings import Settings

__all__ = ["Settings", "create_server"]
