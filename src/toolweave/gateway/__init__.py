"""Many MCP servers behind one endpoint: requests relayed between callers and upstreams of every era."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.gateway._admin.client import GatewayAdmin
    from toolweave.gateway._admin.manager import GatewayManager
    from toolweave.gateway._admin.status import GatewayStatus, Readiness, UpstreamStatus, VirtualStatus
    from toolweave.gateway._admin.token import keep_token, kept_token, new_token
    from toolweave.gateway._callers.auth import (
        CallerAuth,
        IntrospectionSettings,
        JwtSettings,
        OAuthServerSettings,
        ScopeSettings,
    )
    from toolweave.gateway._callers.revoked_keys import KeyRevocation, KeyStatus
    from toolweave.gateway._comparison import ClientComparison, LostFeature, compare_through
    from toolweave.gateway._config.check import CheckedCaller, CheckedServer, GatewayCheck, check_gateway
    from toolweave.gateway._config.config import GatewayConfig, VirtualServer, load_gateway_config
    from toolweave.gateway._config.options import GatewayOptions
    from toolweave.gateway._config.reload import ConfigChange
    from toolweave.gateway._gateway import Gateway, create_gateway
    from toolweave.gateway._replicas.replicas import Replicas, shared_redis
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_admin.client": ("GatewayAdmin",),
            "_admin.manager": ("GatewayManager",),
            "_admin.status": (
                "GatewayStatus",
                "Readiness",
                "UpstreamStatus",
                "VirtualStatus",
            ),
            "_admin.token": (
                "keep_token",
                "kept_token",
                "new_token",
            ),
            "_callers.auth": (
                "CallerAuth",
                "IntrospectionSettings",
                "JwtSettings",
                "OAuthServerSettings",
                "ScopeSettings",
            ),
            "_callers.revoked_keys": (
                "KeyRevocation",
                "KeyStatus",
            ),
            "_comparison": (
                "ClientComparison",
                "LostFeature",
                "compare_through",
            ),
            "_config.check": (
                "CheckedCaller",
                "CheckedServer",
                "GatewayCheck",
                "check_gateway",
            ),
            "_config.config": (
                "GatewayConfig",
                "VirtualServer",
                "load_gateway_config",
            ),
            "_config.options": ("GatewayOptions",),
            "_config.reload": ("ConfigChange",),
            "_gateway": (
                "Gateway",
                "create_gateway",
            ),
            "_replicas.replicas": (
                "Replicas",
                "shared_redis",
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
