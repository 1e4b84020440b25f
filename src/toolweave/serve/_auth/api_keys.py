"""API keys: long random texts, each with the name and the rights of the program that has it."""

# Only the SHA-256 of each key is stored. A slow hash is not needed, because nobody can guess a random key from a list.
# A key is found by its digest, so the time of the search reveals nothing about the key.

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from toolweave._json_types import JsonObject
from toolweave._masking import MASK
from toolweave._option_checks import MAPPING, TEXT, check_kinds, check_number, type_error
from toolweave.config import Secret
from toolweave.errors import ConfigError
from toolweave.serve._option_kinds import SECRET_TEXT
from toolweave.serve.request import Identity
from toolweave.tools._scopes import scope_list

_MIN_LENGTH = 16
_YEAR_10000 = 253_402_300_800
"""The first second that no calendar has. Milliseconds, which many programs count in, lie behind it since 1978."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NOBODY = Identity(client_id="")
_KINDS = {
    "name": TEXT,
    "key": SECRET_TEXT.or_none,
    "sha256": TEXT,
    "claims": MAPPING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key that a program sends as a bearer token.

    Attributes:
        name: The name of the client. Two keys of one name are one client, so that a key can be replaced without an
            interruption.
        key: The key, a random text of 16 characters or more.
        sha256: Instead of it, the SHA-256 of the key in hexadecimal.
        scopes: The scopes of its requests.
        claims: Claims of its requests, for rules.
        expires_at: The end of its validity, in seconds since the epoch; None for never.

    Raises:
        ConfigError: The name is empty, both or none of `key` and `sha256` are given, one of them cannot be right, or a
            scope or a time is not valid.
        TypeError: A value has another type.
    """

    name: str
    key: str | Secret | None = field(default=None, repr=False)
    sha256: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    claims: JsonObject = field(default_factory=dict[str, Any], hash=False)
    expires_at: float | None = None

    def __post_init__(self) -> None:
        check_kinds(self, _KINDS, owner="ApiKey")
        if self.expires_at is not None:
            check_number("ApiKey.expires_at", self.expires_at)
            if self.expires_at >= _YEAR_10000:
                raise ConfigError(
                    f"API key {self.name!r} would expire after the year 9999: 'expires_at' is in seconds since the "
                    "epoch, not in milliseconds; leave it out for a key that never expires"
                )
        if not self.name:
            raise ConfigError("an API key needs a name")
        if (self.key is None) == (not self.sha256):
            raise ConfigError(f"API key {self.name!r} needs 'key' or 'sha256', one of them")
        if self.key is not None and len(self._text) < _MIN_LENGTH:
            raise ConfigError(
                f"API key {self._shown_name}: a key has {_MIN_LENGTH} characters or more, all of them random"
            )
        if self.sha256 and not _DIGEST.fullmatch(self.sha256.lower()):
            raise ConfigError(f"API key {self.name!r}: 'sha256' must be 64 hexadecimal digits")
        try:
            object.__setattr__(self, "scopes", scope_list(self.scopes))
        except ValueError as exc:
            raise ConfigError(f"API key {self.name!r}: {exc}") from None

    @property
    def _shown_name(self) -> str:
        """The name for an error about the key. One that could be a key is masked: the two may have been swapped."""
        if len(self.name) < _MIN_LENGTH:
            return repr(self.name)
        return repr(f"{self.name[:4]}{MASK}")

    @property
    def _text(self) -> str:
        if isinstance(self.key, Secret):
            return self.key.reveal()
        return self.key or ""

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the key."""
        if self.sha256:
            return bytes.fromhex(self.sha256)
        return digest_of(self._text)

    @property
    def identity(self) -> Identity:
        """The identity of its requests."""
        expires = None
        if self.expires_at is not None:
            expires = int(self.expires_at)
        return Identity(client_id=self.name, scopes=self.scopes, expires_at=expires, claims=self.claims)


class ApiKeys:
    """The keys of an endpoint; they can be replaced while it is served.

    Args:
        keys: The keys.

    Raises:
        ConfigError: Two names have the same key.
    """

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._all: dict[bytes, Identity] = {}
        self._known: dict[bytes, Identity] = {}
        self._refused: set[bytes] = set()
        self._on_end: list[Callable[[str], object]] = []
        self.replace(keys)

    def __len__(self) -> int:
        return len(self._known)

    def entries(self) -> Sequence[tuple[bytes, Identity]]:
        """Return the SHA-256 and the identity of each key, refused ones included."""
        return tuple(self._all.items())

    def refuse(self, digests: Iterable[bytes]) -> None:
        """Refuse keys from now on, even if `replace` names them again.

        Args:
            digests: The SHA-256 of each.
        """
        self._refused.update(digests)
        self._accept()

    def on_end(self, listener: Callable[[str], object]) -> Callable[[], None]:
        """Call a function with the principal of each key that was removed or changed; return one that ends that.

        It is called in the thread that refuses or replaces keys. A key that expires is not reported.
        """
        self._on_end.append(listener)
        return partial(self._on_end.remove, listener)

    def refuses(self, digest: bytes) -> bool:
        """Return whether `refuse` named the key with this SHA-256."""
        return digest in self._refused

    def replace(self, keys: Iterable[ApiKey]) -> None:
        """Accept these keys from now on, and no others.

        Raises:
            ConfigError: As the class. The current keys then stay.
        """
        known: dict[bytes, Identity] = {}
        for one in keys:
            if not isinstance(one, ApiKey):  # pyright: ignore[reportUnnecessaryIsInstance]  # given in Python
                raise type_error("each of the keys", one, "an ApiKey(...)")
            same = known.setdefault(one.digest, one.identity)
            if same.client_id != one.name:
                raise ConfigError(f"API keys {same.client_id!r} and {one.name!r} are the same key")
        self._all = known
        self._accept()

    def _accept(self) -> None:
        """Find keys among those that are not refused, and report those that are not found or have changed."""
        before = self._known
        # Made once for each change, so that finding a key costs one look however many are refused.
        self._known = {digest: identity for digest, identity in self._all.items() if digest not in self._refused}
        ended: set[str] = set()
        for digest, identity in before.items():
            # A key may have been given to another client, or have another end or other scopes. What was opened with it
            # would keep the old ones.
            now = self._known.get(digest, _NOBODY)
            if (now, now.claims) != (identity, identity.claims):
                ended.add(identity.principal)
        for principal in ended:
            for listener in tuple(self._on_end):
                listener(principal)

    def find(self, token: str) -> Identity | None:
        """Return the identity of a key that is valid now, or None."""
        found = self._known.get(digest_of(token))
        if found is None or found.expires_at is None:
            return found
        if found.expires_at <= time.time():
            return None
        return found


def digest_of(key: str) -> bytes:
    """Return the SHA-256 of a token."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
