"""States and cursors that callers return, for a fuzzer: only documented errors leave a target."""

from __future__ import annotations

from typing import Any, cast

from toolweave.errors import RequestError
from toolweave.serve._offers import pagination
from toolweave.serve._request_state import StateSigner
from toolweave.serve.request import Client, Request

SIGNER = StateSigner([b"k" * 32])
NO_REPLIES = cast("Any", None)  # nothing is sent in reply
REQUEST = Request("tools/call", {"name": "a", "arguments": {"x": 1}}, Client(version="2026-07-28"), NO_REPLIES, 1, {})


def signed_states(data: bytes) -> None:
    """States of rounds of input, and cursors."""
    text = data.decode("latin-1")
    for read in (
        lambda: SIGNER.open(REQUEST, text),
        lambda: pagination.page(["a", "b", "c"], text, 2, key=str),
    ):
        try:
            read()
        except RequestError:
            continue
