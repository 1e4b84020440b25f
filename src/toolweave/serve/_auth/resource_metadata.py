"""Metadata of the protected resource (RFC 9728), from which clients learn how to sign in."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from toolweave._json_types import Json, JsonObject
from toolweave.serve._http.asgi import Receive, Scope, Send
from toolweave.serve._http.public_document import respond_document

_WELL_KNOWN = "/.well-known/oauth-protected-resource"
_FRESH_SECONDS = 300


def metadata_path(resource: str) -> str:
    """Return the path of the metadata of a resource: the well-known one before its own (RFC 9728, 3.1)."""
    path = urlsplit(resource).path
    if path == "/":
        return _WELL_KNOWN
    return _WELL_KNOWN + path


def metadata_url(resource: str) -> str:
    """Return the URL of the metadata of a resource."""
    parts = urlsplit(resource)
    return f"{parts.scheme}://{parts.netloc}{metadata_path(resource)}"


def resource_document(
    resource: str,
    authorization_servers: Sequence[str],
    *,
    scopes: Sequence[str],
    dpop_algorithms: Sequence[str],
    dpop_required: bool,
) -> Json:
    """Return the metadata of a resource."""
    document: Json = {
        "resource": resource,
        "authorization_servers": list(authorization_servers),
        "bearer_methods_supported": ["header"],
    }
    if scopes:
        document["scopes_supported"] = list(scopes)
    if dpop_algorithms:
        document["dpop_signing_alg_values_supported"] = list(dpop_algorithms)
    if dpop_required:
        document["dpop_bound_access_tokens_required"] = True
    return document


class JsonDocument:
    """An ASGI app that answers with one JSON document, which pages of every origin may read."""

    def __init__(self, document: JsonObject) -> None:
        self._body = msgspec.json.encode(document)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET, HEAD and a preflight."""
        await respond_document(scope, send, self._body, "application/json", _FRESH_SECONDS)
