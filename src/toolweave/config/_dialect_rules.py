"""Differences between the config dialects of editors: units, variables, lists, and entries that are not servers.

One table and a few pure functions; the keys that all dialects share are read by `read_entry`.

============  ===========================================================================================
generic       a bare `timeout` is seconds for everything; 1000 or more is milliseconds
gemini        `timeout` is milliseconds for calls; `$VAR` is a variable; `mcp.allowed`, `mcp.excluded`
opencode      `timeout` is milliseconds: a number for start and lists, or `startup`, `request` (v2), `catalog`,
              `execution`; `{env:VAR}`, `{file:PATH}`
codex         `startup_timeout_sec`, `startup_timeout_ms`, `tool_timeout_sec`; `env_vars` of names or objects
cline         `timeout` is seconds for calls, up to an hour; Roo Code and Kilo Code share it
crush         `timeout` is seconds for the start; `$VAR` is a variable
goose         `extensions`; `timeout` is seconds for everything; built-in extensions are not servers
continue      `requestOptions.headers`, `apiKey`, `connectionTimeout`; `${{ secrets.X }}`; `uses: BLOCK`
windsurf      `${file:PATH}`
zed           `source: extension` is started by an extension
============  ===========================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from toolweave._json_types import JsonObject, as_object, object_or_empty
from toolweave._value import Value
from toolweave.config._value_readers import read_names

Dialect = Literal["generic", "gemini", "opencode", "codex", "cline", "crush", "goose", "continue", "windsurf", "zed"]
"""The dialect whose rules apply where dialects contradict each other."""


class DialectRules(Value, frozen=True, kw_only=True):
    """The rules of one dialect where it differs from the generic one.

    Attributes:
        timeout: The bounds that a bare `timeout` sets; None sets all, and guesses the unit.
        unit: Seconds in one unit of a bare `timeout`.
        rewrite: Turns the owner's variables into ours (`${VAR}`, `${secret:VAR}`, `${file:PATH}`).
        dollar: Whether `$VAR` is a variable: `error` when one is unset, `keep` leaves it as it is, with a remark.
    """

    timeout: tuple[str, ...] | None = None
    unit: float = 1.0
    rewrite: Callable[[str], str] | None = None
    dollar: Literal["error", "keep"] | None = None


def _from_opencode(text: str) -> str:
    return re.sub(r"\{file:([^{}]+)\}", r"${file:\1}", re.sub(r"\{env:(\w+)\}", r"${\1:-}", text))


def _from_continue(text: str) -> str:
    text = re.sub(r"\$\{\{\s*secrets\.([\w-]+)\s*\}\}", r"${secret:\1}", text)
    return re.sub(r"\$\{\{\s*inputs\.([\w-]+)\s*\}\}", r"${input:\1}", text)


_RULES: dict[Dialect, DialectRules] = {
    "gemini": DialectRules(timeout=("call",), unit=0.001, dollar="keep"),
    "opencode": DialectRules(timeout=("connect", "list"), unit=0.001, rewrite=_from_opencode),
    "cline": DialectRules(timeout=("call",)),
    "crush": DialectRules(timeout=("connect", "list"), dollar="error"),
    "goose": DialectRules(timeout=("connect", "list", "call", "read"), dollar="keep"),
    "continue": DialectRules(rewrite=_from_continue),
}
_BY_NAME: dict[str, Dialect] = {
    "cline_mcp_settings.json": "cline",
    "mcp_settings.json": "cline",  # Roo Code and Kilo Code
    "crush.json": "crush",
    ".crush.json": "crush",
    "opencode.json": "opencode",
    "opencode.jsonc": "opencode",
}
_BY_FOLDER: dict[str, Dialect] = {
    ".gemini": "gemini",
    ".codex": "codex",
    ".opencode": "opencode",
    ".roo": "cline",
    ".kilocode": "cline",
    "goose": "goose",
    ".continue": "continue",
    "continue": "continue",
    "windsurf": "windsurf",
    ".zed": "zed",
    "zed": "zed",
    "Zed": "zed",
}
_GOOSE_SERVERS = ("stdio", "sse", "streamable_http")
_GOOSE_PARTS = ("builtin", "platform", "frontend", "inline_python")
_STARTING_KEYS = frozenset({"command", "url", "cmd", "uri", "httpUrl", "serverUrl", "openapi"})


def rules_of(dialect: Dialect) -> DialectRules:
    """Return the rules of a dialect."""
    return _RULES.get(dialect, DialectRules())


def dialect_of(path: Path) -> Dialect:
    """Return the dialect of a file, by its name and its folder."""
    if path.parent.name == "mcpServers":
        folders = [path.parent.name, path.parent.parent.name]
    else:
        folders = [path.parent.name]
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    for name in folders:
        if name in _BY_FOLDER:
            return _BY_FOLDER[name]
    return "generic"


def type_of_mcp_section(entry: JsonObject) -> Dialect:
    """Return the dialect of a server right under `mcp`: opencode, or Crush, which has `stdio`."""
    if entry.get("type") in ("stdio", "http", "sse"):
        return "crush"
    if isinstance(entry.get("command"), str):  # a list in opencode
        return "crush"
    return "opencode"


def is_goose(entry: JsonObject) -> bool:
    """Return whether an entry is one of Goose's extensions."""
    extension = as_object(entry.get("config", entry))
    if extension is None:
        extension = entry
    kind = extension.get("type")
    if kind in _GOOSE_SERVERS:
        return "cmd" in extension or "uri" in extension
    return kind in _GOOSE_PARTS


