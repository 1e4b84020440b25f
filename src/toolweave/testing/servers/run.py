"""Fast start of a test server: `python -I -S run.py echo|faults|http OPTIONS`.

The servers use the standard library and each other, so this script stands empty packages in for `toolweave` and
`toolweave.testing`: a server starts in the time of a bare interpreter and sees nothing of the client it tests.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType

__all__ = ["SERVERS", "main"]

PACKAGE = "toolweave.testing.servers"
SERVERS = ("echo", "faults", "http")


def main() -> None:
    """Run the server that the first argument names; the rest are its own."""
    if len(sys.argv) < 2 or sys.argv[1] not in SERVERS:
        sys.exit(f"usage: run.py {'|'.join(SERVERS)} OPTIONS")
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow to import
    name = PACKAGE
    while name:
        package = ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package
        name = name.rpartition(".")[0]
        folder = os.path.dirname(folder)  # noqa: PTH120
    server = sys.argv.pop(1)
    sys.argv[0] = f"{sys.argv[0]} {server}"
    import_module(f"{PACKAGE}.{server}").main()


if __name__ == "__main__":
    main()
