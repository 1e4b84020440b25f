"""The keys that replicas of a gateway share: a text sealed by one of them can be opened by all of them, and no others.

A sealed text is `PREFIX.KEY.` and AES-256-GCM in base64url; KEY names the key, so that keys can be rotated.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from toolweave.serve._request_state import from_base64url

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MIN_KEY_BYTES = 32
_NONCE_BYTES = 12


class SealingKeys:
    """Seals texts for one purpose and opens them.

    Args:
        keys: Secrets of at least 32 bytes, the newest first: it seals, all of them open. None makes one for this
            process.
        purpose: The kind of text; texts of another purpose do not open.
        prefix: Begins every sealed text.

    Raises:
        ValueError: No key was given, or one is too short.
    """

    def __init__(self, keys: Sequence[str | bytes] | None, purpose: str, prefix: str) -> None:
        if keys is None:
            given = [secrets.token_bytes(_MIN_KEY_BYTES)]
        else:
            given = keys
        raw = [key.encode() if isinstance(key, str) else key for key in given]
        if not raw or any(len(key) < _MIN_KEY_BYTES for key in raw):
            raise ValueError(f"state_keys requires secrets of at least {_MIN_KEY_BYTES} bytes, the newest first")
        derived = [sha256(f"toolweave {purpose}\n".encode() + key).digest() for key in raw]
        self._keys: Mapping[str, bytes] = {sha256(key).hexdigest()[:8]: key for key in derived}
        self._newest = next(iter(self._keys))
        self._prefix = prefix
        self._ciphers: dict[str, AESGCM] = {}

    def seal(self, payload: bytes, bound: bytes) -> str:
        """Return a payload, encrypted; `bound` is authenticated with it and has to be the same when it is opened."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher(self._newest).encrypt(nonce, payload, bound)
        return f"{self._prefix}.{self._newest}.{urlsafe_b64encode(sealed).rstrip(b'=').decode()}"

    def open(self, token: object, bound: bytes) -> bytes | None:
        """Return the payload of a sealed text; None for one that is not ours, was changed, or is bound to another."""
        from cryptography.exceptions import InvalidTag  # needed only to seal

        prefix, _, rest = token.partition(".") if isinstance(token, str) else ("", "", "")
        name, _, text = rest.partition(".")
        if prefix != self._prefix or name not in self._keys:
            return None
        try:
            sealed = from_base64url(text)
            return self._cipher(name).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
        except (ValueError, InvalidTag):
            return None

    def _cipher(self, name: str) -> AESGCM:
        cipher = self._ciphers.get(name)
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # as above

            cipher = self._ciphers[name] = AESGCM(self._keys[name])
        return cipher
