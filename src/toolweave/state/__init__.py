"""Stores of JSON documents: in memory, in a SQLite file, in Redis.

Independent of what the documents hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolweave.state._memory import MemoryStore
from toolweave.state._signals import Signalling, SignalListener, listening, signal
from toolweave.state._store_url import open_store
from toolweave.state.store import Change, Delete, Document, Put, Store, iter_documents, iter_pages

if TYPE_CHECKING:
    from toolweave.state._redis import RedisStore
    from toolweave.state._sqlite import SqliteStore
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_redis": ("RedisStore",),
            "_sqlite": ("SqliteStore",),
        },
    )

__all__ = [
    "Change",
    "Delete",
    "Document",
    "MemoryStore",
    "Put",
    "RedisStore",
    "SignalListener",
    "Signalling",
    "SqliteStore",
    "Store",
    "iter_documents",
    "iter_pages",
    "listening",
    "open_store",
    "signal",
]
