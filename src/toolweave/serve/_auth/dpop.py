"""Proofs of possession of the key that a token is bound to (RFC 9449): `Authorization: DPoP` and the header `DPoP`.

A proof is a JWT, signed for each request with the key in its own header. That key proves nothing by itself: it
counts because its thumbprint is in the token (`cnf.jkt`), which the issuer signed. The checks are those of section 4.3,
in an order in which the replay check comes last, so that only a valid proof takes room in the store.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from toolweave.errors import ConfigError, StoreError
from toolweave.oauth._encoding import base64url
from toolweave.serve._auth.issuer_keys import is_weak
from toolweave.serve._auth.refusal import IssuerUnavailable
from toolweave.state import MemoryStore, Store

_ASYMMETRIC = frozenset({"ES256", "ES384", "ES512", "EdDSA", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_THUMBPRINT = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
_LONGEST_PROOF = 8192  # characters
_LONGEST_ID = 512
_NONCE_SECONDS = 120
_REPLAYS = "toolweave.dpop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dpop:
    """The rules for proofs of possession (RFC 9449).

    Proofs are judged without it, too; it offers them to clients, and says more.

    Attributes:
        required: Refuse every token that is not bound to a key.
        algorithms: The accepted signature algorithms, all asymmetric.
        window_seconds: How far the time of a proof may be from ours.
        nonces: Demand a nonce of ours in each proof, so that none can be made beforehand.
        nonce_keys: Secrets of 32 bytes or more that nonces are made with, the newest first; by default one of this
            process, so replicas must share some.
        store: Keeps the ids of proofs until they are too old, so that none counts twice; by default in this process, so
            replicas must share one.

    Raises:
        ConfigError: An algorithm is symmetric or unknown, a key is too short, or a time is not positive.
    """

    required: bool = False
    algorithms: Sequence[str] = ("ES256", "EdDSA", "PS256", "RS256")
    window_seconds: float = 60
    nonces: bool = False
    nonce_keys: Sequence[bytes] = field(default=(), repr=False)
    store: Store | None = None

    def __post_init__(self) -> None:
        wrong = [name for name in self.algorithms if name not in _ASYMMETRIC]
        if wrong or not self.algorithms:
            raise ConfigError(f"Dpop.algorithms are asymmetric ones such as 'ES256', not {wrong}")
        if any(len(key) < 32 for key in self.nonce_keys):
            raise ConfigError("Dpop.nonce_keys are secrets of 32 bytes or more")
        if not self.window_seconds > 0:
            raise ConfigError(f"Dpop.window_seconds must be more than 0, not {self.window_seconds!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofTarget:
    """The request that a proof must be made for.

    Attributes:
        method: Its method.
        url: Its URL, as the client knows it.
        token: Its access token; None for a request that asks for one.
        thumbprint: The thumbprint of the key that the token is bound to, or is to be bound to; None for any.
    """

    method: str
    url: str
    token: str | None = field(default=None, repr=False)
    thumbprint: str | None = None


class BadProof(Exception):
    """A private signal: a proof does not hold.

    Attributes:
        error: The error code.
        nonce: The nonce for the next proof, where one is demanded.
    """

    def __init__(self, description: str, *, error: str = "invalid_dpop_proof", nonce: str | None = None) -> None:
        super().__init__(description)
        self.error = error
        self.nonce = nonce


class ProofChecker:
    """Checks proofs by the rules of an endpoint.

    Attributes:
        rules: The rules.
        store: Keeps the ids of proofs.
    """

    def __init__(self, rules: Dpop) -> None:
        self.rules = rules
        if rules.nonces:
            self._nonces = _Nonces(rules.nonce_keys)
        else:
            self._nonces = None
        self.store: Store = rules.store or MemoryStore(max_documents=100_000, max_bytes=32 * 1024 * 1024)

    async def check(self, proofs: Sequence[str], target: ProofTarget) -> tuple[str, str | None]:
        """Accept the proof of a request once; return its key's thumbprint, and the next nonce where its own ends soon.

        Args:
            proofs: The headers `DPoP` of the request.
            target: The request.

        Raises:
            BadProof: It does not hold for this request, or there is not exactly one.
            IssuerUnavailable: It cannot be remembered, so it might be a replay.
        """
        if len(proofs) != 1:
            raise BadProof("The request needs one header DPoP")
        claims, thumbprint = self._signed(proofs[0])
        wanted = target.thumbprint
        if wanted is not None and not hmac.compare_digest(thumbprint.encode(), wanted.encode()):
            raise BadProof("The proof is signed with another key than the token is bound to")
        self._check_request(claims, target)
        if self._nonces is None:
            nonce = None
        else:
            nonce = self._nonces.check(claims.get("nonce"))
        await self._remember(claims, thumbprint)
        return thumbprint, nonce

    def _signed(self, proof: str) -> tuple[dict[str, Any], str]:
        """Return the claims of a proof whose signature is that of the key in its header, and the key's thumbprint."""
        import jwt

        if len(proof) > _LONGEST_PROOF:
            raise BadProof("The proof is too long")
        try:
            header = jwt.get_unverified_header(proof)
            key = header.get("jwk")
            algorithm = header.get("alg")
            if header.get("typ") != "dpop+jwt" or algorithm not in self.rules.algorithms or "crit" in header:
                raise BadProof("The proof has the wrong type or algorithm")
            if not isinstance(key, dict) or _PRIVATE & key.keys():
                raise BadProof("The proof has no public key")
            public = cast("dict[str, Any]", key)
            thumbprint = _thumbprint(public)
            verifying = jwt.PyJWK(public, algorithm=algorithm).key
            if is_weak(verifying):
                raise BadProof("The proof's key is too short")
            window = self.rules.window_seconds
            claims: dict[str, Any] = jwt.decode(
                proof,
                verifying,
                algorithms=[str(algorithm)],
                leeway=window,
                options={"require": ["jti", "htm", "htu", "iat"], "verify_aud": False, "verify_iss": False},
            )
        except jwt.PyJWTError as exc:
            raise BadProof(f"The proof does not hold: {type(exc).__name__}") from None
        except (ValueError, TypeError):  # of a key with odd members
            raise BadProof("The proof has no usable public key") from None
        return claims, thumbprint

    def _check_request(self, claims: Mapping[str, Any], target: ProofTarget) -> None:
        issued = claims["iat"]
        if not isinstance(issued, int | float) or abs(time.time() - issued) > self.rules.window_seconds:
            raise BadProof("The proof is of another time; check the clock")
        if claims["htm"] != target.method:
            raise BadProof("The proof is for another method")
        if not isinstance(claims["htu"], str) or _without_query(claims["htu"]) != _without_query(target.url):
            raise BadProof("The proof is for another URL")
        if target.token is None:
            return
        digest = base64url(hashlib.sha256(target.token.encode()).digest())
        if not hmac.compare_digest(str(claims.get("ath", "")).encode(), digest.encode()):
            raise BadProof("The proof is for another access token")

    async def _remember(self, claims: Mapping[str, Any], thumbprint: str) -> None:
        """Accept the id of a proof once, until the proof is too old anyway."""
        name = claims["jti"]
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_ID:
            raise BadProof("The proof has no usable 'jti'")
        key = hashlib.sha256(f"{thumbprint} {name}".encode("utf-8", "surrogatepass")).hexdigest()
        left = claims["iat"] + self.rules.window_seconds - time.time()
        try:
            new = await self.store.put(_REPLAYS, key, 1, ttl=max(1.0, left + 1), expect=0)
        except StoreError:
            raise IssuerUnavailable(self.rules.window_seconds) from None
        if new is None:
            raise BadProof("The proof was used before")


