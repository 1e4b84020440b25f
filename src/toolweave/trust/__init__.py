"""Pins of the definitions of servers, and scans of their texts: a trusted definition does not change unseen.

Knows definitions and results; no connection and no terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.trust._definition import OfferedDefinitions, PinnedPart
    from toolweave.trust._drift import PinChange, allow, drift
    from toolweave.trust._enforcement import PinMode, PinVerdict
    from toolweave.trust._pins import (
        PinnedDefinition,
        PinnedServer,
        PinnedTool,
        Pins,
        ServerIdentity,
        lock_path,
        tool_hash,
    )
    from toolweave.trust._scan import Finding, FindingKind, scan_result, scan_tool, scan_tools
    from toolweave.trust._toolset import PinnedToolset, pinned
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_definition": ("OfferedDefinitions", "PinnedPart"),
            "_drift": ("PinChange", "allow", "drift"),
            "_enforcement": ("PinMode", "PinVerdict"),
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
            "_toolset": ("PinnedToolset", "pinned"),
        },
    )

__all__ = [
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
    "allow",
    "drift",
    "lock_path",
    "pinned",
    "scan_result",
    "scan_tool",
    "scan_tools",
    "tool_hash",
]
