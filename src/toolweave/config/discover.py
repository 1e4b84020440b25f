"""Where editors keep their MCP servers, on each platform. Looks for files; reads them through `load`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolweave.config.expand import Scope, home_directory
from toolweave.config.load import LoadedConfig, load_file, merge_loaded
from toolweave.errors import ConfigError

__all__ = ["ConfigFile", "default_config", "discover_config_files", "editor_config_files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A config file.

    Attributes:
        path: The file.
        kind: `project`, or the editor it belongs to, such as `claude-desktop` or `vscode`.
    """

    path: Path
    kind: str


def discover_config_files(
    cwd: Path | str | None = None, *, home: Path | str | None = None, platform: str | None = None
) -> list[ConfigFile]:
    """Find the config files of the project and of the user's editors, the project's first.

    Args:
        cwd: The project's directory; the current one when None.
        home: The user's home directory.
        platform: As `sys.platform`: `linux`, `darwin`, `win32`.
    """
    folder = Path.cwd() if cwd is None else Path(cwd)
    candidates = [
        *(ConfigFile(path=path, kind="project") for path in _project_files(folder)),
        *editor_config_files(home=home, platform=platform),
    ]
    found: dict[Path, ConfigFile] = {}
    for file in candidates:
        if file.path.is_file():
            found.setdefault(file.path, file)
    return list(found.values())


def editor_config_files(*, home: Path | str | None = None, platform: str | None = None) -> list[ConfigFile]:
    """Return where the editors keep the user's servers, whether the files exist or not.

    Args:
        home: The user's home directory.
        platform: As `sys.platform`: `linux`, `darwin`, `win32`.
    """
    root = home_directory() if home is None else Path(home)
    places = _user_files(root, platform or sys.platform, own_home=home is None)
    return [ConfigFile(path=path, kind=kind) for kind, path in places]


def default_config(
    cwd: Path | str | None = None,
    *,
    home: Path | str | None = None,
    platform: str | None = None,
    env: Mapping[str, str] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> LoadedConfig:
    """Load the config that counts when none is named.

    The project's files (`mcp.json`, `.mcp.json`, `.vscode/mcp.json`, `.cursor/mcp.json`,
    `[tool.toolweave]`) together, the first definition of a name winning. Only when they hold no
    server at all: the first of the user's editor files that does.

    Raises:
        ConfigError: A file of the project cannot be read. A broken file of an editor is passed
            over with a warning.
    """
    folder = Path.cwd() if cwd is None else Path(cwd)
    scope = Scope(env=os.environ if env is None else env, inputs=inputs or {})
    files = discover_config_files(folder, home=home, platform=platform)
    project = [file.path for file in files if file.kind == "project"]
    loaded = merge_loaded(load_file(path, scope, workspace=folder, optional=True) for path in project)
    if _has_servers(loaded):
        return loaded
    return _first_of_user((file.path for file in files if file.kind != "project"), scope, folder, loaded)


def _first_of_user(paths: Iterable[Path], scope: Scope, folder: Path, project: LoadedConfig) -> LoadedConfig:
    warnings = list(project.warnings)
    for path in paths:
        try:
            loaded = load_file(path, scope, workspace=folder, optional=True)
        except ConfigError as error:
            warnings.append(str(error))
            continue
        if _has_servers(loaded):
            return merge_loaded([LoadedConfig(warnings=warnings), loaded])
    return LoadedConfig(warnings=warnings, paths=project.paths)


def _has_servers(loaded: LoadedConfig) -> bool:
    return bool(loaded.servers or loaded.errors or loaded.disabled)


def _project_files(folder: Path) -> Iterator[Path]:
    for name in ("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"):
        yield folder / name
    project = folder / "pyproject.toml"
    try:
        text = project.read_text(encoding="utf-8")
    except (OSError, ValueError):  # no project of Python's, or one that other tools will complain about
        return
    if "tool.toolweave" in text:
        yield project


def _user_files(home: Path, platform: str, *, own_home: bool) -> Iterator[tuple[str, Path]]:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") if own_home else home / ".config"
    if platform == "darwin":
        apps = home / "Library" / "Application Support"
    elif platform == "win32":
        apps = Path(os.environ.get("APPDATA") or home / "AppData/Roaming") if own_home else home / "AppData/Roaming"
    else:
        apps = config
    code = apps / "Code" / "User"
    yield "claude-desktop", apps / "Claude" / "claude_desktop_config.json"
    yield "claude-code", home / ".claude.json"
    yield "cursor", home / ".cursor" / "mcp.json"
    yield "vscode", code / "mcp.json"
    yield "vscode", code / "settings.json"
    yield "windsurf", home / ".codeium" / "windsurf" / "mcp_config.json"
    yield "gemini", home / ".gemini" / "settings.json"
    yield "codex", home / ".codex" / "config.toml"
    yield "cline", code / "globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
    yield "zed", (apps / "Zed" if platform == "win32" else config / "zed") / "settings.json"
    yield "opencode", config / "opencode" / "opencode.json"
    yield "opencode", config / "opencode" / "opencode.jsonc"
