"""What `toolweave serve` is made of: finding the object, composing the server, reloading, editors' configs.

Each module knows its own job alone; `cli/commands/serve.py` puts them together.
"""

from __future__ import annotations

__all__: list[str] = []
