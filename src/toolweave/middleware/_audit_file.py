"""The file of an audit log: appended to by several processes, and changed for a new one each day if lines are deleted.

Why no line is lost. A file is moved by a second name that only one process can create, and then loses its first. A
process that has it open still writes to the same file, and opens the new one with its next line.

The lines of one user are overwritten where they stand, at their own length. So the file can be in use meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
import re
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import IO

from toolweave._json_types import JsonObject, object_or_empty, text_or_empty
from toolweave.serve.request import principal_of

_log = logging.getLogger("toolweave.middleware")
_DAY = 86_400
_EPOCH = date(1970, 1, 1)


class AppendedFile:
    """A file that lines are appended to; made again when it was moved away, as programs that rotate logs do.

    Args:
        path: The file.
        keep_days: Days that lines are kept: the file of each day is moved to `PATH.YYYY-MM-DD` at the first line of
            another day, and deleted later; None keeps one file.
        clock: Returns the time in seconds since the epoch.
    """

    def __init__(self, path: Path, *, keep_days: int | None, clock: Callable[[], float]) -> None:
        self._path = str(path)
        self._keep_days = keep_days
        self._clock = clock
        self._day = -1
        self._opened: _Descriptor | None = None
        self._is_torn = False

    def __call__(self, line: bytes) -> None:
        """Append a line.

        Raises:
            OSError: It cannot be written.
        """
        if self._keep_days is not None:
            self._begin_day(self._keep_days)
        file = self._opened
        # Compared for each line: a program that rotates logs renames the file, and sends no signal to this process.
        if file is None or not file.is_at(self._path):
            file = self._opened = _Descriptor(self._path)
            self._is_torn = False
        # A disk that gets full takes the beginning of a line. Other processes append to the file, so that cannot be
        # undone, but the next line must not be lost as the end of it.
        left = memoryview(b"\n" + line if self._is_torn else line)
        while left:
            written = os.write(file.number, left)
            left = left[written:]
            self._is_torn = bool(left)

    def _begin_day(self, keep_days: int) -> None:
        """Move the file of an earlier day and delete the oldest, with the first line of a day."""
        day = int(self._clock() // _DAY)
        if day == self._day:
            return
        self._day = day
        try:
            self._move(day)
            self._delete(_date(day) - timedelta(days=keep_days))
        except OSError as exc:
            # The line itself is written: a log that is too long is better than none.
            _log.error("the audit log %s cannot be rotated: %s", self._path, exc)

    def _move(self, day: int) -> None:
        try:
            found = os.stat(self._path)  # noqa: PTH116  # as below
        except FileNotFoundError:
            return
        written = int(found.st_mtime // _DAY)
        if found.st_size == 0 or written >= day:
            return
        # A link and not a renaming, which would replace the file of that day: of several processes one makes the link.
        # Another process may have moved it meanwhile: then the name exists, and the file at the path is the new one.
        with suppress(FileExistsError):
            os.link(self._path, f"{self._path}.{_date(written)}")
            os.unlink(self._path)  # noqa: PTH108  # as above

    def _delete(self, before: date) -> None:
        """Delete the files of days before this one."""
        path = Path(self._path)
        dated = re.compile(re.escape(path.name) + r"\.(\d{4}-\d\d-\d\d)")
        for other in path.parent.iterdir():
            found = dated.fullmatch(other.name)
            if found is None:
                continue
            with suppress(ValueError):  # not a date
                if date.fromisoformat(found[1]) < before:
                    other.unlink(missing_ok=True)


class _Descriptor:
    """An open file, which is closed with the last reference to it."""

    def __init__(self, path: str) -> None:
        # Appended, so that lines of several processes are not written over each other. Readable by the owner alone,
        # because arguments may be in it.
        self.number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        weakref.finalize(self, os.close, self.number)
        found = os.fstat(self.number)
        self._identity = (found.st_dev, found.st_ino)

    def is_at(self, path: str) -> bool:
        """Whether the path still names this file."""
        try:
            found = os.stat(path)  # noqa: PTH116  # for each line
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._identity


def _date(day: int) -> date:
    return _EPOCH + timedelta(days=day)


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
