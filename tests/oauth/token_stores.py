"""Stores of tokens to hold to the same sentences, records to keep in them, and a keyring in memory."""

from __future__ import annotations

import base64
import os
import threading
from typing import ClassVar

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

from toolweave.oauth import ClientRegistration, TokenKey, TokenRecord

__all__ = ["DictKeyring", "a_key", "a_record", "new_key"]


def new_key() -> str:
    """A key to encrypt tokens with."""
    return base64.b64encode(os.urandom(32)).decode()


def a_key(**parts: str) -> TokenKey:
    """The key of a record, but for these parts."""
    usual = {"issuer": "https://as.example", "resource": "https://mcp.example/mcp", "client": "", "principal": ""}
    return TokenKey(**{**usual, **parts})


def a_record(key: TokenKey | None = None, *, token: str = "access", saved_at: float = 1.0) -> TokenRecord:
    """A record with everything in it."""
    registration = ClientRegistration(
        client_id="client",
        client_secret="client-secret",
        method="client_secret_basic",
        redirect_uris=("http://127.0.0.1:1/callback",),
        secret_expires_at=5.0,
    )
    return TokenRecord(
        key=key or a_key(),
        access_token=token,
        token_type="DPoP",
        expires_at=10.5,
        refresh_token="refresh",
        scopes=("read", "write"),
        registration=registration,
        dpop_key="-----BEGIN PRIVATE KEY-----",
        saved_at=saved_at,
    )


class DictKeyring(KeyringBackend):
    """A keyring as the package `keyring` has them, in memory, that refuses long values as that of Windows does.

    Its priority is below that of a desktop's, which a process that imports this module must still choose.
    """

    priority: ClassVar[float] = 4  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
    longest = 1_280

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def get_password(self, service: str, username: str) -> str | None:
        with self._lock:
            return self.values.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if len(password) > self.longest:
            raise OSError("the stub received bad data")
        with self._lock:
            self.values[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        with self._lock:
            if self.values.pop((service, username), None) is None:
                raise PasswordDeleteError("no such password")
