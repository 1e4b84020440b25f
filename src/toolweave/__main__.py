"""`python -m toolweave` is the `toolweave` command."""

from __future__ import annotations

import sys

from toolweave.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
