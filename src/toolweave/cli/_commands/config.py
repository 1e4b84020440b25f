"""`toolweave config show`: the config files, the effect of each entry, and the reason for each ignored one."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolweave._json_types import Json, JsonObject
from toolweave.cli._command import Command, CommandGroup
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import ConfigOption, JsonOption, ServerOption
from toolweave.cli._screen import answer, answer_json, show

if TYPE_CHECKING:
    from toolweave.config import ConfigEntry, LoadedConfig

_HELP = "Show the config files as they are read."
_EXAMPLES = {
    "show": """
toolweave config show
toolweave config show --json
toolweave config show --config ~/.gemini/settings.json
"""
}

_MARKS = {"ready": "✓", "wrong": "✗", "disabled": "–", "excluded": "–", "skipped": "–", "shadowed": "–"}


def show_config(
    config: ConfigOption = (),
    server: ServerOption = (),
    as_json: JsonOption = False,
) -> ExitCode:
    """Show the config as it was read, server by server; nothing is started.

    For each file: its program, the rules by which it is read, and whether it is trusted. For each server: its
    transport, its command or URL with secrets masked, the names of its variables and headers, and the keys of its
    entry that were ignored. For an entry that does not start: why.
    """
    from toolweave.config import default_config, load_config, merge_loaded  # imports are late: --help imports this

    with _remarks_in_the_view():
        if config:
            loaded = merge_loaded(map(load_config, config))
        else:
            loaded = default_config()
    found = [] if config else _found(loaded)
    if not loaded.files and not found:
        raise CommandError("no config was found", hint="toolweave init writes a first mcp.json")
    entries = [entry for entry in loaded.entries if not server or entry.name in server]
    if server and not entries:
        known = ", ".join(dict.fromkeys(entry.name for entry in loaded.entries)) or "none"
        raise CommandError(f"no entry is named {', '.join(server)}; there are: {known}")
    files = [*_files(loaded), *found]
    rows = list(map(_entry, entries))
    if as_json:
        answer_json({"files": files, "servers": rows, "warnings": list(loaded.warnings)})
    else:
        _show(files, rows)
    return ExitCode.OK


@contextmanager
def _remarks_in_the_view() -> Generator[None]:
    """Suppress log messages of the config reader: the view shows their content."""
    logger = logging.getLogger("toolweave.config")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _files(loaded: LoadedConfig) -> list[Json]:
    from toolweave.config import TrustedFiles  # late, as above

    trusted = TrustedFiles()
    return [
        {
            "path": str(file.path),
            "kind": file.kind,
            "dialect": file.dialect,
            "used": True,
            "trusted": file.kind != "project" or trusted.trusts(file),
        }
        for file in loaded.files
    ]


def _found(loaded: LoadedConfig) -> list[Json]:
    """Return the config files that exist and are not used, because others have precedence."""
    from toolweave.config import discover_config_files  # late, as above
    from toolweave.config._dialect_rules import dialect_of

    return [
        {"path": str(file.path), "kind": file.kind, "dialect": dialect_of(file.path), "used": False, "trusted": None}
        for file in discover_config_files()
        if file.path not in loaded.paths
    ]


def _entry(entry: ConfigEntry) -> Json:
    from toolweave.config._summary import summary_of  # late, as above

    return {
        "name": entry.name,
        "status": entry.status,
        "reason": entry.reason or None,
        "file": str(entry.path) if entry.path else None,
        "line": entry.line,
        "dialect": entry.dialect,
        "server": summary_of(entry.config) if entry.config is not None else None,
        "ignored": list(entry.notes),
    }


def _show(files: list[Json], rows: list[Json]) -> None:
    from toolweave.cli._render.views import heading  # late, as above
    from toolweave.cli._screen import wrapped

    for file in files:
        if file["trusted"]:
            trust = "trusted"
        else:
            trust = "not trusted: asked about before its servers start"
        use = trust if file["used"] else "not used: others come first"
        if file["kind"] == file["dialect"]:
            kind = file["kind"]
        else:
            kind = f"{file['kind']}, read as {file['dialect']}"
        show(heading(file["path"], kind, use))
        for row in rows:
            if row["file"] == file["path"]:
                answer("\n".join(wrapped(line, indent=4) for line in _lines(row)))


def _lines(row: JsonObject) -> list[str]:
    place = f" (line {row['line']})" if row["line"] else ""
    server = row["server"]
    if server:
        what = f"{server['transport']}: {server['endpoint']}"
    else:
        what = f"{row['status']}: {row['reason']}"
    lines = [f"  {_MARKS[row['status']]} {row['name']}{place}  {what}"]
    if server:
        if row["status"] != "ready":
            lines.append(f"    {row['status']}: {row['reason']}")
        for name in ("cwd", "env", "headers", "auth", "timeout", "include", "exclude", "confirm", "sandbox"):
            value: str | list[str] | dict[str, float] | None = server[name]
            if isinstance(value, dict):
                value = [f"{bound} {seconds:g} s" for bound, seconds in value.items()]
            if value:
                if name == "confirm":
                    label = "calls that need approval"
                else:
                    label = name
                lines.append(f"    {label}: {', '.join(value) if isinstance(value, list) else value}")
    return lines + [f"    ignored or read in its own way: {note}" for note in row["ignored"]]


COMMAND = CommandGroup(_HELP, {"show": Command(show_config, examples=_EXAMPLES["show"])})
