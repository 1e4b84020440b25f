"""A project whose copy is of an earlier catalog, by the lock that an earlier version would have written."""

from __future__ import annotations

import json
from pathlib import Path

from toolweave.components._lockfile import LOCK, hash_of

__all__ = ["age", "everything"]


def age(root: Path, component: str, path: str, text: str) -> None:
    """Make as if `text` had been copied into a file, which is left alone."""
    lock = json.loads((root / LOCK).read_text())
    lock["components"][component]["files"][path] = {"sha256": hash_of(text), "original": text.split("\n")}
    (root / LOCK).write_text(json.dumps(lock))


def everything(root: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
