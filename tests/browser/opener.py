"""The browser of a command that a test drives: `opener.py FILE URL` writes the URL into the file."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    part = Path(f"{sys.argv[1]}.part")
    part.write_text(sys.argv[2], encoding="utf-8")
    part.replace(sys.argv[1])
