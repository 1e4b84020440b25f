"""What a shell offers after Tab: server names from the config, tool names as `tools` last saw them.

Starts no server and never fails: a shell that waits or prints an error is worse than no completion.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

__all__ = ["remember_tools", "server_names", "tool_names"]

_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""Only such names are offered: what a shell inserts into a command line must be a word, whatever a server says."""
_MOST = 5_000


def server_names(incomplete: str) -> list[str]:
    """Return the names of configured servers that start with `incomplete`."""
    try:
        from toolweave.config import default_config  # reads files: only when a shell asks

        loaded = default_config()
    except Exception:  # boundary: completion stays silent
        return []
    names = [*loaded.servers, *loaded.errors]
    return [name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name)]


def tool_names(incomplete: str) -> list[str]:
    """Return the remembered tool names that start with `incomplete`."""
    return [name for names in _remembered().values() for name in names if name.startswith(incomplete)]


def remember_tools(tools: Mapping[str, Sequence[str]]) -> None:
    """Keep the tool names of these servers for completion, in the user's cache folder."""
    kept = {server: [name for name in names if _PLAIN.fullmatch(name)][:_MOST] for server, names in tools.items()}
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({**_remembered(), **kept}, file)
        Path(name).replace(path)
    except OSError:
        return  # no cache, no completion


def _remembered() -> dict[str, list[str]]:
    try:
        value: Any = json.loads(_path().read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    entries: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
    return {
        server: [name for name in cast("list[Any]", names) if isinstance(name, str) and _PLAIN.fullmatch(name)]
        for server, names in entries.items()
        if isinstance(names, list)
    }


def _path() -> Path:
    from platformdirs import user_cache_path  # only when a shell asks or tools were listed

    return user_cache_path("toolweave", appauthor=False) / "completion.json"
