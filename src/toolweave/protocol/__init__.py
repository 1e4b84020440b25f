"""The Model Context Protocol as values: revisions, methods, error codes, keys of `_meta`, content blocks, headers.

Pure: knows no transport, no server and no client. It is the one place that spells what the specification reserves;
client, server, test doubles and the command take it from here.
"""

from __future__ import annotations

__all__ = ["codes", "meta", "methods", "versions"]

from toolweave.protocol import codes, meta, methods, versions
