"""Parts of `toolweave worker`: its agents and servers, its log, and its end."""

from __future__ import annotations

__all__: list[str] = []
