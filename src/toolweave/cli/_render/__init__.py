"""Views for a terminal. Knows values, never connections; every view has a JSON equivalent."""

from __future__ import annotations

__all__: list[str] = []
