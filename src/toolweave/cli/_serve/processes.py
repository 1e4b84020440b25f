"""The command line of this process, for processes that it starts to do a part of its work. Starts nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def own_command(words: Sequence[str]) -> list[str]:
    """Return the command that runs this program with other words, by the same interpreter."""
    # A new interpreter does not inherit `-P`, and without it looks for modules in the current folder.
    return [sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", "toolweave", *words]
