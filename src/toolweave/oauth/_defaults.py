"""The store and the user agent of connections whose settings name none."""

from __future__ import annotations

from toolweave.oauth._records import TokenStore
from toolweave.oauth._user_agent import UserAgent


def default_token_store() -> TokenStore:
    """Return the store of this user on this machine: its keyring, or a file that only they can read."""
    # only where no store is given
    from toolweave.oauth._stores.default import MachineTokenStore

    return MachineTokenStore()


def default_user_agent() -> UserAgent | None:
    """Return None: a connection by itself opens no browser."""
    return None
