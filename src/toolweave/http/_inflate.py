"""Incremental decompression of bodies (RFC 9110, 8.4.1), so that a small one cannot fill the memory. Pure."""

from __future__ import annotations

import zlib

ACCEPTED = "gzip, deflate"
"""The value of `accept-encoding`: the encodings that the standard library decodes."""
PIECE_BYTES = 256 * 1024
"""The largest piece that is inflated at once."""

_WINDOW = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # zlib's `wbits`
_RAW_WINDOW = -15
_FREE_BYTES = 16 * 1024 * 1024
# Far above that of useful answers; the format itself ends at 1,032.
_MAX_RATIO = 256


class DecompressionError(ValueError):
    """A body does not match its encoding, or, if `too_large`, is far larger than its compressed form.

    Attributes:
        too_large: Whether it is a decompression bomb.
    """

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class Inflater:
    """A decompressor of one body: `feed` received bytes, `next_piece` until one is empty, `finish` at its end."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        if encoding == "deflate":
            self._inflate = None
        else:
            self._inflate = zlib.decompressobj(_WINDOW[encoding])
        self._waiting = b""
        self._received = self._returned = 0

    @staticmethod
    def reads(encoding: str) -> bool:
        """Whether a content encoding, in lower case, can be inflated."""
        return encoding in _WINDOW

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._received += len(data)
        self._waiting += data

    def next_piece(self) -> bytes:
        """Return the next piece, or nothing until more is fed.

        Raises:
            DecompressionError: The body is broken, or a bomb: more than 16 MiB, and 256 times as large as was received.
        """
        while self._waiting:
            if self._inflate is None:
                # Some servers leave the head of zlib out, which has an 8 in its first byte.
                self._inflate = zlib.decompressobj(15 if self._waiting[0] & 15 == 8 else _RAW_WINDOW)
            if self._inflate.eof:
                # Another member may follow (RFC 1952, 2.2); anything else is ignored.
                if self._encoding == "deflate" or self._waiting[:1] != b"\x1f":
                    self._waiting = b""
                    return b""
                self._inflate = zlib.decompressobj(31)
            try:
                piece = self._inflate.decompress(self._waiting, PIECE_BYTES)
            except zlib.error:
                raise DecompressionError(f"its body is not valid {self._encoding}") from None
            # What did not fit into the piece, or what stands behind the end of a member: never both.
            self._waiting = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                # Judged by the sums and not by a piece: a body may be sparse in one place and dense in another.
                self._returned += len(piece)
                if self._returned > max(_FREE_BYTES, _MAX_RATIO * self._received):
                    text = f"its answer becomes more than {_MAX_RATIO} times as large when it is inflated"
                    raise DecompressionError(text, too_large=True)
                return piece
        return b""

    def finish(self) -> None:
        """Check that the body was whole.

        Raises:
            DecompressionError: It was cut off.
        """
        if self._inflate is not None and not self._inflate.eof:
            raise DecompressionError(f"its {self._encoding} body is cut off")
