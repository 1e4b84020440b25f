"""Pins of tool definitions, and scans of what servers say: what was trusted does not change without being seen.

Knows definitions and results; no connection, no terminal, nobody to ask.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.trust._drift import PinChange, drift
    from toolweave.trust._enforcement import PinMode, PinVerdict
    from toolweave.trust._pins import PinnedServer, PinnedTool, Pins, ServerIdentity, lock_path, tool_hash
    from toolweave.trust._scan import Finding, FindingKind, scan_result, scan_tool, scan_tools
    from toolweave.trust._toolset import PinnedToolset, pinned

__all__ = [
    "Finding",
    "FindingKind",
    "PinChange",
    "PinMode",
    "PinVerdict",
    "PinnedServer",
    "PinnedTool",
    "PinnedToolset",
    "Pins",
    "ServerIdentity",
    "drift",
    "lock_path",
    "pinned",
    "scan_result",
    "scan_tool",
    "scan_tools",
    "tool_hash",
]

_HOMES = {
    "Finding": "_scan",
    "FindingKind": "_scan",
    "PinChange": "_drift",
    "PinMode": "_enforcement",
    "PinVerdict": "_enforcement",
    "PinnedServer": "_pins",
    "PinnedTool": "_pins",
    "PinnedToolset": "_toolset",
    "Pins": "_pins",
    "ServerIdentity": "_pins",
    "drift": "_drift",
    "lock_path": "_pins",
    "pinned": "_toolset",
    "scan_result": "_scan",
    "scan_tool": "_scan",
    "scan_tools": "_scan",
    "tool_hash": "_pins",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
