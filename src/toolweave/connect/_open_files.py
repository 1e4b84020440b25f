"""The limit of open files: whether another server fits under it, and the advice if not."""

from __future__ import annotations

import errno
import os

_OPEN_FILES = "/dev/fd"
_SPARE = 16
_OF_A_PROCESS = 4
"""Descriptors of a server that runs: its three pipes, and one that reports its end."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE})


def require_room_for_process() -> None:
    """Check that the descriptors of one more server leave a few free, which all others need at times.

    A process without any free descriptor can neither load a module nor look for the processes that a server has left,
    so the last ones are not given to servers. POSIX only.

    Raises:
        OSError: Too few are left.
    """
    import resource  # it is not there on Windows

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return
    try:
        used = len(os.listdir(_OPEN_FILES))  # noqa: PTH208 - a path object for each would cost more than all else
    except FileNotFoundError:  # not every system shows them
        return
    if limit - used < _OF_A_PROCESS + _SPARE:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def open_files_hint(text: str) -> str:
    """Return what to do about an error with this text if it is that too many files are open, else an empty string."""
    if any(os.strerror(code) in text for code in _EXHAUSTED):
        return "; raise the limit of open files (`ulimit -n`), or connect to fewer servers at once"
    return ""
