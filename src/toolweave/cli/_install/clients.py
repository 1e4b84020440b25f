"""The programs whose configs are written, as they are named on the command line; their forms are in `install`."""

from __future__ import annotations

from enum import StrEnum


class InstallClient(StrEnum):
    """The programs whose configs are written."""

    CLAUDE = "claude"
    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    VSCODE = "vscode"
    CODEX = "codex"
    GEMINI = "gemini"
    WINDSURF = "windsurf"
    CLINE = "cline"
    ZED = "zed"
    OPENCODE = "opencode"
