"""OAuth 2.1 as an MCP client needs it: discovery, registration, grants, proofs, and where tokens are kept.

Depends on HTTP and settings, not on MCP messages, connections or servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.config import OAuth
    from toolweave.oauth._auth_challenge import AuthChallenge
    from toolweave.oauth._browser import BrowserUserAgent
    from toolweave.oauth._defaults import default_token_store, default_user_agent
    from toolweave.oauth._loopback import LoopbackListener
    from toolweave.oauth._memory_store import MemoryTokenStore
    from toolweave.oauth._records import ClientRegistration, TokenKey, TokenRecord, TokenStore
    from toolweave.oauth._sign_in import SignedOut, sign_in, sign_out
    from toolweave.oauth._sign_in_status import SignInStatus
    from toolweave.oauth._stored_sign_in import StoredSignIn
    from toolweave.oauth._stores.default import MachineTokenStore
    from toolweave.oauth._stores.file_store import FileTokenStore
    from toolweave.oauth._stores.keyring_store import KeyringTokenStore
    from toolweave.oauth._stores.shared_store import SharedTokenStore
    from toolweave.oauth._token_source import TokenSource, token_source
    from toolweave.oauth._user_agent import AuthorizationResponse, DevicePrompt, RedirectListener, UserAgent
    from toolweave.oauth.metadata import resource_of
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            ".config": ("OAuth",),
            "_auth_challenge": ("AuthChallenge",),
            "_browser": ("BrowserUserAgent",),
            "_defaults": ("default_token_store", "default_user_agent"),
            "_loopback": ("LoopbackListener",),
            "_memory_store": ("MemoryTokenStore",),
            "metadata": ("resource_of",),
            "_records": ("ClientRegistration", "TokenKey", "TokenRecord", "TokenStore"),
            "_sign_in": ("SignedOut", "sign_in", "sign_out"),
            "_sign_in_status": ("SignInStatus",),
            "_stored_sign_in": ("StoredSignIn",),
            "_stores.default": ("MachineTokenStore",),
            "_stores.file_store": ("FileTokenStore",),
            "_stores.keyring_store": ("KeyringTokenStore",),
            "_stores.shared_store": ("SharedTokenStore",),
            "_token_source": ("TokenSource", "token_source"),
            "_user_agent": ("AuthorizationResponse", "DevicePrompt", "RedirectListener", "UserAgent"),
        },
    )

__all__ = [
    "AuthChallenge",
    "AuthorizationResponse",
    "BrowserUserAgent",
    "ClientRegistration",
    "DevicePrompt",
    "FileTokenStore",
    "KeyringTokenStore",
    "LoopbackListener",
    "MachineTokenStore",
    "MemoryTokenStore",
    "OAuth",
    "RedirectListener",
    "SharedTokenStore",
    "SignInStatus",
    "SignedOut",
    "StoredSignIn",
    "TokenKey",
    "TokenRecord",
    "TokenSource",
    "TokenStore",
    "UserAgent",
    "default_token_store",
    "default_user_agent",
    "resource_of",
    "sign_in",
    "sign_out",
    "token_source",
]
