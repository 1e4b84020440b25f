"""Server features beside tools: resources, prompts and completions, and the pagination of every list.

Independent of transports.
"""

from __future__ import annotations

__all__: list[str] = []
