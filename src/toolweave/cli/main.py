"""The entry point of the `toolweave` command. Imports nothing that takes time before it can answer Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return the exit code.

    The codes are those of `toolweave.cli._exit_codes.ExitCode`.
    """
    try:
        from toolweave.cli._app import run_app  # inside, so that Ctrl-C during the import is quiet too

        return run_app(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return _INTERRUPTED
