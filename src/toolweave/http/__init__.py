"""HTTP/1.1 to one origin: a pool of connections, proxies, addresses tried side by side, inflation within a bound.

Independent of MCP, redirects, cookies and credentials, which are the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolweave.http._client import BodyError, HttpClient, Response
    from toolweave.http._connect import Address, resolve
    from toolweave.http._connection import Head, Socket, TransportError
    from toolweave.http._inflate import ACCEPTED, DecompressionError, Inflater
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
                "BodyError",
            ),
            "_connect": (
                "Address",
                "resolve",
            ),
            "_connection": (
                "Head",
                "TransportError",
                "Socket",
            ),
            "_inflate": (
                "ACCEPTED",
                "Inflater",
                "DecompressionError",
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
    "BodyError",
    "DecompressionError",
    "Head",
    "HttpClient",
    "HttpProxy",
    "Inflater",
    "Response",
    "SharedHeaders",
    "Socket",
    "TransportError",
    "came_through",
    "http_proxy_for",
    "no_proxy_hint",
    "origin_of",
    "proxy_for",
    "refused_by_proxy",
    "resolve",
    "target_of",
]
