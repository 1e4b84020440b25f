"""The parts of `toolweave install`: the questions, the changed file, and the output."""

from __future__ import annotations

__all__: list[str] = []
