"""Shaping: rules that change the definitions of tools, and arguments that arrive as the tools take them.

Knows definitions and calls; no connection, no server, no terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.config._shaping import ArgumentRule, ShapeRule
    from toolweave.shaping._toolset import ShapedToolset, shaped
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".config._shaping": ("ArgumentRule", "ShapeRule"),
            "_toolset": ("ShapedToolset", "shaped"),
        },
    )

__all__ = ["ArgumentRule", "ShapeRule", "ShapedToolset", "shaped"]
