"""A server that starts only when files exist: `python -S -E waiting.py DIR NAME COUNT COMMAND...`.

Makes DIR/NAME, waits until DIR holds COUNT files, then becomes the command. So whoever connects decides, by files and
not by a clock, when a server is there; COUNT servers that wait for each other prove that they start at once.
"""

from __future__ import annotations

import os
import sys
import time

GIVE_UP_AFTER = 30.0


def main() -> None:
    """Wait, then become the command."""
    folder, name, count, *command = sys.argv[1:]
    with open(os.path.join(folder, name), "w"):  # noqa: PTH118, PTH123 - pathlib is slow to import
        pass
    deadline = time.monotonic() + GIVE_UP_AFTER
    while len(os.listdir(folder)) < int(count):  # noqa: PTH208
        if time.monotonic() > deadline:
            sys.exit(f"only {os.listdir(folder)} came")  # noqa: PTH208
        time.sleep(0.005)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
