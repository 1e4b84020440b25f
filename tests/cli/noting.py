"""Runs a script with its standard error in a file: `noting.py SCRIPT ARGUMENTS... FILE`."""

from __future__ import annotations

import os
import runpy
import sys

if __name__ == "__main__":
    file = sys.argv.pop()
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
