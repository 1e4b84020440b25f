"""The page docs/cli.md, made of the command's own help."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.programs import ran

__all__ = ["PAGE", "reference"]

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "cli.md"
INTRODUCTION = """# The command line

What `toolweave --help` and the help of each command print. Rewritten by `scripts/docs`; a test compares it.

Standard output carries only the answer; progress and complaints go to standard error. Exit codes:

| code | meaning |
|---|---|
| 0 | it worked; for `tools`: at least one server answered |
| 1 | the tool answered with an error, or its arguments do not fit; or a copied file is left as you changed it |
| 2 | wrong usage or config, unknown tool or server |
| 3 | no server could be reached, or a deadline passed; with `--strict`: any server failed |
| 4 | a config file of this project is not trusted, so its servers were not started |
| 130 | interrupted |
"""


def help_of(*command: str) -> str:
    """Return what `toolweave COMMAND --help` prints on a plain terminal of 100 columns."""
    plain = {
        name: value for name, value in os.environ.items() if not re.match("FORCE_COLOR|CLICOLOR|TERM|_TYPER", name)
    }
    done = ran(
        [sys.executable, "-m", "toolweave", *command, "--help"],
        env={**plain, "COLUMNS": "100", "TERMINAL_WIDTH": "100", "TERM": "dumb", "NO_COLOR": "1"},
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def commands(text: str) -> list[str]:
    """Return the names under `Commands` of a help text, boxed or plain."""
    listed = re.split(r"^.*\bCommands\b.*$", text, flags=re.MULTILINE)[-1]
    return re.findall(r"^(?:\u2502 |  )([a-z][a-z-]*) ", listed, flags=re.MULTILINE)


def reference() -> str:
    """Return the whole page."""
    root = help_of()
    parts = [INTRODUCTION, f"```text\n{root}\n```\n"]
    parts += [section for name in commands(root) for section in _sections(name)]
    return "\n".join(parts)


def _sections(*command: str) -> Iterator[str]:
    """Yield the section of a command, and those of the commands under it."""
    text = help_of(*command)
    yield f"## toolweave {' '.join(command)}\n\n```text\n{text}\n```\n"
    if re.search(r"\bCommands\b", text):
        for name in commands(text):
            yield from _sections(*command, name)
