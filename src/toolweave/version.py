"""The version of the package, for code that cannot wait for its metadata; the build reads it from this file."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "0.1.0"
