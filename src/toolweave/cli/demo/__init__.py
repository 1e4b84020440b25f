"""Three small MCP servers that ship with the package, so that everything can be tried without a network.

They are written by hand on the standard library and know nothing of Toolweave: what they show is real.
"""

from __future__ import annotations

__all__: list[str] = []
