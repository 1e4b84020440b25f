"""The lines of one user in an audit log, and the principals of limits in a store.

A line is overwritten where it stands, at its own length. So the file can be in use: programs that append to it, and
programs that rotate it, are not disturbed, and no line of theirs is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import IO

from toolweave._json_types import JsonObject, object_or_empty, text_or_empty
from toolweave.serve.request import principal_of
from toolweave.state import Document


def limit_principal(found: Document) -> str:
    """Return the principal that a count in a store is for, or "" if it is for more than one."""
    # the limiter's name, then the JSON of the kind, of what is counted by, and of its parts
    _, _, text = found.key.partition(":[")
    try:
        _, by, parts = json.loads(f"[{text}")
        return parts[by.index("principal")].rpartition("|")[0]
    except (ValueError, TypeError, AttributeError, IndexError):
        return ""


def audit_principals(path: Path) -> Generator[str]:
    """Yield the principal of each line of an audit log that has one.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        for line in file:
            principal = _principal(line)
            if principal is not None:
                yield principal


def erase_lines(path: Path, is_user: Callable[[str], bool]) -> int:
    """Overwrite the lines of a user in an audit log; return their number.

    Of each line its time is left, and that it was erased.

    Raises:
        OSError: The file cannot be written.
    """
    erased = 0
    with path.open("r+b") as file:
        while line := file.readline():
            principal = _principal(line)
            if principal is not None and is_user(principal):
                _overwrite(file, line)
                erased += 1
    return erased


def _overwrite(file: IO[bytes], line: bytes) -> None:
    left = {"time": _parsed(line).get("time"), "erased": True}
    file.seek(-len(line), os.SEEK_CUR)
    file.write(json.dumps(left).encode().ljust(len(line) - 1) + b"\n")
    file.flush()
    file.seek(0, os.SEEK_CUR)  # between a write and the next read


def _principal(line: bytes) -> str | None:
    found = object_or_empty(_parsed(line).get("principal"))
    # A line without its end is being written just now, or was cut off by a full disk.
    if not found or not line.endswith(b"\n"):
        return None
    issuer = text_or_empty(found.get("issuer"))
    subject = text_or_empty(found.get("subject"))
    return principal_of(text_or_empty(found.get("client")), issuer, subject)


def _parsed(line: bytes) -> JsonObject:
    try:
        return object_or_empty(json.loads(line))
    except ValueError:
        return {}
