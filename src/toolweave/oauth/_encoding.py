"""Texts that OAuth and JOSE make of bytes."""

from __future__ import annotations

import base64
import hashlib


def base64url(data: bytes) -> str:
    """Return bytes in base64url without padding (RFC 7515, 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def code_challenge(verifier: str) -> str:
    """Return the S256 challenge of a code verifier (RFC 7636, 4.2)."""
    return base64url(hashlib.sha256(verifier.encode()).digest())
