"""States that callers of a gateway return, for a fuzzer: only documented errors leave a target."""

from __future__ import annotations

from tests.serve.fuzzed import REQUEST
from toolweave.errors import RequestError
from toolweave.gateway._relay.sealed_state import StateCipher

CIPHER = StateCipher([b"k" * 32])


def sealed_states(data: bytes) -> None:
    """States of rounds of input of upstreams."""
    try:
        CIPHER.open(REQUEST, data.decode("latin-1"))
    except RequestError:
        pass
