"""HTTP/1.1 to one origin: a pool of connections, proxies, addresses tried side by side, inflation within a bound.

Knows nothing of MCP, redirects, cookies or credentials: those are the caller's.
"""

from __future__ import annotations

from toolweave.http._client import HttpClient, NoAnswer, Response, Unreadable
from toolweave.http._connect import Address, resolve
from toolweave.http._connection import Socket
from toolweave.http._inflate import ACCEPTED, Inflater, NotInflated
from toolweave.http._proxy import PROXY_AUTHENTICATION_REQUIRED, HttpProxy, http_proxy_for, proxy_for, refused_by_proxy
from toolweave.http._request_head import SharedHeaders

__all__ = [
    "ACCEPTED",
    "PROXY_AUTHENTICATION_REQUIRED",
    "Address",
    "HttpClient",
    "HttpProxy",
    "Inflater",
    "NoAnswer",
    "NotInflated",
    "Response",
    "SharedHeaders",
    "Socket",
    "Unreadable",
    "http_proxy_for",
    "proxy_for",
    "refused_by_proxy",
    "resolve",
]
