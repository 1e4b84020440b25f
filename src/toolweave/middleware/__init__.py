"""Middleware that is ready to use, for servers and gateways: rules, limits, a cache, approval, redaction, an audit log.

Each is a frozen value that is called as middleware, so that options of Python and of config files are the same. Knows
requests and results, neither transports nor upstream servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.middleware._access import AccessRule, AccessRules
    from toolweave.middleware._approval import UserApproval
    from toolweave.middleware._audit import AuditLog
    from toolweave.middleware._cache import ResponseCache
    from toolweave.middleware._from_config import middleware_from_config
    from toolweave.middleware._limit_store import LimitStore, MemoryLimits
    from toolweave.middleware._limits import CallBudget, RateLimit
    from toolweave.middleware._observers import Observer, Observers, RequestEnd
    from toolweave.middleware._redaction import Redaction
    from toolweave.middleware._selection import OfferSelection
    from toolweave.middleware._sizes import SizeLimits
    from toolweave.middleware._store_limits import StoreLimits
    from toolweave.middleware._timing import Timing
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_access": ("AccessRule", "AccessRules"),
            "_approval": ("UserApproval",),
            "_audit": ("AuditLog",),
            "_cache": ("ResponseCache",),
            "_from_config": ("middleware_from_config",),
            "_limit_store": ("LimitStore", "MemoryLimits"),
            "_limits": ("CallBudget", "RateLimit"),
            "_observers": ("Observer", "Observers", "RequestEnd"),
            "_redaction": ("Redaction",),
            "_selection": ("OfferSelection",),
            "_sizes": ("SizeLimits",),
            "_store_limits": ("StoreLimits",),
            "_timing": ("Timing",),
        },
    )

__all__ = [
    "AccessRule",
    "AccessRules",
    "AuditLog",
    "CallBudget",
    "LimitStore",
    "MemoryLimits",
    "Observer",
    "Observers",
    "OfferSelection",
    "RateLimit",
    "Redaction",
    "RequestEnd",
    "ResponseCache",
    "SizeLimits",
    "StoreLimits",
    "Timing",
    "UserApproval",
    "middleware_from_config",
]
