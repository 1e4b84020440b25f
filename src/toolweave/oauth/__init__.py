"""OAuth 2.1 as an MCP client needs it: discovery, registration, grants, and where tokens are kept.

Knows HTTP and settings; refuses to know MCP messages, connections and servers.
"""

from __future__ import annotations

from toolweave.oauth._records import ClientRegistration, TokenKey, TokenRecord, TokenStore
from toolweave.oauth._user_agent import AuthorizationResponse, DevicePrompt, RedirectListener, UserAgent

__all__ = [
    "AuthorizationResponse",
    "ClientRegistration",
    "DevicePrompt",
    "RedirectListener",
    "TokenKey",
    "TokenRecord",
    "TokenStore",
    "UserAgent",
]
