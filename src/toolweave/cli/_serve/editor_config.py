"""Writes the entry that makes an editor start a server: where, in which form, with a backup, whole or not at all.

The locations of the editors' files are in `config`; the edit of the file's text is in `json_edit.py`.
"""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from toolweave.cli._exit_codes import CommandError

__all__ = ["EditorSource", "Installed", "entry_of", "file_of", "install", "section_of"]


class EditorSource(StrEnum):
    """Editors whose config is written, and from which servers are taken."""

    CLAUDE = "claude"
    CURSOR = "cursor"
    VSCODE = "vscode"


_KINDS = {EditorSource.CLAUDE: "claude-desktop", EditorSource.CURSOR: "cursor", EditorSource.VSCODE: "vscode"}
"""Their names in `config`; the first file of a kind is the one that the editor writes itself."""
_COMMAND = ["-P", "-m", "toolweave", "serve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The result of an installation.

    Attributes:
        path: The editor's file.
        changed: False when the entry was there already.
        backup: The copy of the file as it was, or None.
    """

    path: Path
    changed: bool
    backup: Path | None = None


def entry_of(editor: EditorSource, arguments: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry that starts `toolweave serve ARGUMENTS`: this Python, by its full path.

    Editors start their servers with few variables, so `PATH` is not used; and in any directory, such as an untrusted
    project, so Python must not look for modules there (`-P`).
    """
    typed: dict[str, Any] = {"type": "stdio"} if editor is EditorSource.VSCODE else {}
    entry = {**typed, "command": sys.executable, "args": [*_COMMAND, *arguments]}
    return entry | ({"env": dict(env)} if env else {})


def install(editor: EditorSource, name: str, entry: Mapping[str, Any], *, home: Path | None = None) -> Installed:
    """Write the entry into the editor's file; the rest of the file is unchanged, comments included.

    Idempotent; an entry of an earlier `toolweave serve` is updated, and members that a person added to it stay.

    Raises:
        CommandError: The file is broken or cannot be written, or another server has the name; nothing was changed.
    """
    from toolweave.cli._serve.json_edit import read_object, with_member  # --help imports this module

    path, section = file_of(editor, home=home), section_of(editor)
    text, encoding = _read(path)
    servers = read_object(text, str(path)).get(section, {})
    there: Any = cast("dict[str, Any]", servers).get(name) if isinstance(servers, dict) else None
    if there is not None and not _is_ours(there):
        hint = "give this one another name with --name, or take that one out"
        raise CommandError(f"{path}: there is another server {name!r}", hint=hint)
    made = with_member(text, (section, name), _merged(there or {}, entry), str(path))
    if made == text:
        return Installed(path=path, changed=False)
    try:
        backup = _backed_up(path)
        _replace(path, made.encode(encoding))
    except OSError as error:
        raise CommandError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    return Installed(path=path, changed=True, backup=backup)


def file_of(editor: EditorSource, *, home: Path | None = None) -> Path:
    """Return the editor's file of servers, whether it exists or not; a link is followed, so that it stays one."""
    from toolweave.config import editor_config_files  # as above

    return next(file.path for file in editor_config_files(home=home) if file.kind == _KINDS[editor]).resolve()


def section_of(editor: EditorSource) -> str:
    """Return the member of the editor's file that holds the servers."""
    return "servers" if editor is EditorSource.VSCODE else "mcpServers"


def _is_ours(entry: Any) -> bool:
    args = cast("dict[str, Any]", entry).get("args") if isinstance(entry, dict) else None
    return isinstance(args, list) and cast("list[Any]", args)[: len(_COMMAND)] == _COMMAND


def _merged(there: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**there, **entry}
    env = there.get("env")
    if isinstance(env, dict):
        merged["env"] = {**cast("dict[str, Any]", env), **entry.get("env", {})}
    return merged


def _read(path: Path) -> tuple[str, str]:
    try:
        data = path.read_bytes()
        encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
        return data.decode(encoding), encoding
    except FileNotFoundError:
        return "", "utf-8"
    except UnicodeDecodeError:
        raise CommandError(f"{path}: the text is not UTF-8") from None
    except OSError as error:
        raise CommandError(f"{path}: the file cannot be read: {error.strerror or error}") from None


def _backed_up(path: Path) -> Path | None:
    """Copy the file to a free name beside it, and return the copy's path."""
    if not path.exists():
        return None
    number = 1
    while (backup := path.with_name(f"{path.name}.bak{number}")).exists():
        number += 1
    shutil.copy2(path, backup)
    return backup


def _replace(path: Path, data: bytes) -> None:
    """Write the file atomically; a new one is readable by its owner alone, as entries may hold secrets."""
    from toolweave.config._trust import write_privately  # as above

    path.parent.mkdir(parents=True, exist_ok=True)
    write_privately(path, data, mode=stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600)
