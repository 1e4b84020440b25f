"""Makes one operating system call of the product fail, in a child process that has this folder on its path.

`TOOLWEAVE_TEST_CALLS` names a file that lists the calls; `TOOLWEAVE_TEST_FAULT`, such as `12:ENOSPC`, is the number of
the call that fails and its error. Calls are those of Toolweave, in its code or in the standard library below it, those
of asyncio, and the statements that go to SQLite; imports are not counted. The variables are removed, so that servers
that the process starts are not affected.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_FILES = (
    *("open", "read", "write", "close", "replace", "rename", "link", "unlink", "fsync", "fstat", "stat", "lstat"),
    *("chmod", "fchmod", "mkdir", "rmdir", "scandir", "listdir", "pipe"),
)
_WAKING = ("_read_from_self", "_write_to_self", "_make_self_pipe")
"""Functions of asyncio with which a thread wakes the event loop."""
_SOCKETS = ("connect", "connect_ex", "bind", "listen", "accept", "send", "recv", "recv_into", "setsockopt")

calls_file = os.environ.pop("TOOLWEAVE_TEST_CALLS", "")
number, _, name = os.environ.pop("TOOLWEAVE_TEST_FAULT", "0:EIO").partition(":")
failing, code = int(number), getattr(errno, name)
calls: list[str] = []


def is_of_the_product() -> bool:
    frame, found = sys._getframe(2), False
    while frame is not None:
        file = frame.f_code.co_filename
        if "importlib" in file or frame.f_code.co_name in _WAKING:
            return False
        found = found or "/toolweave/" in file or "/asyncio/" in file
        frame = frame.f_back
    return found


def counted(function: Callable[..., Any], label: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_of_the_product():
            of_socket = not args or isinstance(args[0], socket.socket)  # whose text has ports, which differ
            calls.append(label if of_socket else f"{label} {os.path.basename(str(args[0]))}")  # noqa: PTH119 - no calls of its own
            if len(calls) == failing:
                raise OSError(code, os.strerror(code))
        return function(*args, **kwargs)

    return call


class CountedSocket(socket.socket):
    """A socket whose calls are counted."""


_IN_SQLITE = {
    "ENOSPC": (sqlite3.SQLITE_FULL, "database or disk is full"),
    "EMFILE": (sqlite3.SQLITE_CANTOPEN, "unable to open database file"),
}


class CountedConnection(sqlite3.Connection):
    """A connection to a database whose statements are counted: SQLite itself makes the calls of the system."""

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        """Execute a statement."""
        _count_statement(sql)
        return super().execute(sql, *args)


def _count_statement(sql: str) -> None:
    calls.append(f"sql {' '.join(sql.split()[:6])}")
    if len(calls) == failing:
        code, text = _IN_SQLITE.get(name, (sqlite3.SQLITE_IOERR, "disk I/O error"))
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = code
        raise error


if calls_file or failing:
    import atexit

    write = io.open
    atexit.register(lambda: calls_file and write(calls_file, "w").write("\n".join(calls)))
    for each in _FILES:
        setattr(os, each, counted(getattr(os, each), each))
    for each in _SOCKETS:
        setattr(CountedSocket, each, counted(getattr(socket.socket, each), each))
    builtins.open = io.open = counted(io.open, "open")
    subprocess._fork_exec = counted(subprocess._fork_exec, "fork")  # type: ignore[attr-defined]
    socket.socket = CountedSocket  # type: ignore[misc]
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # its calls of the system cannot be seen from here
    connect: Any = sqlite3.connect

    def connected(*args: Any, **options: Any) -> Any:
        return connect(*args, **{"factory": CountedConnection, **options})

    sqlite3.connect = connected
