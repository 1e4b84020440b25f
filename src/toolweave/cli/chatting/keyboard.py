"""Lines that a person types, waited for without a thread, so that Ctrl-C and servers are heard meanwhile."""

from __future__ import annotations

import os
import sys

from toolweave.cli.render.text import safe_text

__all__ = ["ask_line"]


async def ask_line(question: str) -> str | None:
    """Return the line that is typed after a question on standard error, None at the end of the input."""
    import anyio  # --help imports this module

    print(safe_text(question), end="", file=sys.stderr, flush=True)
    await anyio.wait_readable(sys.stdin.fileno())
    data = os.read(sys.stdin.fileno(), 65536)
    return data.decode(errors="replace").rstrip("\r\n") if data else None
