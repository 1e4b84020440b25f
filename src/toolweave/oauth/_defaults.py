"""The store and the user agent of connections whose settings name none."""

from __future__ import annotations

from functools import cache

from toolweave.oauth._memory_store import MemoryTokenStore
from toolweave.oauth._records import TokenStore
from toolweave.oauth._user_agent import UserAgent

__all__ = ["default_token_store", "default_user_agent"]


@cache
def default_token_store() -> TokenStore:
    """Return the store of this process."""
    return MemoryTokenStore()


def default_user_agent() -> UserAgent | None:
    """Return None: a connection by itself opens no browser."""
    return None
