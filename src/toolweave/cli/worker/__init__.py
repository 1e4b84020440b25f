"""What a worker works on, how it is told what happens, and how it ends."""

from __future__ import annotations

__all__: list[str] = []
