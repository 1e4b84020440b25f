"""Three tools of a server whose filters are tested."""

from __future__ import annotations

from toolweave import tool

__all__ = ["add", "boom", "look"]


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def boom() -> str:
    """Destroy everything."""
    return "gone"


@tool
def look() -> str:
    """Look."""
    return "seen"
