"""Responses of strangers, for a fuzzer: only documented errors leave a target."""

from __future__ import annotations

import asyncio
from typing import cast

from tests.fuzz.inputs import choice, pieces
from toolweave.http._connection import Socket
from toolweave.http._inflate import DecompressionError, Inflater

ENCODINGS = ("gzip", "deflate", "x-gzip")


class _Transport:
    """A transport that sends nowhere."""

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


def http_responses(data: bytes) -> None:
    """Responses of HTTP servers, in pieces, one after the other on one connection."""
    size, body = choice(data, 97)
    socket = Socket()
    socket.transport = cast("asyncio.Transport", _Transport())
    held = 0
    for piece in pieces(body, size + 1):
        if socket.ended:
            break
        socket.get_buffer(-1)[: len(piece)] = piece
        socket.buffer_updated(len(piece))
        held += len(socket.drain())
        if socket.complete and socket.is_free():
            socket.begin(b"x")
    socket.eof_received()
    socket.connection_lost(None)
    held += len(socket.drain())
    assert held <= len(body)


def encodings(data: bytes) -> None:
    """Bodies with a content encoding."""
    kind, body = choice(data, len(ENCODINGS))
    inflater = Inflater(ENCODINGS[kind])
    try:
        for piece in pieces(body, 700):
            inflater.feed(piece)
            while inflater.next_piece():
                pass
        inflater.finish()
    except DecompressionError:
        pass
