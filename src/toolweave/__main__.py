"""`python -m toolweave` is the `toolweave` command."""

from __future__ import annotations

import os
import sys

if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109 - nothing else is loaded
    # a json.py in the folder where it is started would stand in for the standard library's
    del sys.path[0]

from toolweave.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
