"""One module for each verb: what it takes, what it asks the library, what it shows."""

from __future__ import annotations

__all__: list[str] = []
