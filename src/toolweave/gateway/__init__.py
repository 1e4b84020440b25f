"""Many MCP servers behind one endpoint: requests relayed between callers and upstreams of every era."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.gateway._admin_client import GatewayAdmin
    from toolweave.gateway._admin_token import keep_token, kept_token, new_token
    from toolweave.gateway._caller_auth import (
        CallerAuth,
        IntrospectionSettings,
        JwtSettings,
        OAuthServerSettings,
        ScopeSettings,
    )
    from toolweave.gateway._check import CheckedCaller, CheckedServer, GatewayCheck, check_gateway
    from toolweave.gateway._comparison import ClientComparison, LostFeature, compare_through
    from toolweave.gateway._config import GatewayConfig, VirtualServer, load_gateway_config
    from toolweave.gateway._gateway import Gateway, create_gateway
    from toolweave.gateway._manager import GatewayManager
    from toolweave.gateway._options import GatewayOptions
    from toolweave.gateway._reload import ConfigChange
    from toolweave.gateway._replicas import Replicas, shared_redis
    from toolweave.gateway._revoked_keys import KeyRevocation, KeyStatus
    from toolweave.gateway._status import GatewayStatus, Readiness, UpstreamStatus, VirtualStatus
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_admin_client": ("GatewayAdmin",),
            "_admin_token": (
                "keep_token",
                "kept_token",
                "new_token",
            ),
            "_caller_auth": (
                "CallerAuth",
                "IntrospectionSettings",
                "JwtSettings",
                "OAuthServerSettings",
                "ScopeSettings",
            ),
            "_check": (
                "CheckedCaller",
                "CheckedServer",
                "GatewayCheck",
                "check_gateway",
            ),
            "_comparison": (
                "ClientComparison",
                "LostFeature",
                "compare_through",
            ),
            "_config": (
                "GatewayConfig",
                "VirtualServer",
                "load_gateway_config",
            ),
            "_gateway": (
                "Gateway",
                "create_gateway",
            ),
            "_manager": ("GatewayManager",),
            "_options": ("GatewayOptions",),
            "_reload": ("ConfigChange",),
            "_replicas": (
                "Replicas",
                "shared_redis",
            ),
            "_revoked_keys": (
                "KeyRevocation",
                "KeyStatus",
            ),
            "_status": (
                "GatewayStatus",
                "Readiness",
                "UpstreamStatus",
                "VirtualStatus",
            ),
        },
    )

__all__ = [
    "CallerAuth",
    "CheckedCaller",
    "CheckedServer",
    "ClientComparison",
    "ConfigChange",
    "Gateway",
    "GatewayAdmin",
    "GatewayCheck",
    "GatewayConfig",
    "GatewayManager",
    "GatewayOptions",
    "GatewayStatus",
    "IntrospectionSettings",
    "JwtSettings",
    "KeyRevocation",
    "KeyStatus",
    "LostFeature",
    "OAuthServerSettings",
    "Readiness",
    "Replicas",
    "ScopeSettings",
    "UpstreamStatus",
    "VirtualServer",
    "VirtualStatus",
    "check_gateway",
    "compare_through",
    "create_gateway",
    "keep_token",
    "kept_token",
    "load_gateway_config",
    "new_token",
    "shared_redis",
]
