"""What outlives a call: documents in a store, kept by whoever needs them again later.

The room knows documents only: not what stands in them, nor who puts them there.
"""

from __future__ import annotations

from toolweave.state.memory import MemoryStore
from toolweave.state.sqlite import SqliteStore
from toolweave.state.store import Document, Store

__all__ = ["Document", "MemoryStore", "SqliteStore", "Store"]
