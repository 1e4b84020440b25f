"""Tools as an MCP server: any `Toolset` in every protocol revision, over stdio, HTTP and in process.

Independent of upstream servers and of models: a connection, a hub and an agent are toolsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.protocol.apps import AppCsp
    from toolweave.serve._auth.api_keys import ApiKey, ApiKeys
    from toolweave.serve._auth.dpop import Dpop
    from toolweave.serve._auth.introspection import IntrospectionAuth
    from toolweave.serve._auth.jwt_auth import JwtAuth
    from toolweave.serve._auth.scopes import ScopeRules
    from toolweave.serve._auth.token_auth import ApiKeyAuth, BearerAuth, TokenAuth
    from toolweave.serve._endpoint import Endpoint
    from toolweave.serve._folder.served_folder import ServedFolder, folder
    from toolweave.serve._http.app import HttpApp
    from toolweave.serve._http.events import EventStore, MemoryEventStore
    from toolweave.serve._http.limits import HttpLimits
    from toolweave.serve._http.options import HttpOptions
    from toolweave.serve._mounts import MountedServer
    from toolweave.serve._oauth_server.clients import ClientRules, OAuthClient
    from toolweave.serve._oauth_server.server import OAuthServer
    from toolweave.serve._oauth_server.upstream import Upstream
    from toolweave.serve._offers.apps import AppPage, app
    from toolweave.serve._offers.completions import Completed, Completions
    from toolweave.serve._offers.conversion import PromptTurn
    from toolweave.serve._offers.files import directory
    from toolweave.serve._offers.prompts import FunctionPrompt, Prompts, PromptsChanged, PromptSource, prompt
    from toolweave.serve._offers.resources import (
        FunctionResource,
        Resources,
        ResourcesChanged,
        ResourceSource,
        resource,
    )
    from toolweave.serve._offers.skill_folder import SkillFolder, skills
    from toolweave.serve._offers.skills import FunctionSkill, SkillSource, skill
    from toolweave.serve._offers.string_handlers import StringHandler
    from toolweave.serve._offers.templates import Template
    from toolweave.serve._server import AgentLike, McpServer, create_mcp_server
    from toolweave.serve._sessions import SessionRules
    from toolweave.serve._tasks import TaskRule
    from toolweave.serve.request import (
        CallNext,
        Client,
        Identity,
        MayUse,
        Middleware,
        Offered,
        OfferLookup,
        ReplyChannel,
        Request,
    )
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".protocol.apps": ("AppCsp",),
            "_auth.api_keys": ("ApiKey", "ApiKeys"),
            "_auth.dpop": ("Dpop",),
            "_auth.introspection": ("IntrospectionAuth",),
            "_auth.jwt_auth": ("JwtAuth",),
            "_auth.scopes": ("ScopeRules",),
            "_auth.token_auth": (
                "ApiKeyAuth",
                "BearerAuth",
                "TokenAuth",
            ),
            "_endpoint": ("Endpoint",),
            "_folder.served_folder": ("ServedFolder", "folder"),
            "_http.app": ("HttpApp",),
            "_http.events": (
                "EventStore",
                "MemoryEventStore",
            ),
            "_http.limits": ("HttpLimits",),
            "_http.options": ("HttpOptions",),
            "_mounts": ("MountedServer",),
            "_oauth_server.clients": (
                "ClientRules",
                "OAuthClient",
            ),
            "_oauth_server.server": ("OAuthServer",),
            "_oauth_server.upstream": ("Upstream",),
            "_offers.apps": ("AppPage", "app"),
            "_offers.completions": (
                "Completed",
                "Completions",
            ),
            "_offers.conversion": ("PromptTurn",),
            "_offers.files": ("directory",),
            "_offers.prompts": (
                "FunctionPrompt",
                "PromptSource",
                "Prompts",
                "PromptsChanged",
                "prompt",
            ),
            "_offers.resources": (
                "FunctionResource",
                "ResourceSource",
                "Resources",
                "ResourcesChanged",
                "resource",
            ),
            "_offers.skill_folder": ("SkillFolder", "skills"),
            "_offers.skills": ("FunctionSkill", "SkillSource", "skill"),
            "_offers.string_handlers": ("StringHandler",),
            "_offers.templates": ("Template",),
            "request": (
                "CallNext",
                "Client",
                "Identity",
                "MayUse",
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
    "Completions",
    "Dpop",
    "Endpoint",
    "EventStore",
    "FunctionPrompt",
    "FunctionResource",
    "FunctionSkill",
    "HttpApp",
    "HttpLimits",
    "HttpOptions",
    "Identity",
    "IntrospectionAuth",
    "JwtAuth",
    "MayUse",
    "McpServer",
    "MemoryEventStore",
    "Middleware",
    "MountedServer",
    "OAuthClient",
    "OAuthServer",
    "OfferLookup",
    "Offered",
    "PromptSource",
    "PromptTurn",
    "Prompts",
    "PromptsChanged",
    "ReplyChannel",
    "Request",
    "ResourceSource",
    "Resources",
    "ResourcesChanged",
    "ScopeRules",
    "ServedFolder",
    "SessionRules",
    "SkillFolder",
    "SkillSource",
    "StringHandler",
    "TaskRule",
    "Template",
    "TokenAuth",
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
