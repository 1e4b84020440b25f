"""`toolweave init`: a first mcp.json, new or taken from an editor."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from toolweave._json_types import Json
from toolweave.cli._command import Command, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._render.text import safe_json
from toolweave.cli._screen import note

_EXAMPLES = """
toolweave init
toolweave init --from cursor
toolweave init servers.json --force
"""

_STARTER: Json = {
    "mcpServers": {
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]},
    }
}


class EditorSource(StrEnum):
    """Editors that servers are taken from."""

    CLAUDE = "claude"
    CURSOR = "cursor"
    VSCODE = "vscode"


def init(
    file: Annotated[Path, Positional("FILE", help="The file to write.")] = Path("mcp.json"),
    editor: Annotated[EditorSource | None, Option("--from", help="Take the servers of this editor.")] = None,
    force: Annotated[bool, Option("--force", help="Replace a file that exists.")] = False,
) -> ExitCode:
    """Write a first config file.

    It has two example servers, or the servers of an editor. The file is trusted.
    """
    if file.exists() and not force:
        raise CommandError(f"{str(file)!r} exists", hint="--force replaces it; or name another file")
    content = _STARTER if editor is None else _taken_from(editor)
    from toolweave.cli._trust import write_trusted  # imports are late: --help imports this module

    write_trusted(file, safe_json(content) + "\n")
    names = ", ".join(content["mcpServers"])
    note(f"wrote {file} with {names}; next: toolweave tools" + ("" if file.name == "mcp.json" else f" --config {file}"))
    return ExitCode.OK


_KINDS = {
    EditorSource.CLAUDE: ("claude-desktop", "claude-code"),
    EditorSource.CURSOR: ("cursor",),
    EditorSource.VSCODE: ("vscode",),
}


def _taken_from(editor: EditorSource) -> Json:
    """Return the servers of an editor's files unchanged: variables and inputs are not expanded."""
    from toolweave.config import discover_config_files  # imports are late: --help imports this module
    from toolweave.config._documents import read_document
    from toolweave.config._locate import find_servers

    servers: Json = {}
    inputs: Json = {}
    paths = [file.path for file in discover_config_files() if file.kind in _KINDS[editor]]
    for path in paths:
        found = find_servers(read_document(path).value)
        for item in found.items:
            servers.setdefault(item.name, item.value)
        inputs = {**found.inputs, **inputs}
    if not servers:
        looked = ", ".join(map(str, paths)) or "it has no config file"
        raise CommandError(
            f"no servers of {editor.value} were found ({looked})", hint="toolweave init writes two example servers"
        )
    return {"mcpServers": servers, **({"inputs": list(inputs.values())} if inputs else {})}


COMMAND = Command(init, examples=_EXAMPLES)
