"""Signed JWTs of a client: proofs of possession (RFC 9449) and assertions (RFC 7523), on PyJWT and cryptography.

Imported where one is needed: the libraries below are heavy.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from toolweave.errors import ConfigError
from toolweave.oauth._encoding import base64url

_ASSERTION_SECONDS = 120
_WIDTH = 32  # bytes of a coordinate on P-256


class ProofKey:
    """The key that tokens are bound to (ES256), and the maker of its proofs.

    Attributes:
        thumbprint: The thumbprint of its public half (RFC 7638).
    """

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        numbers = key.public_key().public_numbers()
        x, y = (base64url(number.to_bytes(_WIDTH, "big")) for number in (numbers.x, numbers.y))
        self._jwk = {"crv": "P-256", "kty": "EC", "x": x, "y": y}  # in the order of RFC 7638, 3.2
        canonical = json.dumps(self._jwk, separators=(",", ":")).encode()
        self.thumbprint = base64url(hashlib.sha256(canonical).digest())

    @classmethod
    def new(cls) -> ProofKey:
        """Make a key."""
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def of(cls, pem: str) -> ProofKey:
        """Read a key that was kept.

        Raises:
            ValueError: It is none.
        """
        key = load_pem_private_key(pem.encode(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("the kept key is none on P-256")
        return cls(key)

    def pem(self) -> str:
        """Return the key as PEM, to be kept."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def proof(self, method: str, url: str, *, token: str | None = None, nonce: str | None = None) -> str:
        """Return a proof for one request (RFC 9449, 4.2), with the hash of the token that it is sent with."""
        parts = urlsplit(url)
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": urlunsplit((parts.scheme, parts.netloc, parts.path or "/", "", "")),
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = base64url(hashlib.sha256(token.encode()).digest())
        if nonce is not None:
            claims["nonce"] = nonce
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"typ": "dpop+jwt", "jwk": self._jwk})


def client_assertion(*, client_id: str, audience: str, key: str, algorithm: str) -> str:
    """Return the assertion with which a client authenticates (RFC 7523, 3): its audience is the issuer.

    Raises:
        ConfigError: The key does not fit the algorithm, or is none; it is not shown.
    """
    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": secrets.token_urlsafe(16),
        "iat": now,
        "exp": now + _ASSERTION_SECONDS,
    }
    try:
        return jwt.encode(claims, cast("Any", key), algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, UnsupportedAlgorithm) as exc:
        text = f"'oauth.private_key' is no key for {algorithm}: {type(exc).__name__}"
        raise ConfigError(text, field="oauth.private_key") from None
