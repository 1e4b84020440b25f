"""State of upstreams on its way through callers: encrypted, and bound to the request that it belongs to.

A token is sealed (`_replicas/sealing.py`) over the upstream's name, its own state, and where its call waits.
The method, the name and the arguments of the request, its caller and the view of the gateway are authenticated with it:
a state that comes back with anything else does not open. It is not single use; a parked call is resumed once because of
its handle (specification 2026-07-28, basic/utilities/mrtr: `requestState` is attacker-controlled).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from toolweave._json import decode_json
from toolweave.errors import RequestError
from toolweave.gateway._replicas.sealing import SealingKeys
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS
from toolweave.protocol.input_required import REQUEST_STATE
from toolweave.serve import Request
from toolweave.serve._request_state import TTL_SECONDS, request_binding

MAX_ROUNDS = 20
"""Rounds of input of one request."""
_MAX_STATE = 256 * 1024
"""The longest state of an upstream that is carried, in bytes."""
_PREFIX = "g1"


class SealedRound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts about one round of input that its answers have to find again.

    Attributes:
        server: The upstream.
        number: The number of the round, from 1.
        until: The end of its validity, in seconds since the epoch.
        state: The state of the upstream; None for none.
        replica: The replica whose process can read the state; empty if any replica can.
        handle: The parked call that waits for the answers, or None.
        pages: The keys of web pages to be visited before the request is repeated.
        sign_in: In rounds of the caller's own sign-in at the upstream, the question: `page`, `code`, or `done`, after
            which the request is repeated.
    """

    server: str
    number: int
    until: float = 0.0
    state: str | None = None
    replica: str = ""
    handle: str | None = None
    pages: tuple[str, ...] = ()
    sign_in: str = ""


class StateCipher:
    """Seals and opens the state of one gateway, or of all its replicas.

    Args:
        keys: Secrets of at least 32 bytes, the newest first: it seals, all of them open. None makes one for this
            process.
        view: The name of the gateway's view that receives the requests; its states do not open in another.
        ttl: Seconds until a state expires.
        clock: The time in seconds since the epoch, the same for all replicas.

    Raises:
        ValueError: No key was given, or one is too short.
    """

    def __init__(
        self,
        keys: Sequence[str | bytes] | None = None,
        *,
        view: str = "",
        ttl: float = TTL_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = SealingKeys(keys, "gateway state", _PREFIX)
        self._view = view
        self.ttl = ttl
        self._clock = clock

    def seal(self, request: Request, what: SealedRound) -> str:
        """Return the state for the caller of this request.

        Raises:
            RequestError: The upstream's state is too long, or it asks in too many rounds (-32603).
        """
        if what.state is not None and len(what.state) > _MAX_STATE:
            raise _refused(f"server {what.server!r}: its {REQUEST_STATE} is longer than {_MAX_STATE} bytes")
        if what.number > MAX_ROUNDS:
            raise _refused(f"server {what.server!r} still asks for input after {MAX_ROUNDS} rounds: given up")
        payload = msgspec.json.encode(msgspec.structs.replace(what, until=self._clock() + self.ttl))
        return self._keys.seal(payload, self._bound(request))

    def open(self, request: Request, token: object) -> SealedRound:
        """Return the content of a state.

        Raises:
            RequestError: It is not a state of this gateway, was changed, has expired, or belongs to another request,
                another caller or another view (-32602).
        """
        payload = self._keys.open(token, self._bound(request))
        if payload is None:
            raise RequestError(
                f"{REQUEST_STATE} is not of this request of this caller, or was changed, or sealed with a key that "
                "this gateway does not have (replicas share their state_keys); repeat the request",
                code=INVALID_PARAMS,
            )
        opened = decode_json(payload, SealedRound)
        if opened.until < self._clock():
            raise RequestError(f"{REQUEST_STATE} has expired; repeat the request", code=INVALID_PARAMS)
        return opened

    def _bound(self, request: Request) -> bytes:
        """Return the data that is authenticated with a state."""
        return f"{self._view}\n{request_binding(request)}".encode("utf-8", "surrogatepass")


def _refused(text: str) -> RequestError:
    return RequestError(text, code=INTERNAL_ERROR)
