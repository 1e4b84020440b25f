"""Discovery of the config files of projects and editors, on each platform. Reads them through `load`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path

from toolweave._files import exists, is_file, read_file
from toolweave._json_types import JsonObject
from toolweave._value import Value
from toolweave.config._documents import MAX_BYTES
from toolweave.config._expand import Scope, home_directory
from toolweave.config._loaded import PROJECT, LoadedConfig, merge_loaded
from toolweave.config.load import load_file
from toolweave.errors import ConfigError

_ROOTS = (".git", ".hg", ".jj")
_PROJECT_FILES = (
    *("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json", ".gemini/settings.json", ".codex/config.toml"),
    *("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".zed/settings.json", ".roo/mcp.json"),
    *(".kilocode/mcp.json", ".kiro/settings/mcp.json", ".amazonq/mcp.json", "crush.json", ".crush.json"),
)


class ConfigFile(Value, frozen=True, kw_only=True):
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

    The project is the current folder and those above it up to the one that holds `.git` (or `.hg`, `.jj`), the nearest
    first; without such a folder it is the current one alone. A file that is both is the user's. Nothing is read but
    `pyproject.toml`, and nothing started.

    Args:
        cwd: The project's directory; the current one when None.
        home: The user's home directory.
        platform: As `sys.platform`: `linux`, `darwin`, `win32`.
    """
    folder = Path.cwd() if cwd is None else Path(cwd).absolute()
    users = editor_config_files(home=home, platform=platform)
    own = {file.path: file for file in users}
    candidates: list[ConfigFile] = []
    for place in _project_folders(folder, _home(home)):
        candidates += (own.get(path, ConfigFile(path=path, kind=PROJECT)) for path in _project_files(place))
    found: dict[Path, ConfigFile] = {}
    for file in (*candidates, *users):
        if is_file(file.path):
            found.setdefault(file.path, file)
    return sorted(found.values(), key=lambda file: file.kind != PROJECT)


def editor_config_files(*, home: Path | str | None = None, platform: str | None = None) -> list[ConfigFile]:
    """Return the config files of the user's editors, whether they exist or not.

    Args:
        home: The user's home directory.
        platform: As `sys.platform`: `linux`, `darwin`, `win32`.
    """
    places = _user_files(_home(home), platform or sys.platform, own_home=home is None)
    return [ConfigFile(path=path, kind=kind) for kind, path in places]


def default_config(
    cwd: Path | str | None = None,
    *,
    home: Path | str | None = None,
    platform: str | None = None,
    env: Mapping[str, str] | None = None,
    inputs: JsonObject | None = None,
) -> LoadedConfig:
    """Load the default config, used when none is named.

    The project's files (`mcp.json`, `.mcp.json`, `[tool.toolweave]` and those that editors keep in a
    project, such as `.vscode/mcp.json`) together, the first definition of a name winning. Only when they hold no
    server at all: the first of the user's editor files that does.

    These files were found, not named, and those of the project may have come with a checkout: their `kind` in `files`
    is `project`, and `TrustedFiles().untrusted(loaded)` returns those that were not allowed yet. Ask before you start
    them: `connect_mcp_servers` starts every server of its config.

    Raises:
        ConfigError: A file of the project cannot be read. A broken file of an editor is ignored
            with a warning.
    """
    folder = Path.cwd() if cwd is None else Path(cwd).absolute()
    scope = Scope.given(env, inputs)
    files = discover_config_files(folder, home=home, platform=platform)
    project = merge_loaded(_of_project(file.path, scope, folder) for file in files if file.kind == PROJECT)
    if _has_servers(project):
        return project
    return _first_of_user([file for file in files if file.kind != PROJECT], scope, folder, project)


def _of_project(path: Path, scope: Scope, folder: Path) -> LoadedConfig:
    """Read a file of the project; one from a folder above starts its servers there, as its editor does."""
    above = next(place for place in (folder, *folder.parents) if path.is_relative_to(place))
    loaded = load_file(path, scope, workspace=above, optional=True)
    return loaded.found_as(PROJECT, within=None if above == folder else above)


def _first_of_user(files: Iterable[ConfigFile], scope: Scope, folder: Path, project: LoadedConfig) -> LoadedConfig:
    warnings = list(project.warnings)
    for file in files:
        try:
            loaded = load_file(file.path, scope, workspace=folder, optional=True)
        except ConfigError as error:
            warnings.append(str(error))
            continue
        if _has_servers(loaded):
            return merge_loaded([LoadedConfig(warnings=warnings), loaded.found_as(file.kind)])
    return project.replace(warnings=warnings)


def _has_servers(loaded: LoadedConfig) -> bool:
    return bool(loaded.servers or loaded.errors or loaded.disabled)


def _home(home: Path | str | None) -> Path:
    if home is None:
        return home_directory()
    return Path(home)


def _project_folders(folder: Path, home: Path) -> list[Path]:
    """Return the folder and those above it, up to the root of its repository, without a home directory above it."""
    # A home directory above the folder ends the search: its files are the user's own, which are read as such.
    if folder != home:
        places = [folder, *takewhile(lambda place: place != home, folder.parents)]
    else:
        places = [folder]
    for position, place in enumerate(places):
        if _is_root(place):
            return places[: position + 1]
    return [folder]


def _is_root(folder: Path) -> bool:
    """Return whether a folder is the root of a repository."""
    return any(exists(folder / mark) for mark in _ROOTS)


def _project_files(folder: Path) -> Iterator[Path]:
    for name in _PROJECT_FILES:
        yield folder / name
    project = folder / "pyproject.toml"
    try:
        text = read_file(project, max_bytes=MAX_BYTES).decode()
    except (OSError, ValueError):  # no project of Python's, or one that other tools will complain about
        return
    if "tool.toolweave" in text:
        yield project


def _user_files(home: Path, platform: str, *, own_home: bool) -> Iterator[tuple[str, Path]]:
    # the variables are about the user's own home directory
    env: Mapping[str, str] = os.environ if own_home else {}
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    if platform == "darwin":
        apps = home / "Library" / "Application Support"
    elif platform == "win32":
        apps = Path(env.get("APPDATA") or home / "AppData/Roaming")
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
    yield "roo", code / "globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"
    yield "kiro", home / ".kiro" / "settings" / "mcp.json"
    yield "lm-studio", home / ".lmstudio" / "mcp.json"
    yield "amazon-q", home / ".aws" / "amazonq" / "mcp.json"
    yield "copilot-cli", home / ".copilot" / "mcp-config.json"
    yield "goose", (apps / "Block" / "goose" if platform == "win32" else config / "goose") / "config.yaml"
    yield "continue", home / ".continue" / "config.yaml"
    yield "crush", config / "crush" / "crush.json"
