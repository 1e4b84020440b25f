"""Verification keys: a configured one, or those that an issuer publishes."""

# Published keys are fetched when they are first needed, once an hour, and for a key that is not among them, but never
# more often than twice a minute: tokens can name any number of unknown keys, and each must not be a request to the
# issuer. One flight fetches for all requests. While the issuer cannot be reached, the last keys are used for another
# day.

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from toolweave._json_types import Json, JsonObject, as_array, as_object, as_text
from toolweave._value import Value
from toolweave.errors import ConfigError
from toolweave.http import origin_of
from toolweave.oauth._odd_answers import OddAnswers
from toolweave.oauth._single_flight import SingleFlight
from toolweave.oauth.metadata import authorization_server_urls
from toolweave.serve._auth.documents import NoDocument, ask_issuer, check_issuer_url, url_in
from toolweave.serve._auth.refusal import IssuerUnavailable

_log = logging.getLogger("toolweave.serve._auth")

_MAX_KEYS = 100
_FETCH_SECONDS = 45.0
"""Seconds for all requests of one fetch together; each request has a separate bound."""
_ASYMMETRIC = frozenset({"RSA", "EC", "OKP"})
_MIN_RSA_BITS = 2048
"""Bits of an RSA key (RFC 7518, 3.3)."""


class VerificationKey(Value, frozen=True):
    """A key that verifies signatures.

    Attributes:
        key: The key, as the JWT library takes it.
        algorithm: The only algorithm that it is used with; None allows each one that its type can be used with.
    """

    key: Any
    algorithm: str | None = None

    def claims_of(self, token: str, algorithms: Sequence[str], **checks: Any) -> Json:
        """Return the claims of a token that this key has signed.

        Args:
            token: The token.
            algorithms: The accepted algorithms.
            **checks: Arguments of `jwt.decode`.

        Raises:
            jwt.InvalidAlgorithmError: The algorithm of the token is not accepted, or does not fit this key.
            jwt.InvalidTokenError: The token was not signed with this key, or does not hold.
        """
        import jwt

        accepted = list(algorithms)
        if self.algorithm is not None:
            # A key that is published for one algorithm must not verify another one (RFC 8725, 3.1).
            accepted = [name for name in accepted if name == self.algorithm]
        try:
            return jwt.decode(token, self.key, algorithms=accepted, **checks)
        except (jwt.InvalidKeyError, TypeError, ValueError):
            # an RSA signature with an elliptic curve key, or the reverse
            raise jwt.InvalidAlgorithmError("the algorithm does not fit the key") from None


class SharedId(Value, frozen=True):
    """Several keys that an issuer publishes with one id, such as one for each algorithm (RFC 7517, 4.5).

    Attributes:
        keys: The keys. All are of the issuer, so the signature decides which one is meant.
    """

    keys: tuple[VerificationKey, ...]

    def claims_of(self, token: str, algorithms: Sequence[str], **checks: Any) -> Json:
        """Return the claims of a token that one of the keys has signed.

        Args:
            token: The token.
            algorithms: The accepted algorithms.
            **checks: Arguments of `jwt.decode`.

        Raises:
            jwt.InvalidAlgorithmError: The algorithm of the token is not accepted, or fits none of the keys.
            jwt.InvalidTokenError: The token was not signed with one of the keys, or does not hold.
        """
        import jwt

        failures: list[jwt.InvalidTokenError] = []
        for key in self.keys:
            try:
                return key.claims_of(token, algorithms, **checks)
            except jwt.InvalidAlgorithmError as exc:
                # A key for another algorithm explains less than a signature that was compared.
                failures.append(exc)
            except jwt.InvalidSignatureError as exc:
                failures.insert(0, exc)
        raise failures[0]


AnyKey = VerificationKey | SharedId
"""One key, or those that share an id."""


class VerificationKeys(Protocol):
    """The keys that verify the tokens of one issuer."""

    async def find(self, key_id: str | None) -> AnyKey | None:
        """Return the key of an id, or None.

        Raises:
            IssuerUnavailable: The keys cannot be fetched now.
        """
        ...


def is_weak(key: Any) -> bool:
    """Whether a public key is an RSA key that is too short to trust its signatures (RFC 7518, 3.3)."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    return isinstance(key, RSAPublicKey) and key.key_size < _MIN_RSA_BITS


def check_public_key(text: str) -> None:
    """Check the PEM text of a public key.

    Raises:
        ConfigError: It is not the text of a public key, or the key is too short.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError("key= must be the PEM text of a public key ('-----BEGIN PUBLIC KEY-----')") from None
    if is_weak(key):
        raise ConfigError(f"key= must be an RSA key of {_MIN_RSA_BITS} bits or more")


class GivenKey:
    """One key, used for any id that a token names."""

    def __init__(self, key: str) -> None:
        self._key = VerificationKey(key)

    async def find(self, key_id: str | None) -> VerificationKey:
        """Return the key."""
        return self._key


