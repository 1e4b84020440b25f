"""Tools as an MCP server: any `Toolset` in every protocol revision, over stdio, HTTP and in process.

Independent of upstream servers and of models: a connection, a hub and an agent are toolsets.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.serve._http.auth import BearerAuth, Identity, JwtAuth
    from toolweave.serve._http.replay import EventStore, MemoryEventStore
    from toolweave.serve._offers.completions import Completed
    from toolweave.serve._offers.conversion import PromptTurn
    from toolweave.serve._offers.files import directory
    from toolweave.serve._offers.prompts import FunctionPrompt, PromptsChanged, PromptSource, prompt
    from toolweave.serve._offers.resources import FunctionResource, ResourcesChanged, ResourceSource, resource
    from toolweave.serve._server import AgentLike, McpServer, create_mcp_server
    from toolweave.serve._tasks import TaskRule

__all__ = [
    "AgentLike",
    "BearerAuth",
    "Completed",
    "EventStore",
    "FunctionPrompt",
    "FunctionResource",
    "Identity",
    "JwtAuth",
    "McpServer",
    "MemoryEventStore",
    "PromptSource",
    "PromptTurn",
    "PromptsChanged",
    "ResourceSource",
    "ResourcesChanged",
    "TaskRule",
    "create_mcp_server",
    "directory",
    "prompt",
    "resource",
]

_HOMES = {
    "AgentLike": "_server",
    "BearerAuth": "_http.auth",
    "Completed": "_offers.completions",
    "EventStore": "_http.replay",
    "Identity": "_http.auth",
    "JwtAuth": "_http.auth",
    "McpServer": "_server",
    "MemoryEventStore": "_http.replay",
    "PromptTurn": "_offers.conversion",
    "FunctionPrompt": "_offers.prompts",
    "PromptSource": "_offers.prompts",
    "PromptsChanged": "_offers.prompts",
    "FunctionResource": "_offers.resources",
    "ResourceSource": "_offers.resources",
    "ResourcesChanged": "_offers.resources",
    "TaskRule": "_tasks",
    "create_mcp_server": "_server",
    "directory": "_offers.files",
    "prompt": "_offers.prompts",
    "resource": "_offers.resources",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
