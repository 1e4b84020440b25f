"""How things look in a terminal. Knows values, never connections; every view has a JSON twin."""

from __future__ import annotations

__all__: list[str] = []
