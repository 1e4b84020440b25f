"""Servers that an editor switches off in another file than the one that defines them.

Gemini CLI keeps the switches of `.gemini/settings.json` in `~/.gemini/mcp-server-enablement.json`; Claude Code those of
a project's `.mcp.json` in its settings and in `~/.claude.json`. Reads those files; decides nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from toolweave.config._documents import read_document

__all__ = ["disabled_elsewhere"]


def disabled_elsewhere(path: Path, project: Path, home: Path) -> dict[str, str]:
    """Return the reasons why servers of a file are switched off by other files, by name.

    Raises:
        ConfigError: A file with switches cannot be read: nothing is started that may be switched off in it.
    """
    if path.parent.name == ".gemini":
        return dict(_of_gemini(home / ".gemini" / "mcp-server-enablement.json"))
    return dict(_of_claude(project, home)) if path.name == ".mcp.json" else {}


def _of_gemini(path: Path) -> Iterator[tuple[str, str]]:
    for name, state in _read(path).items():
        if _mapping(state).get("enabled") is False:
            yield name, f"it is switched off in {path}"


def _of_claude(project: Path, home: Path) -> Iterator[tuple[str, str]]:
    folder = project / ".claude"
    for path in (home / ".claude" / "settings.json", folder / "settings.json", folder / "settings.local.json"):
        yield from _disabled(_read(path), path)
    own = home / ".claude.json"
    yield from _disabled(_mapping(_mapping(_read(own).get("projects")).get(str(project))), own)


def _disabled(settings: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str]]:
    names = settings.get("disabledMcpjsonServers")
    for name in cast("list[Any]", names) if isinstance(names, list) else []:
        yield str(name), f"'disabledMcpjsonServers' in {path} names it"


def _read(path: Path) -> Mapping[str, Any]:
    return _mapping(read_document(path).value) if path.is_file() else {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
