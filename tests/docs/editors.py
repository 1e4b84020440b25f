"""The sections of docs/editors.md: one for each client, with the file that our commands really write for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.docs.pages import SNIPPETS
from toolweave.config import Secret, editor_config_files
from toolweave.install import CLIENT_FORMATS, ClientFormat, SecretWord, ServerLaunch

__all__ = ["client_sections", "client_table"]

PLATFORMS = {"Linux": "linux", "macOS": "darwin", "Windows": "win32"}
REMOTE = ServerLaunch(transport="http", url=("https://x.example/mcp",))
SECRET = ServerLaunch(command="x", env={"KEY": (SecretWord(name="KEY", value=Secret("x")),)})


class Shown(NamedTuple):
    """What only the client itself knows."""

    title: str
    check: str


CLIENTS = {
    "claude": Shown("Claude Desktop", "quit it and start it again; the server is listed under Settings, Developer"),
    "claude-code": Shown("Claude Code", "`claude mcp list`, or `/mcp` in a session"),
    "cursor": Shown("Cursor", "Settings, MCP: the server with its tools"),
    "vscode": Shown("VS Code", "the command `MCP: List Servers`, which also starts it"),
    "codex": Shown("Codex", "`codex mcp list`, or `/mcp` in a session"),
    "gemini": Shown("Gemini CLI", "`gemini mcp list`, or `/mcp` in a session"),
    "windsurf": Shown("Windsurf", "the MCP servers in the settings of Cascade"),
    "cline": Shown("Cline", "its MCP Servers view, among those that are installed"),
    "zed": Shown("Zed", "the settings of the agent panel"),
    "opencode": Shown("opencode", "`opencode mcp list`"),
}


def client_table() -> Iterator[str]:
    """Yield the table of the clients with what each can by itself."""
    yield "| `--client`, `--install` | program | transports | secrets |\n|---|---|---|---|\n"
    for name, form in _forms():
        over = ["stdio", *(kind for kind, url in zip(("HTTP", "SSE"), form.urls, strict=True) if url)]
        if form.asks:
            secret = "the program asks for them"
        elif form.reason_for_relay(SECRET):
            secret = "in a private file; the program starts the server through Toolweave"
        else:
            secret = "in a private file that the entry names"
        yield f"| `{name}` | [{CLIENTS[name].title}](#{_anchor(name)}) | {', '.join(over)} | {secret} |\n"


def client_sections() -> Iterator[str]:
    """Yield a section for each client."""
    for name, form in _forms():
        yield f"\n## {CLIENTS[name].title}\n\n"
        places = {system: str(_file(form, platform, Path("~"))) for system, platform in PLATFORMS.items()}
        yield f"File: {_places(places)}. To check: {CLIENTS[name].check}.\n\n"
        path, text = _written(form, f"serve serve_notes.py --install {name}")
        yield f"```{'toml' if path.suffix == '.toml' else 'jsonc'}\n{text}\n```\n"


def _places(places: Mapping[str, str]) -> str:
    """Return the file of each system, or the one of them all."""
    if len(set(places.values())) == 1:
        return f"`{places['Linux']}`"
    return ", ".join(f"`{place}` ({system})" for system, place in places.items())


def _forms() -> Iterator[tuple[str, ClientFormat]]:
    assert CLIENTS.keys() == CLIENT_FORMATS.keys(), "say of a new client what it is called, and where it shows servers"
    yield from CLIENT_FORMATS.items()


def _anchor(name: str) -> str:
    return CLIENTS[name].title.lower().replace(" ", "-")


def _file(form: ClientFormat, platform: str, home: Path) -> Path:
    return next(one.path for one in editor_config_files(home=home, platform=platform) if one.kind == form.kind)


def _written(form: ClientFormat, command: str) -> tuple[Path, str]:
    """Return the client's file in an empty home after a command, with paths as a reader would have them."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        shutil.copy(SNIPPETS / "serve_notes.py", home)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TOOLWEAVE_"))}
        # An entry for a program of a virtual environment gets its full path and PATH: the page must not depend on ours.
        path_of_system = os.defpath
        env = {
            **kept,
            "HOME": str(home),
            "APPDATA": str(home / "AppData" / "Roaming"),
            "PATH": path_of_system,
        }
        words = [sys.executable, "-m", "toolweave", *command.split()]
        subprocess.run(words, cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        path = _file(form, sys.platform, home)
        text = path.read_text("utf-8").strip()
    return path, text.replace(sys.executable, "/home/ada/.venv/bin/python").replace(str(home), "/home/ada")
