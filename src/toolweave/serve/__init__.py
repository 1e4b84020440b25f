"""Tools as an MCP server: any `Toolset` in every protocol revision, over stdio, HTTP and in process.

Independent of upstream servers and of models: a connection, a hub and an agent are toolsets.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolweave.serve.http.auth import BearerAuth, Identity, JwtAuth
    from toolweave.serve.http.replay import EventStore, MemoryEventStore
    from toolweave.serve.offers.completions import Completed
    from toolweave.serve.offers.conversion import PromptTurn
    from toolweave.serve.offers.files import directory
    from toolweave.serve.offers.prompts import FunctionPrompt, PromptsChanged, PromptSource, prompt
    from toolweave.serve.offers.resources import FunctionResource, ResourcesChanged, ResourceSource, resource
    from toolweave.serve.server import AgentLike, McpServer, create_mcp_server
    from toolweave.serve.tasks import TaskRule

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
    "AgentLike": "server",
    "BearerAuth": "http.auth",
    "Completed": "offers.completions",
    "EventStore": "http.replay",
    "Identity": "http.auth",
    "JwtAuth": "http.auth",
    "McpServer": "server",
    "MemoryEventStore": "http.replay",
    "PromptTurn": "offers.conversion",
    "FunctionPrompt": "offers.prompts",
    "PromptSource": "offers.prompts",
    "PromptsChanged": "offers.prompts",
    "FunctionResource": "offers.resources",
    "ResourceSource": "offers.resources",
    "ResourcesChanged": "offers.resources",
    "TaskRule": "tasks",
    "create_mcp_server": "server",
    "directory": "offers.files",
    "prompt": "offers.prompts",
    "resource": "offers.resources",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
