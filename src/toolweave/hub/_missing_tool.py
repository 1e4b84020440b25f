"""The error for a tool that a hub does not have: server failed, still connecting, or unknown name. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from toolweave.errors import ErrorKind, ToolError
from toolweave.tools._names import aliases, unknown_tool

__all__ = ["missing_tool"]


def missing_tool(
    name: str,
    *,
    known: Iterable[str],
    starting: Collection[str],
    errors: Mapping[str, Exception],
    prefixes: Mapping[str, str],
) -> ToolError:
    """Return the error for a name that no tool has.

    Args:
        name: The name that was called.
        known: The names there are.
        starting: The servers that are still connecting.
        errors: The servers that failed, and why.
        prefixes: The prefix of each server's tool names.
    """
    for server in sorted({*starting, *errors}, key=len, reverse=True):
        prefix = prefixes.get(server, f"{server}_")
        if not name.startswith(aliases(server, "")) and not (prefix and name.startswith(prefix)):
            continue
        if server in starting:
            text = f"MCP error: server {server!r} is still connecting"
            return ToolError(text, kind=ErrorKind.NOT_SENT, retryable=True)
        return ToolError(f"MCP error: {errors[server]}", kind=getattr(errors[server], "kind", ErrorKind.NOT_FOUND))
    return ToolError(unknown_tool(name, known), kind=ErrorKind.NOT_FOUND)
