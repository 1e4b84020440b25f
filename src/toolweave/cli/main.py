"""The entry point of the `toolweave` command: splits off `-- COMMAND`, maps every end to an exit code.

Imports nothing that takes time, so that Ctrl-C is answered quietly from the first moment on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit code.

    The codes are those of `toolweave.cli.exits.ExitCode`.
    """
    try:
        from toolweave.cli.app import run_app  # inside, so that Ctrl-C during the import is quiet too

        code = run_app(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return 0
    return code


def _discard_output() -> None:
    """Send the rest of standard output nowhere: its reader left, and the exit's flush must not complain."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.close(devnull)
