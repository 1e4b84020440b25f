"""Signed JWTs of a client: proofs of possession (RFC 9449) and assertions (RFC 7523), on PyJWT and cryptography.

Imported only when a JWT is needed, because these libraries are heavy.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
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

from toolweave._json_types import Json
from toolweave.errors import ConfigError
from toolweave.oauth._encoding import base64url

_ASSERTION_SECONDS = 120
_WIDTH = 32
"""Bytes of a coordinate on P-256."""


class ProofKey:
    """The key that tokens are bound to (ES256), and the maker of its proofs.

    Attributes:
        thumbprint: The thumbprint of its public half (RFC 7638).
    """

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        numbers = key.public_key().public_numbers()
        x = base64url(numbers.x.to_bytes(_WIDTH, "big"))
        y = base64url(numbers.y.to_bytes(_WIDTH, "big"))
        # in the order of RFC 7638, 3.2: the thumbprint is the hash of the text
        self._jwk = {"crv": "P-256", "kty": "EC", "x": x, "y": y}
        canonical = json.dumps(self._jwk, separators=(",", ":")).encode()
        self.thumbprint = base64url(hashlib.sha256(canonical).digest())

    @classmethod
    def new(cls) -> ProofKey:
        """Make a key."""
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def of(cls, pem: str) -> ProofKey:
        """Read a stored key.

        Raises:
            ValueError: The text is not a key on P-256.
        """
        key = load_pem_private_key(pem.encode(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("the stored key is not on P-256")
        return cls(key)

    def pem(self) -> str:
        """Return the key as PEM, for the store."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def proof(self, method: str, url: str, *, token: str | None = None, nonce: str | None = None) -> str:
        """Return a proof for one request (RFC 9449, 4.2), with the hash of the token that it is sent with."""
        parts = urlsplit(url)
        claims: Json = {
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
        ConfigError: The text is not a key for the algorithm. It is not in the message.
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
        return jwt.encode(claims, key, algorithm=algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, UnsupportedAlgorithm) as exc:
        text = f"'oauth.private_key' is not a key for {algorithm}: {type(exc).__name__}"
        raise ConfigError(text, field="oauth.private_key") from None
