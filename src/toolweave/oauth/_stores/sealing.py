"""Encryption of stored values, with a key that is stored elsewhere; a text is bound to its name.

Knows bytes and names, nothing of tokens.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolweave.config import Secret, reveal
from toolweave.errors import StoreError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_VARIABLE = "TOOLWEAVE_TOKEN_KEY"
"""The environment variable that holds the key, or several with commas between them."""
_KEY_BYTES = 32
_NONCE_BYTES = 12
_HOW = "32 random bytes in base64, such as `openssl rand -base64 32` prints"


class TokenCipher:
    """AES-256-GCM with one of several keys: the first encrypts, each may decrypt, so that keys can be replaced.

    The name of a value is authenticated with it: a text that is moved to another name cannot be decrypted there.

    Args:
        keys: The keys in base64; a text may hold several with commas between them.

    Raises:
        StoreError: One of them is not a key.
    """

    def __init__(self, *keys: str | Secret) -> None:
        texts = filter(None, map(str.strip, ",".join(map(reveal, keys)).split(",")))
        self._ciphers: Sequence[AESGCM] = list(map(_cipher, texts))
        if not self._ciphers:
            raise StoreError(f"the key for tokens is empty: expected {_HOW}")

    def seal(self, data: bytes, *, name: str) -> str:
        """Return the data as text that only the key opens again, and only under this name."""
        # Random nonces of 96 bits are safe for 2**32 texts of one key (NIST SP 800-38D, 8.3).
        nonce = os.urandom(_NONCE_BYTES)
        return base64.b64encode(nonce + self._ciphers[0].encrypt(nonce, data, name.encode())).decode("ascii")

    def open(self, text: str, *, name: str) -> bytes:
        """Return the data of a sealed text.

        Raises:
            StoreError: It was sealed with another key or under another name, or it is damaged.
        """
        # imported late: it is not needed in a process without tokens
        from cryptography.exceptions import InvalidTag

        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            data = b""
        nonce = data[:_NONCE_BYTES]
        sealed = data[_NONCE_BYTES:]
        if sealed:
            for cipher in self._ciphers:
                try:
                    return cipher.decrypt(nonce, sealed, name.encode())
                except InvalidTag:
                    continue
        raise StoreError("cannot be decrypted: it was written with another key, or it is damaged")


def configured_key(key: str | Secret | None) -> TokenCipher | None:
    """Return the cipher of a key, or of the key in the environment; None without a key.

    Raises:
        StoreError: The text is not a key.
    """
    found = key or os.environ.get(KEY_VARIABLE)
    if found:
        return TokenCipher(found)
    return None


def new_key() -> str:
    """Return a new random key in base64."""
    return base64.b64encode(os.urandom(_KEY_BYTES)).decode("ascii")


def _cipher(text: str) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        # Both alphabets of base64 are in use, and programs that make keys differ.
        key = base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise StoreError(f"the key for tokens ({KEY_VARIABLE}) is not valid: expected {_HOW}")
    return AESGCM(key)
