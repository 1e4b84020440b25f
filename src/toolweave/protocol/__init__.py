"""The Model Context Protocol as values: its names, and the conversion of its types to and from JSON.

Pure: knows no transport, no server and no client. The only place that spells the names the specification reserves;
client, server, test doubles and the command import them.
"""

from __future__ import annotations

__all__ = ["codes", "meta", "methods", "versions"]

from toolweave.protocol import codes, meta, methods, versions
