"""Standard output and standard error as streams, tolerant of closed pipes and limited encodings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TextIO


def write(stream: TextIO | None, text: str) -> None:
    """Write text; characters that the encoding lacks are escaped, and a closed pipe is not an error."""
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    quietly(stream, lambda: (stream.write(text), stream.flush()))


def quietly(stream: TextIO, act: Callable[[], object]) -> None:
    """Write by `act`; after a closed pipe the rest is discarded.

    Raises:
        CommandError: Standard output cannot be written, such as on a full disk.
    """
    try:
        act()
    except BrokenPipeError:
        _discard(stream)
    except OSError as error:
        _discard(stream)
        if stream is not sys.stderr:  # an error about standard error has nowhere to go
            from toolweave.cli._exit_codes import CommandError  # `--help` and `--version` import little

            raise CommandError(f"the output cannot be written: {error.strerror or error}") from None


def _discard(stream: TextIO) -> None:
    """Discard the rest of the output, so that the flush at the end of the process does not fail either."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, stream.fileno())
    os.close(descriptor)


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal."""
    try:
        return stream.isatty()
    except (ValueError, AttributeError):
        return False  # closed, or none at all
