"""Proofs of possession of the key that a token is bound to (RFC 9449): `Authorization: DPoP` and the header `DPoP`."""

# A proof is a JWT, signed for each request with the key in its own header. That key proves nothing by itself: it is
# trusted because its thumbprint is in the token (`cnf.jkt`), which the issuer signed. The checks are those of section
# 4.3. The replay check is the last one, so that only a valid proof takes room in the store. It is one write that fails
# if the id exists, so of two requests with the same proof, on any replica, one succeeds.

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from toolweave._json_types import Json, JsonObject, as_object
from toolweave._option_checks import FLAG, TEXTS, check_kinds, check_number, list_of
from toolweave.errors import ConfigError, StoreError
from toolweave.http import DEFAULT_PORTS
from toolweave.oauth._encoding import base64url
from toolweave.serve._auth.issuer_keys import is_weak
from toolweave.serve._auth.refusal import IssuerUnavailable
from toolweave.state import MemoryStore, Store
from toolweave.state.checks import STORE

_ASYMMETRIC = frozenset({"ES256", "ES384", "ES512", "EdDSA", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_THUMBPRINT = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
_MAX_PROOF = 8192
"""The maximum length of a proof, in characters."""
_MAX_ID = 512
_NONCE_SECONDS = 120
_REPLAYS = "toolweave.dpop"

_KINDS = {
    "required": FLAG,
    "algorithms": TEXTS,
    "nonces": FLAG,
    "nonce_keys": list_of(bytes, "a list of bytes"),
    "store": STORE.or_none,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dpop:
    """The rules for proofs of possession (RFC 9449).

    Proofs are also checked without it. With it, the metadata offer them to clients, and the rules can be changed.

    Attributes:
        required: Whether tokens that are not bound to a key are refused.
        algorithms: The accepted signature algorithms, all asymmetric.
        window_seconds: The maximum difference between the time of a proof and ours.
        nonces: Whether each proof must have a nonce of ours, so that no proof can be made in advance.
        nonce_keys: Secrets of 32 bytes or more for nonces, the newest first; by default a secret of this process, so
            replicas must share some.
        store: Stores the ids of proofs until they are too old, so that each is accepted once; by default in this
            process, so replicas must share one.

    Raises:
        ConfigError: An algorithm is symmetric or unknown, a key is too short, or a time is not positive and finite.
        TypeError: A value has another type.
    """

    required: bool = False
    algorithms: Sequence[str] = ("ES256", "EdDSA", "PS256", "RS256")
    window_seconds: float = 60
    nonces: bool = False
    nonce_keys: Sequence[bytes] = field(default=(), repr=False)
    store: Store | None = None

    def __post_init__(self) -> None:
        check_kinds(self, _KINDS, owner="Dpop")
        check_number("Dpop.window_seconds", self.window_seconds)
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
        thumbprint: The thumbprint of the key that the token is bound to, or will be bound to; None for any.
    """

    method: str
    url: str
    token: str | None = field(default=None, repr=False)
    thumbprint: str | None = None


class BadProof(Exception):
    """A private signal: a proof is not valid.

    Attributes:
        error: The error code.
        nonce: The nonce for the next proof, if one is required.
    """

    def __init__(self, description: str, *, error: str = "invalid_dpop_proof", nonce: str | None = None) -> None:
        super().__init__(description)
        self.error = error
        self.nonce = nonce


class ProofChecker:
    """Checks proofs by the rules of an endpoint.

    Attributes:
        rules: The rules.
        store: Stores the ids of proofs.
    """

    def __init__(self, rules: Dpop) -> None:
        self.rules = rules
        self._nonces: _Nonces | None = None
        if rules.nonces:
            self._nonces = _Nonces(rules.nonce_keys)
        self.store: Store = rules.store or MemoryStore(max_documents=100_000, max_bytes=32 * 1024 * 1024)

    async def check(self, proofs: Sequence[str], target: ProofTarget) -> tuple[str, str | None]:
        """Accept the proof of a request once; return its key's thumbprint, and the next nonce if there is one.

        Args:
            proofs: The headers `DPoP` of the request.
            target: The request.

        Raises:
            BadProof: The proof is not valid for this request, or there is not exactly one.
            IssuerUnavailable: The id cannot be stored, so the proof might be a replay.
        """
        if len(proofs) != 1:
            raise BadProof("The request needs one header DPoP")
        claims, thumbprint = self._signed(proofs[0])
        wanted = target.thumbprint
        if wanted is not None and not hmac.compare_digest(thumbprint.encode(), wanted.encode()):
            raise BadProof("The proof is signed with another key than the token is bound to")
        self._check_request(claims, target)
        nonce = None
        if self._nonces is not None:
            nonce = self._nonces.check(claims.get("nonce"))
        await self._remember(claims, thumbprint)
        return thumbprint, nonce

    def _signed(self, proof: str) -> tuple[Json, str]:
        """Return the claims of a proof that is signed with the key in its header, and the key's thumbprint."""
        import jwt

        if len(proof) > _MAX_PROOF:
            raise BadProof("The proof is too long")
        try:
            header = jwt.get_unverified_header(proof)
            public = as_object(header.get("jwk"))
            algorithm = header.get("alg")
            is_wrong_type = header.get("typ") != "dpop+jwt" or "crit" in header
            if is_wrong_type or algorithm not in self.rules.algorithms:
                raise BadProof("The proof has the wrong type or algorithm")
            if public is None or _PRIVATE & public.keys():
                raise BadProof("The proof has no public key")
            thumbprint = _thumbprint(public)
            verifying = jwt.PyJWK(dict(public), algorithm=algorithm).key
            if is_weak(verifying):
                raise BadProof("The proof's key is too short")
            window = self.rules.window_seconds
            claims: Json = jwt.decode(
                proof,
                verifying,
                algorithms=[str(algorithm)],
                leeway=window,
                options={"require": ["jti", "htm", "htu", "iat"], "verify_aud": False, "verify_iss": False},
            )
        except jwt.PyJWTError as exc:
            raise BadProof(f"The proof does not hold: {type(exc).__name__}") from None
        except (ValueError, TypeError):
            # of a key with members of the wrong type
            raise BadProof("The proof has no usable public key") from None
        return claims, thumbprint

    def _check_request(self, claims: JsonObject, target: ProofTarget) -> None:
        issued = claims["iat"]
        if not isinstance(issued, int | float) or abs(time.time() - issued) > self.rules.window_seconds:
            raise BadProof("The proof is of another time; check the clock")
        if claims["htm"] != target.method:
            raise BadProof("The proof is for another method")
        url = claims["htu"]
        if not isinstance(url, str) or _without_query(url) != _without_query(target.url):
            raise BadProof("The proof is for another URL")
        if target.token is None:
            return
        digest = base64url(hashlib.sha256(target.token.encode()).digest())
        if not hmac.compare_digest(str(claims.get("ath", "")).encode(), digest.encode()):
            raise BadProof("The proof is for another access token")

    async def _remember(self, claims: JsonObject, thumbprint: str) -> None:
        """Accept the id of a proof once, until the proof is too old."""
        name = claims["jti"]
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_ID:
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
    """Nonces that need no memory: the time, signed. The previous one is still accepted."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = tuple(keys) or (secrets.token_bytes(32),)

    def check(self, nonce: object) -> str | None:
        """Return the newest nonce if this is the previous one, None if it is the newest.

        Raises:
            BadProof: It is neither; the error has the newest.
        """
        now = int(time.time()) // _NONCE_SECONDS
        newest = self._made(now, self._keys[0])
        if isinstance(nonce, str) and self._is_accepted(nonce, now):
            if nonce == newest:
                return None
            return newest
        raise BadProof("The proof needs the nonce that is given here", error="use_dpop_nonce", nonce=newest)

    def _is_accepted(self, nonce: str, now: int) -> bool:
        given = nonce.encode()
        for number in (now, now - 1):
            for key in self._keys:
                if hmac.compare_digest(self._made(number, key).encode(), given):
                    return True
        return False

    @staticmethod
    def _made(number: int, key: bytes) -> str:
        return base64url(hmac.digest(key, b"toolweave dpop nonce %d" % number, "sha256")[:18])


def _thumbprint(key: JsonObject) -> str:
    """Return the thumbprint of a public key (RFC 7638).

    Raises:
        ValueError: A member is missing.
    """
    names = _THUMBPRINT.get(str(key.get("kty")), ())
    members = {name: key[name] for name in names if isinstance(key.get(name), str)}
    if not names or len(members) != len(names):
        raise ValueError("not a public key of a known kind")
    text = json.dumps(members, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return base64url(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())


def _without_query(url: str) -> tuple[str, str, int | None, str]:
    """Return the parts of a URL that a proof names: scheme, host and port, normalised, and the path."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None, url
    return parts.scheme, parts.hostname or "", port, parts.path or "/"
