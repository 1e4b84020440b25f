"""Where the editors of a person on Linux keep their servers, below the home folder."""

from __future__ import annotations

__all__ = ["EDITOR_FILES"]

EDITOR_FILES = {
    "claude": ".config/Claude/claude_desktop_config.json",
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "cline": ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
    "zed": ".config/zed/settings.json",
    "opencode": ".config/opencode/opencode.json",
}
