"""The readers of foreign bytes, each as a function for a fuzzer.

A target calls a reader as the product does and catches the errors that the reader documents. Where bytes can be read in
two ways, both must agree: a stream whole and in pieces, a message by our reader and by `json`. Each is in the folder of
its room.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.config.fuzzed import configs
from tests.gateway.fuzzed import sealed_states
from tests.http.fuzzed import encodings, http_responses
from tests.install.fuzzed import bundles
from tests.protocol.fuzzed import event_streams, header_values, messages
from tests.schema.fuzzed import schemas
from tests.serve.fuzzed import signed_states


def states(data: bytes) -> None:
    """What callers return or name, and servers made or read."""
    signed_states(data)
    sealed_states(data)
    header_values(data)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "messages": messages,
    "http_responses": http_responses,
    "event_streams": event_streams,
    "encodings": encodings,
    "configs": configs,
    "schemas": schemas,
    "states": states,
    "bundles": bundles,
}
