"""The version of the package, for what cannot wait for its metadata to be read; the build takes it from here."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "0.1.0"
