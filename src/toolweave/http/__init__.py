"""HTTP/1.1 to one origin: a pool of connections, proxies, addresses tried side by side, inflation within a bound.

Knows nothing of MCP, redirects, cookies or credentials: those are the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.http._client import HttpClient, Response, Unreadable
    from toolweave.http._connect import Address, resolve
    from toolweave.http._connection import Head, NoAnswer, Socket
    from toolweave.http._inflate import ACCEPTED, Inflater, NotInflated
    from toolweave.http._proxy import (
        PROXY_AUTHENTICATION_REQUIRED,
        HttpProxy,
        came_through,
        http_proxy_for,
        no_proxy_hint,
        proxy_for,
        refused_by_proxy,
    )
    from toolweave.http._request_head import SharedHeaders
    from toolweave.http._url import DEFAULT_PORTS, origin_of, target_of
else:
    from toolweave._lazy import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "_client": (
                "HttpClient",
                "Response",
                "Unreadable",
            ),
            "_connect": (
                "Address",
                "resolve",
            ),
            "_connection": (
                "Head",
                "NoAnswer",
                "Socket",
            ),
            "_inflate": (
                "ACCEPTED",
                "Inflater",
                "NotInflated",
            ),
            "_proxy": (
                "PROXY_AUTHENTICATION_REQUIRED",
                "HttpProxy",
                "came_through",
                "http_proxy_for",
                "no_proxy_hint",
                "proxy_for",
                "refused_by_proxy",
            ),
            "_request_head": ("SharedHeaders",),
            "_url": (
                "DEFAULT_PORTS",
                "origin_of",
                "target_of",
            ),
        },
    )

__all__ = [
    "ACCEPTED",
    "DEFAULT_PORTS",
    "PROXY_AUTHENTICATION_REQUIRED",
    "Address",
    "Head",
    "HttpClient",
    "HttpProxy",
    "Inflater",
    "NoAnswer",
    "NotInflated",
    "Response",
    "SharedHeaders",
    "Socket",
    "Unreadable",
    "came_through",
    "http_proxy_for",
    "no_proxy_hint",
    "origin_of",
    "proxy_for",
    "refused_by_proxy",
    "resolve",
    "target_of",
]