class PublishedKeys:
    """The keys that an issuer publishes.

    Args:
        issuer: The issuer. Its metadata name the keys if no URL is given.
        url: The URL of its key set.
        algorithms: The accepted signature algorithms; keys for others are ignored.

    Raises:
        ConfigError: A URL is not protected by TLS.
    """

    PAUSE_SECONDS = 30.0
    FRESH_SECONDS = 3600.0
    STALE_SECONDS = 86400.0

    def __init__(self, issuer: str, url: str | None, algorithms: Sequence[str]) -> None:
        if url is None:
            check_issuer_url(issuer, "issuer")
        else:
            check_issuer_url(url, "jwks_url")
        self._issuer = issuer
        self._url = url
        self._algorithms = frozenset(algorithms)
        self._origin: str | None = None
        self._odd = OddAnswers(f"issuer {issuer!r}")
        self._keys: dict[str | None, AnyKey] = {}
        self._asked = -math.inf
        self._fetched = -math.inf
        self._work = SingleFlight[None](_FETCH_SECONDS, late=partial(IssuerUnavailable, _FETCH_SECONDS))

    async def find(self, key_id: str | None) -> AnyKey | None:
        """Return the key of an id, or None.

        Raises:
            IssuerUnavailable: There are no keys, or they are too old, and none can be fetched now.
        """
        now = time.monotonic()
        known = self._known(key_id)
        if known is not None and now - self._fetched <= self.FRESH_SECONDS:
            # before any wait, so that a token with an invented key delays no other request
            return known
        if self._work.runs(None) or now - self._asked > self.PAUSE_SECONDS:
            await self._work.run(None, self._renew)
        if time.monotonic() - self._fetched > self.STALE_SECONDS:
            raise IssuerUnavailable(self.PAUSE_SECONDS)
        return self._known(key_id)

    def _known(self, key_id: str | None) -> AnyKey | None:
        # A token may omit the id if the issuer has one key. Of several, none is guessed.
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    async def _renew(self) -> None:
        """Fetch the keys; on failure the current ones stay, until they are too old."""
        # Noted before the fetch: one that fails is not repeated by the next token with an unknown key.
        self._asked = time.monotonic()
        try:
            url = self._url or await self._published_at()
            status, document = await ask_issuer(url, named=self._url or self._issuer)
            if status != 200:
                raise NoDocument(f"{urlsplit(url).hostname} answered with status {status}")
            self._keys = _read_keys(document, self._algorithms, self._odd)
            self._fetched = time.monotonic()
        except NoDocument as exc:
            _log.error("the keys of issuer %r cannot be fetched: %s", self._issuer, exc)

    async def _published_at(self) -> str:
        """Return the URL of the keys in the issuer's metadata; its origin must not change while the process runs."""
        url = await url_in_metadata(self._issuer, "jwks_uri")
        if self._origin is not None and self._origin != origin_of(url):
            raise NoDocument("its metadata names keys at another host than before; restart to accept that")
        self._origin = origin_of(url)
        return url


async def issuer_metadata(issuer: str) -> Json:
    """Return the metadata of an issuer (RFC 8414, OpenID Connect Discovery), whose `issuer` is the identical string.

    Raises:
        NoDocument: It publishes no metadata, or they are those of another issuer.
    """
    failure: NoDocument | None = None
    for url in authorization_server_urls(issuer):
        try:
            status, document = await ask_issuer(url)
        except NoDocument as exc:
            # the first failure is the most telling: the other URLs are alternatives
            if failure is None:
                failure = exc
            continue
        if status != 200:
            continue
        # A server that serves metadata of another issuer could have its own tokens accepted for it (RFC 8414, 3.3).
        if document.get("issuer") != issuer:
            raise NoDocument("its metadata names another issuer")
        return document
    raise failure or NoDocument("it publishes no metadata")


async def url_in_metadata(issuer: str, member: str) -> str:
    """Return a URL in the metadata of an issuer.

    Raises:
        NoDocument: It publishes no metadata, or the URL is missing or not allowed.
    """
    return url_in(await issuer_metadata(issuer), member, "its metadata")


def _read_keys(document: JsonObject, algorithms: frozenset[str], odd: OddAnswers) -> dict[str | None, AnyKey]:
    """Return the usable keys of a key set by id: public, asymmetric, for signatures; `odd` notes odd entries.

    Raises:
        NoDocument: The document is not a key set, or has more than a hundred keys.
    """
    import jwt

    listed = as_array(document.get("keys"))
    if listed is None:
        raise NoDocument("its key set has no list 'keys'")
    if len(listed) > _MAX_KEYS:
        raise NoDocument(f"its key set has {len(listed)} keys; at most {_MAX_KEYS} are read")
    keys: dict[str | None, list[VerificationKey]] = {}
    for member in listed:
        entry = as_object(member)
        if entry is None or not _is_usable(entry, algorithms):
            continue
        try:
            key = jwt.PyJWK(dict(entry))
        except jwt.PyJWTError:
            # of an unsupported kind
            continue
        if is_weak(key.key):
            _log.warning("a published key is not used: %.100r is shorter than %d bits", key.key_id, _MIN_RSA_BITS)
            continue
        for name in ("use", "alg"):
            if entry.get(name, "") is None:
                odd.note(f"its key set has a key with {name!r} null, read as missing")
        if key.key_id in keys:
            odd.note(f"its key set has several keys with the id {key.key_id!r:.100}: each is tried")
        keys.setdefault(key.key_id, []).append(VerificationKey(key.key, algorithm=as_text(entry.get("alg"))))
    return {key_id: _key_of(same) for key_id, same in keys.items()}


def _key_of(same: Sequence[VerificationKey]) -> AnyKey:
    """Return the keys of one id as one."""
    if len(same) == 1:
        return same[0]
    return SharedId(keys=tuple(same))


def _is_usable(key: JsonObject, algorithms: frozenset[str]) -> bool:
    """Return whether an entry of a key set is the public half of a key pair for signatures of these algorithms."""
    if as_text(key.get("kty")) not in _ASYMMETRIC:
        return False
    # `d` is a private key: who publishes it has lost it.
    if key.get("use") not in (None, "sig") or "d" in key:
        return False
    if key.get("alg") is not None and as_text(key["alg"]) not in algorithms:
        return False
    return isinstance(key.get("kid"), str | None)
