"""Which servers are used, and which of their tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the client.

    Attributes:
        servers: A config file of any editor, or the entries themselves, such as
            `{"github": {"url": "https://...", "headers": {...}},
            "files": {"command": "npx", "args": [...], "env": {...}}}`.
        wait: Seconds until a slow server is not waited for; its tools come later.
        exclude: Tools to leave out: `delete_file`, or `files/delete_file`.
    """

    servers: str | Path | Mapping[str, Any] = "mcp.json"
    wait: float = 20.0
    exclude: tuple[str, ...] = ()
