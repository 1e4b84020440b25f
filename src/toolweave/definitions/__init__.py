"""Pins, scans and rules for the definitions of a server, applied before a model reads them.

Pins show that a trusted definition has changed, scans find texts that mislead, rules change names, descriptions and
arguments. Depends on definitions, calls and results, not on a connection or a terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.config import ArgumentRule, ShapeRule
    from toolweave.definitions._definition import OfferedDefinitions, PinnedPart
    from toolweave.definitions._drift import PinChange, allow, drift
    from toolweave.definitions._enforcement import PinMode, PinVerdict
    from toolweave.definitions._pinned_toolset import PinnedToolset, pinned
    from toolweave.definitions._pins import (
        PinnedDefinition,
        PinnedServer,
        PinnedTool,
        Pins,
        ServerIdentity,
        lock_path,
        tool_hash,
    )
    from toolweave.definitions._scan import Finding, FindingKind, scan_result, scan_tool, scan_tools
    from toolweave.definitions._shaped_toolset import ShapedToolset, shaped
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".config._shaping": ("ArgumentRule", "ShapeRule"),
            "_definition": ("OfferedDefinitions", "PinnedPart"),
            "_drift": ("PinChange", "allow", "drift"),
            "_enforcement": ("PinMode", "PinVerdict"),
            "_pinned_toolset": ("PinnedToolset", "pinned"),
            "_pins": (
                "PinnedDefinition",
                "PinnedServer",
                "PinnedTool",
                "Pins",
                "ServerIdentity",
                "lock_path",
                "tool_hash",
            ),
            "_scan": ("Finding", "FindingKind", "scan_result", "scan_tool", "scan_tools"),
            "_shaped_toolset": ("ShapedToolset", "shaped"),
        },
    )

__all__ = [
    "ArgumentRule",
    "Finding",
    "FindingKind",
    "OfferedDefinitions",
    "PinChange",
    "PinMode",
    "PinVerdict",
    "PinnedDefinition",
    "PinnedPart",
    "PinnedServer",
    "PinnedTool",
    "PinnedToolset",
    "Pins",
    "ServerIdentity",
    "ShapeRule",
    "ShapedToolset",
    "allow",
    "drift",
    "lock_path",
    "pinned",
    "scan_result",
    "scan_tool",
    "scan_tools",
    "shaped",
    "tool_hash",
]
