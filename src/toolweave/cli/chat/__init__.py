"""A conversation in a terminal: the model that is chosen, what a run shows, what is typed, and what is kept."""

from __future__ import annotations

__all__: list[str] = []
