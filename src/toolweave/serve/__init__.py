"""Tools as an MCP server: any `Toolset` in every protocol revision, over stdio, HTTP and in process.

Independent of upstream servers and of models: a connection, a hub and an agent are toolsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolweave._lazy import lazy_exports

if TYPE_CHECKING:
    from toolweave.protocol.apps import AppCsp
    from toolweave.serve._auth.api_keys import ApiKey, ApiKeys
    from toolweave.serve._auth.dpop import Dpop
    from toolweave.serve._auth.introspection import IntrospectionAuth
    from toolweave.serve._auth.jwt_auth import JwtAuth
    from toolweave.serve._auth.scopes import ScopeRules
    from toolweave.serve._auth.token_auth import ApiKeyAuth, BearerAuth
    from toolweave.serve._folder.served_folder import ServedFolder, folder
    from toolweave.serve._http.app import HttpLimits, HttpOptions
    from toolweave.serve._http.events import EventStore, MemoryEventStore
    from toolweave.serve._oauth_server.clients import ClientRules, OAuthClient
    from toolweave.serve._oauth_server.server import OAuthServer
    from toolweave.serve._oauth_server.upstream import Upstream
    from toolweave.serve._offers.apps import AppPage, app
    from toolweave.serve._offers.completions import Completed
    from toolweave.serve._offers.conversion import PromptTurn
    from toolweave.serve._offers.files import directory
    from toolweave.serve._offers.prompts import FunctionPrompt, PromptsChanged, PromptSource, prompt
    from toolweave.serve._offers.resources import FunctionResource, ResourcesChanged, ResourceSource, resource
    from toolweave.serve._offers.skill_folder import SkillFolder, skills
    from toolweave.serve._offers.skills import FunctionSkill, SkillSource, skill
    from toolweave.serve._request import (
        CallNext,
        Client,
        Identity,
        Middleware,
        Offered,
        OfferLookup,
        ReplyChannel,
        Request,
    )
    from toolweave.serve._server import AgentLike, McpServer, create_mcp_server
    from toolweave.serve._sessions import SessionRules
    from toolweave.serve._tasks import TaskRule

__all__ = [
    "AgentLike",
    "ApiKey",
    "ApiKeyAuth",
    "ApiKeys",
    "AppCsp",
    "AppPage",
    "BearerAuth",
    "CallNext",
    "Client",
    "ClientRules",
    "Completed",
    "Dpop",
    "EventStore",
    "FunctionPrompt",
    "FunctionResource",
    "FunctionSkill",
    "HttpLimits",
    "HttpOptions",
    "Identity",
    "IntrospectionAuth",
    "JwtAuth",
    "McpServer",
    "MemoryEventStore",
    "Middleware",
    "OAuthClient",
    "OAuthServer",
    "OfferLookup",
    "Offered",
    "PromptSource",
    "PromptTurn",
    "PromptsChanged",
    "ReplyChannel",
    "Request",
    "ResourceSource",
    "ResourcesChanged",
    "ScopeRules",
    "ServedFolder",
    "SessionRules",
    "SkillFolder",
    "SkillSource",
    "TaskRule",
    "Upstream",
    "app",
    "create_mcp_server",
    "directory",
    "folder",
    "prompt",
    "resource",
    "skill",
    "skills",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".protocol.apps": ("AppCsp",),
        "_auth.api_keys": ("ApiKey", "ApiKeys"),
        "_auth.dpop": ("Dpop",),
        "_auth.introspection": ("IntrospectionAuth",),
        "_auth.jwt_auth": ("JwtAuth",),
        "_auth.scopes": ("ScopeRules",),
        "_auth.token_auth": ("ApiKeyAuth", "BearerAuth"),
        "_folder.served_folder": ("ServedFolder", "folder"),
        "_http.app": (
            "HttpLimits",
            "HttpOptions",
        ),
        "_http.events": (
            "EventStore",
            "MemoryEventStore",
        ),
        "_oauth_server.clients": (
            "ClientRules",
            "OAuthClient",
        ),
        "_oauth_server.server": ("OAuthServer",),
        "_oauth_server.upstream": ("Upstream",),
        "_offers.apps": ("AppPage", "app"),
        "_offers.completions": ("Completed",),
        "_offers.conversion": ("PromptTurn",),
        "_offers.files": ("directory",),
        "_offers.prompts": (
            "FunctionPrompt",
            "PromptSource",
            "PromptsChanged",
            "prompt",
        ),
        "_offers.resources": (
            "FunctionResource",
            "ResourceSource",
            "ResourcesChanged",
            "resource",
        ),
        "_offers.skill_folder": ("SkillFolder", "skills"),
        "_offers.skills": ("FunctionSkill", "SkillSource", "skill"),
        "_request": (
            "CallNext",
            "Client",
            "Identity",
            "Middleware",
            "OfferLookup",
            "Offered",
            "ReplyChannel",
            "Request",
        ),
        "_server": (
            "AgentLike",
            "McpServer",
            "create_mcp_server",
        ),
        "_sessions": ("SessionRules",),
        "_tasks": ("TaskRule",),
    },
)