def reason_not_to_start(entry: JsonObject, dialect: Dialect) -> str | None:
    """Return the reason why an entry names no MCP server that can be started, or None when it does."""
    if not _STARTING_KEYS.isdisjoint(entry):
        return None
    if dialect == "goose" and entry.get("type") in _GOOSE_PARTS:
        return f"it is a part of Goose itself (type {entry['type']}), not an MCP server"
    has_only_settings = dialect == "zed" and set(entry) <= {"settings", "enabled"}
    if has_only_settings or entry.get("source") == "extension":
        return "an extension of Zed starts it, and this file does not say how"
    if isinstance(entry.get("uses"), str):
        return f"it is defined elsewhere, in the block {entry['uses']!r} of Continue's hub"
    return None


def exclusion(document: JsonObject, project: str) -> Callable[[str], str | None]:
    """Return a function that maps a server's name to the reason why a list in its file excludes it, or to None.

    Gemini CLI: `mcp.allowed` and `mcp.excluded`, before them `allowMCPServers` and `excludeMCPServers`. Claude Code, in
    `~/.claude.json`: `projects.PROJECT.disabledMcpServers`.

    Raises:
        ConfigError: One of the lists is not a list of names.
    """
    mcp = object_or_empty(document.get("mcp"))
    ours = object_or_empty(object_or_empty(document.get("projects")).get(project))
    allowed = {"mcp.allowed": mcp.get("allowed"), "allowMCPServers": document.get("allowMCPServers")}
    excluded = {
        "mcp.excluded": mcp.get("excluded"),
        "excludeMCPServers": document.get("excludeMCPServers"),
        f"projects[{project!r}].disabledMcpServers": ours.get("disabledMcpServers"),
    }

    denials = {key: _comparable_names(names, key) for key, names in excluded.items()}
    # An empty list of allowed servers allows none. Only a missing one restricts nothing.
    permissions = {key: _comparable_names(names, key) for key, names in allowed.items() if names is not None}

    def reason(name: str) -> str | None:
        for key, names in denials.items():
            if comparable_name(name) in names:
                return f"{key!r} names it"
        for key, names in permissions.items():
            if comparable_name(name) not in names:
                return f"{key!r} does not name it"
        return None

    return reason


def comparable_name(name: str) -> str:
    """Return a server's name as Gemini CLI compares and stores names in its lists: without case and outer space.

    The lists of other programs are compared so, too: a denial rather holds for one server more.
    """
    return name.strip().lower()


def _comparable_names(names: object, key: str) -> frozenset[str]:
    return frozenset(map(comparable_name, read_names(names, key)))
