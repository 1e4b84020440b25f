"""What a server offers beside tools: resources, prompts and completions, and the pages of every list.

Knows no carrier.
"""

from __future__ import annotations

__all__: list[str] = []
