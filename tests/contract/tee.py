"""Runs a stdio server and writes down what it is sent: `tee.py FILE COMMAND...`; the server's output passes by."""

from __future__ import annotations

import os
import subprocess
import sys


def main() -> int:
    """Copy standard input to the server and to the file until either ends; return the server's exit code."""
    file, *command = sys.argv[1:]
    with open(file, "ab", buffering=0) as out, subprocess.Popen(command, stdin=subprocess.PIPE) as server:  # noqa: PTH123 - starts faster
        assert server.stdin is not None
        while data := os.read(0, 65536):
            out.write(data)
            try:
                server.stdin.write(data)
                server.stdin.flush()
            except BrokenPipeError:
                break
        server.stdin.close()
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
