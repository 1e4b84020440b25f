"""JSON documents that anyone may read, from pages of every origin: metadata for a sign-in, server cards."""

from __future__ import annotations

from toolweave.serve._http.asgi import Scope, Send, respond

_SHARED = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"content-type, mcp-protocol-version"),
)


async def respond_document(scope: Scope, send: Send, body: bytes, content_type: str, fresh_seconds: int) -> None:
    """Answer GET, HEAD and a preflight with a document.

    Args:
        scope: ASGI's.
        send: ASGI's.
        body: The document.
        content_type: Its type.
        fresh_seconds: The time for which caches may keep it.
    """
    method = scope["method"]
    if method == "OPTIONS":
        await respond(send, 204, headers=_SHARED)
    elif method not in ("GET", "HEAD"):
        await respond(send, 405, "Method Not Allowed", [(b"allow", b"GET, HEAD, OPTIONS")])
    else:
        head = [
            (b"content-type", content_type.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"public, max-age=%d" % fresh_seconds),
            *_SHARED,
        ]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
