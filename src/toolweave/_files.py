"""Files that others may have put there, read without waiting and within a bound."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_GIVEN_STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Places of pipes that a shell opens for this process: such a pipe has a writer, and the user asked for it."""


def is_file(path: Path) -> bool:
    """Return whether a regular file is there that this process can reach.

    A name that is too long for the system, and a file in a folder that may not be entered, is not a file here.
    `Path.is_file` raises an error for these before Python 3.14.
    """
    return os.path.isfile(path)  # noqa: PTH113 - see above


def is_directory(path: Path) -> bool:
    """Return whether a directory is there that this process can reach, as `is_file` does for files."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def exists(path: Path) -> bool:
    """Return whether anything is there that this process can reach, as `is_file` does for files."""
    return os.path.exists(path)  # noqa: PTH110 - as above


def read_file(path: Path, *, max_bytes: int) -> bytes:
    """Return the content of a regular file.

    A named pipe without a writer would block its reader for ever, a device may have no end. Both are refused after they
    were opened, so that the file cannot be exchanged in between.

    Raises:
        OSError: The file cannot be read, is not a regular file, or has more than `max_bytes`.
        ValueError: The path holds a null character.
    """
    # Opened without waiting, then judged by the descriptor: after a check by name the file could be exchanged, and
    # another one would be read. Streams that this process was given, such as `/dev/stdin`, are meant as they are.
    is_given = str(path).startswith(_GIVEN_STREAMS)
    waiting = 0 if is_given else getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | waiting)
    with os.fdopen(descriptor, "rb") as file:
        if not is_given and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file", str(path))
        # One byte more than is allowed shows that there is more, without a size that may change while it is read.
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(path))
    return data