class _Nonces:
    """Nonces that need no memory: the time, signed; the one before the newest is still accepted."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys) or (secrets.token_bytes(32),)

    def check(self, nonce: object) -> str | None:
        """Return the newest nonce if this is the one before, None if it is the newest.

        Raises:
            BadProof: It is neither; the error has the newest.
        """
        now = int(time.time()) // _NONCE_SECONDS
        newest = self._made(now, self._keys[0])
        if isinstance(nonce, str):
            for number in (now, now - 1):
                if any(hmac.compare_digest(self._made(number, key).encode(), nonce.encode()) for key in self._keys):
                    if nonce == newest:
                        return None
                    return newest
        raise BadProof("The proof needs the nonce that is given here", error="use_dpop_nonce", nonce=newest)

    @staticmethod
    def _made(number: int, key: bytes) -> str:
        return base64url(hmac.digest(key, b"toolweave dpop nonce %d" % number, "sha256")[:18])


def _thumbprint(key: Mapping[str, Any]) -> str:
    """Return the thumbprint of a public key (RFC 7638).

    Raises:
        ValueError: It lacks a member.
    """
    names = _THUMBPRINT.get(str(key.get("kty")), ())
    members = {name: key[name] for name in names if isinstance(key.get(name), str)}
    if not names or len(members) != len(names):
        raise ValueError("no public key of a known kind")
    text = json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return base64url(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())


def _without_query(url: str) -> tuple[str, str, int | None, str]:
    """Return the parts of a URL that a proof names: scheme, host and port, normalised, and the path."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", "", None, url
    return parts.scheme, parts.hostname or "", port, parts.path or "/"
