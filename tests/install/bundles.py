"""Bundles as publishers pack them, and as attackers do."""

from __future__ import annotations

import io
import json
import stat
import sys
import zipfile
from collections.abc import Mapping
from typing import Any

__all__ = ["SERVER", "link", "made_bundle", "manifest", "zipped"]

SERVER = """\
import os
from toolweave import create_mcp_server

def seen() -> str:
    return os.environ.get("API_KEY", "") + "|" + " ".join(__import__("sys").argv[1:])

create_mcp_server(name="bundled", version="1", tools=[seen]).run_stdio()
"""
"""A server that says which key and which arguments it was given."""


def manifest(**members: Any) -> dict[str, Any]:
    """Return the manifest of a server in Python, with members in place of its own."""
    return {
        "manifest_version": "0.3",
        "name": "bundled",
        "version": "1.0.0",
        "description": "A server in a bundle",
        "author": {"name": "Ada"},
        "server": {
            "type": "python",
            "entry_point": "server/main.py",
            "mcp_config": {
                "command": sys.executable,
                "args": ["${__dirname}/server/main.py", "${user_config.folders}", "--level=${user_config.level}"],
                "env": {"API_KEY": "${user_config.key}"},
            },
        },
        "user_config": {
            "key": {"type": "string", "title": "Key", "description": "A key", "sensitive": True, "required": True},
            "folders": {"type": "directory", "title": "Folders", "description": "Folders", "multiple": True},
            "level": {"type": "number", "title": "Level", "description": "A level", "default": 3, "min": 1, "max": 5},
        },
        **members,
    }


def zipped(files: Mapping[str, bytes | str | tuple[zipfile.ZipInfo, bytes]]) -> bytes:
    """Return a zip archive of these files; a member may come with a head of its own."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            if isinstance(content, tuple):
                archive.writestr(*content)
            else:
                archive.writestr(name, content)
    return out.getvalue()


def link(name: str, target: str) -> tuple[zipfile.ZipInfo, bytes]:
    """Return a symbolic link as zip archives have them."""
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info, target.encode()


def made_bundle(members: Mapping[str, Any] | None = None, **files: Any) -> bytes:
    """Return a bundle with a server in Python, with these members of its manifest."""
    return zipped({"manifest.json": json.dumps(manifest(**(members or {}))), "server/main.py": SERVER, **files})
