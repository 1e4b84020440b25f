"""Fills a folder with what the servers work on: files, a database, a repository. Knows no server."""

from __future__ import annotations

import sqlite3
import struct
import subprocess
import wave
import zlib
from pathlib import Path

__all__ = ["make_work"]


def make_work(folder: Path) -> Path:
    """Fill `folder` with a text, a picture, a sound, a table, a database with one row, a repository with one commit."""
    (folder / "a.txt").write_text("first line\nsecond line\n")
    (folder / "data.csv").write_text("a,b\n1,2\n")
    (folder / "dot.png").write_bytes(_dot())
    with wave.open(str(folder / "beep.wav"), "wb") as beep:
        beep.setparams((1, 1, 8000, 0, "NONE", "not compressed"))
        beep.writeframes(bytes(range(256)))
    with sqlite3.connect(folder / "test.db") as database:
        database.execute("create table t (id integer, word text)")
        database.execute("insert into t values (1, 'weave')")
    database.close()
    for command in (
        ["git", "init", "--quiet"],
        ["git", "add", "a.txt"],
        ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "-m", "The first one"],
    ):
        subprocess.run(command, cwd=folder, check=True)
    return folder


def _dot() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
