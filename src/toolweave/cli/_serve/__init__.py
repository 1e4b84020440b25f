"""Parts of `toolweave serve`: finding the object, composing the server, reloading, editors' configs.

Each module does one of these; `cli/commands/serve.py` combines them.
"""

from __future__ import annotations

__all__: list[str] = []
