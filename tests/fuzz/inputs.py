"""Parts of the inputs of a fuzzer."""

from __future__ import annotations


def choice(data: bytes, count: int) -> tuple[int, bytes]:
    """Split off the first byte as a number below `count`."""
    return (data[0] if data else 0) % count, data[1:]


def pieces(data: bytes, size: int) -> list[bytes]:
    """Cut bytes in pieces of a size."""
    return [data[at : at + size] for at in range(0, len(data), size)]
