"""How often a SQLite file in its write-ahead log was written to the disk, read from that log."""

from __future__ import annotations

from pathlib import Path


def commits(path: Path) -> int:
    """Return how many transactions stand in the log of an open file (https://www.sqlite.org/walformat.html).

    Each is one sync of the disk where `synchronous` is `FULL`. A log that was begun anew counts from there.
    """
    log = path.with_name(f"{path.name}-wal").read_bytes()
    page, salts = int.from_bytes(log[8:12], "big"), log[16:24]
    frames = [log[at : at + 24] for at in range(32, len(log), 24 + page)]
    return sum(1 for head in frames if head[8:16] == salts and int.from_bytes(head[4:8], "big"))
