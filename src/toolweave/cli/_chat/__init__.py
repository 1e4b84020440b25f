"""`toolweave chat`: choice of the model, display of a run, the prompt loop, and stored conversations."""

from __future__ import annotations

__all__: list[str] = []
