"""Signed request state, which passes through the client between rounds of input.

The answers of earlier rounds, signed with HMAC-SHA256 and bound to one request of one principal for a limited time
(specification 2026-07-28, basic/utilities/mrtr: `requestState` is attacker-controlled). Signed, not secret, and not
single-use: the same state may come back twice before it expires.
"""

from __future__ import annotations

import binascii
import hmac
import json
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from toolweave._json_types import object_or_empty, without_members
from toolweave.errors import RequestError
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.input_required import INPUT_RESPONSES, REQUEST_STATE
from toolweave.serve.request import Json, Request

TTL_SECONDS = 600.0
_MIN_KEY_BYTES = 32
_VERSION = 1
_LOOSE = frozenset({"_meta", INPUT_RESPONSES, REQUEST_STATE})
"""Parameters that differ between the rounds of one request."""


class StateSigner:
    """Signs and verifies request state.

    Args:
        keys: Secrets of at least 32 bytes, the newest first: it signs, all of them verify, so keys can be rotated.
            Give the same to all replicas. None makes one for this process.
        ttl: Seconds until the state expires.
        clock: The time in seconds, the same for all replicas.

    Raises:
        ValueError: The list of keys is empty, or a key is too short.
    """

    def __init__(
        self,
        keys: Sequence[str | bytes] | None = None,
        *,
        ttl: float = TTL_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if keys is None:
            given = [secrets.token_bytes(_MIN_KEY_BYTES)]
        else:
            given = keys
        # The first key signs, and all of them verify: replicas can be given a new key one after the other.
        self._keys = [key.encode() if isinstance(key, str) else key for key in given]
        if not self._keys or any(len(key) < _MIN_KEY_BYTES for key in self._keys):
            raise ValueError(f"request_state_keys must be secrets of at least {_MIN_KEY_BYTES} bytes, the newest first")
        self._ttl = ttl
        self._clock = clock

    def seal(self, request: Request, answers: Mapping[str, Any]) -> str:
        """Return the signed state that holds these answers, for the client of this request."""
        state = {
            "v": _VERSION,
            "until": self._clock() + self._ttl,
            "for": request_binding(request),
            "answers": answers,
        }
        payload = json.dumps(state, separators=(",", ":")).encode()
        return f"{to_base64url(payload)}.{to_base64url(_sign(self._keys[0], payload))}"

    def open(self, request: Request, sealed: object) -> Json:
        """Verify a state and return its answers.

        Raises:
            RequestError: Its signature is wrong, it belongs to another request or another principal, or it has expired
                (-32602).
        """
        state = self._verified(sealed)
        if state is None:
            raise RequestError(
                f"{REQUEST_STATE} was not sealed with a key of this server, or was changed since; replicas have to "
                "share their request_state_keys; repeat the request",
                code=INVALID_PARAMS,
            )
        if state.get("v") != _VERSION or state.get("for") != request_binding(request):
            raise RequestError(f"{REQUEST_STATE} is not of this request; repeat the request", code=INVALID_PARAMS)
        if state["until"] < self._clock():
            raise RequestError(f"{REQUEST_STATE} has expired; repeat the request", code=INVALID_PARAMS)
        return state["answers"]

    def _verified(self, sealed: object) -> Json | None:
        if not isinstance(sealed, str):
            return None
        body, _, signature = sealed.partition(".")
        try:
            payload = from_base64url(body)
            signed = from_base64url(signature)
        except (binascii.Error, ValueError):
            return None
        # Every key is tried, so that the time does not show which one matched. Nothing of the payload is read before.
        genuine = [hmac.compare_digest(_sign(key, payload), signed) for key in self._keys]
        if not any(genuine):
            return None
        return dict(object_or_empty(json.loads(payload)))


def request_binding(request: Request) -> str:
    """Return a digest of a request's method, params and principal, to which a state is bound."""
    params = without_members(request.params, *_LOOSE)
    bound = [request.method, params, request.client.principal]
    return to_base64url(sha256(json.dumps(bound, sort_keys=True, separators=(",", ":")).encode()).digest())


def _sign(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, b"toolweave request state\n" + payload, "sha256")


def to_base64url(raw: bytes) -> str:
    """Return bytes as unpadded base64url."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Return the bytes of an unpadded base64url text; other spellings of the same bytes are refused.

    Raises:
        ValueError: The text is not one that `seal` returned.
    """
    raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    if to_base64url(raw) != text:
        raise ValueError("not canonical")
    return raw
