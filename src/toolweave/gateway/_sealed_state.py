"""State of upstreams on its way through callers: encrypted, and bound to the request that it belongs to.

A token is `g1.KEY.` and AES-256-GCM, in base64url, over the upstream's name, its own state, and where its call waits.
The method, the name and the arguments of the request, its caller and the view of the gateway are authenticated with it:
a state that comes back with anything else does not open. It is not single use; what must be, such as a parked call, is
so by its handle (specification 2026-07-28, basic/utilities/mrtr: `requestState` is attacker-controlled).
"""

from __future__ import annotations

import binascii
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from toolweave.errors import RequestError
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.input_required import REQUEST_STATE
from toolweave.serve._request import Request
from toolweave.serve._request_state import TTL_SECONDS, request_binding

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["MOST_ROUNDS", "SealedRound", "StateCipher"]

MOST_ROUNDS = 20
"""Rounds of input of one request."""
_MOST_STATE = 256 * 1024
"""The longest state of an upstream that is carried, in bytes."""
_LEAST_KEY_BYTES = 32
_NONCE_BYTES = 12
_PREFIX = "g1"


class SealedRound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts about one round of input that its answers have to find again.

    Attributes:
        server: The upstream.
        number: The number of the round, from 1.
        until: The end of its validity, in seconds since the epoch.
        state: The state of the upstream; None for none.
        handle: The parked call that waits for the answers, or None.
        pages: The keys of web pages to be visited before the request is made anew.
    """

    server: str
    number: int
    until: float = 0.0
    state: str | None = None
    handle: str | None = None
    pages: tuple[str, ...] = ()


class StateCipher:
    """Seals and opens the state of one gateway, or of all its replicas.

    Args:
        keys: Secrets of at least 32 bytes, the newest first: it seals, all of them open. None makes one for this
            process.
        view: The name of the view of the gateway that requests come to; its states do not open in another.
        ttl: Seconds until a state expires.
        clock: The time in seconds since the epoch, the same for all replicas.

    Raises:
        ValueError: There is no key, or one is too short.
    """

    def __init__(
        self,
        keys: Sequence[str | bytes] | None = None,
        *,
        view: str = "",
        ttl: float = TTL_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        given = [secrets.token_bytes(_LEAST_KEY_BYTES)] if keys is None else keys
        raw = [key.encode() if isinstance(key, str) else key for key in given]
        if not raw or any(len(key) < _LEAST_KEY_BYTES for key in raw):
            raise ValueError(f"state_keys wants secrets of at least {_LEAST_KEY_BYTES} bytes, the newest first")
        derived = [sha256(b"toolweave gateway state\n" + key).digest() for key in raw]
        self._keys: Mapping[str, bytes] = {sha256(key).hexdigest()[:8]: key for key in derived}
        self._newest = next(iter(self._keys))
        self._ciphers: dict[str, AESGCM] = {}
        self._view = view
        self.ttl = ttl
        self._clock = clock

    def seal(self, request: Request, what: SealedRound) -> str:
        """Return the state for the caller of this request.

        Raises:
            RequestError: The upstream's state is too long, or it asks in too many rounds (-32603).
        """
        if what.state is not None and len(what.state) > _MOST_STATE:
            raise _refused(f"server {what.server!r}: its {REQUEST_STATE} is longer than {_MOST_STATE} bytes")
        if what.number > MOST_ROUNDS:
            raise _refused(f"server {what.server!r} still asks for input after {MOST_ROUNDS} rounds: given up")
        payload = msgspec.json.encode(msgspec.structs.replace(what, until=self._clock() + self.ttl))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher(self._newest).encrypt(nonce, payload, self._bound(request))
        return f"{_PREFIX}.{self._newest}.{urlsafe_b64encode(sealed).rstrip(b'=').decode()}"

    def open(self, request: Request, token: object) -> SealedRound:
        """Return what a state holds.

        Raises:
            RequestError: It is none of this gateway, was changed, has expired, or belongs to another request, another
                caller or another view (-32602).
        """
        opened = self._opened(request, token)
        if opened is None:
            raise RequestError(
                f"{REQUEST_STATE} is not of this request of this caller, or was changed, or sealed with a key that "
                "this gateway does not have (replicas share their state_keys); make the request anew",
                code=INVALID_PARAMS,
            )
        if opened.until < self._clock():
            raise RequestError(f"{REQUEST_STATE} has expired; make the request anew", code=INVALID_PARAMS)
        return opened

    def _opened(self, request: Request, token: object) -> SealedRound | None:
        from cryptography.exceptions import InvalidTag  # a gateway that asks nothing does without it

        prefix, _, rest = token.partition(".") if isinstance(token, str) else ("", "", "")
        name, _, text = rest.partition(".")
        if prefix != _PREFIX or name not in self._keys:
            return None
        try:
            sealed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
            payload = self._cipher(name).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._bound(request))
        except (binascii.Error, ValueError, InvalidTag):
            return None
        return msgspec.json.decode(payload, type=SealedRound)

    def _cipher(self, name: str) -> AESGCM:
        cipher = self._ciphers.get(name)
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # as above

            cipher = self._ciphers[name] = AESGCM(self._keys[name])
        return cipher

    def _bound(self, request: Request) -> bytes:
        """Return what is authenticated with a state."""
        return f"{self._view}\n{request_binding(request)}".encode("utf-8", "surrogatepass")


def _refused(text: str) -> RequestError:
    return RequestError(text, code=INTERNAL_ERROR)
