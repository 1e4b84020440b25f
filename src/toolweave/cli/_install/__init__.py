"""The parts of `toolweave install`: what is asked, which file is changed and how, what is shown."""

from __future__ import annotations

__all__: list[str] = []
