"""Blocking versions of the main functions and classes, for scripts, notebooks, Django views and threads.

Everything runs in one event loop in a separate thread (`toolweave.tools._portal`); a call waits in the thread that
makes it, and Ctrl-C cancels the call. Open connections are closed when the interpreter exits. There is no other
behaviour: every function and method is the async one of the same name, with its arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.sync._agents import Agent, SyncRun, generate, stream
    from toolweave.sync._servers import (
        SyncConnection,
        SyncHub,
        SyncTool,
        SyncToolList,
        SyncToolset,
        connect_mcp,
        connect_mcp_servers,
    )
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_agents": (
                "Agent",
                "SyncRun",
                "generate",
                "stream",
            ),
            "_servers": (
                "SyncConnection",
                "SyncHub",
                "SyncTool",
                "SyncToolList",
                "SyncToolset",
                "connect_mcp",
                "connect_mcp_servers",
            ),
        },
    )

__all__ = [
    "Agent",
    "SyncConnection",
    "SyncHub",
    "SyncRun",
    "SyncTool",
    "SyncToolList",
    "SyncToolset",
    "connect_mcp",
    "connect_mcp_servers",
    "generate",
    "stream",
]
