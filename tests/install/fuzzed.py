"""Bundles of strangers, for a fuzzer: only documented errors leave a target."""

from __future__ import annotations

import struct
import tempfile
import zlib
from pathlib import Path

from toolweave.errors import RegistryError
from toolweave.install import ServerBundle


def bundles(data: bytes) -> None:
    """Bundles (`.mcpb`), read and unpacked."""
    try:
        bundle = ServerBundle(whole_archive(data))
        bundle.option(Path("/nowhere"))
        with tempfile.TemporaryDirectory() as folder:
            assert bundle.unpack(Path(folder)).is_relative_to(folder)
    except RegistryError:
        pass


def whole_archive(data: bytes) -> bytes:
    """Return an archive with right check sums, which a fuzzer hardly finds: those of members that are stored."""
    out, at = bytearray(data), 0
    sums: dict[int, int] = {}
    while (at := out.find(b"PK\x03\x04", at)) >= 0 and at + 30 <= len(out):
        method, size, name, extra = struct.unpack_from("<8xH8xI4xHH", out, at)
        begin = at + 30 + name + extra
        if method == 0:
            sums[at] = zlib.crc32(out[begin : begin + size])
            struct.pack_into("<I", out, at + 14, sums[at])
        at += 4
    at = 0
    while (at := out.find(b"PK\x01\x02", at)) >= 0 and at + 46 <= len(out):
        (place,) = struct.unpack_from("<I", out, at + 42)
        if place in sums:
            struct.pack_into("<I", out, at + 16, sums[place])
        at += 4
    return bytes(out)
