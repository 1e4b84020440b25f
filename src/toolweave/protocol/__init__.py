"""The Model Context Protocol as values: its words, and each of its shapes to JSON and from JSON.

Pure: knows no transport, no server and no client. It is the one place that spells what the specification reserves;
client, server, test doubles and the command take it from here.
"""

from __future__ import annotations

__all__ = ["codes", "meta", "methods", "versions"]

from toolweave.protocol import codes, meta, methods, versions
