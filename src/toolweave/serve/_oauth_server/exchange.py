"""HTTP requests to an authorization server: forms and queries read within bounds, responses in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl

import anyio
import msgspec

from toolweave._json import decode_json
from toolweave._json_types import Json, JsonObject, without_empty
from toolweave.serve._http.asgi import Receive, Scope, Send, read_body, respond
from toolweave.serve._oauth_server.clients import OAuthRefusal

_MAX_BYTES = 64 * 1024
_SECONDS = 30.0
_MAX_FIELDS = 50
_SHARED = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, OPTIONS"),
    (b"access-control-allow-headers", b"authorization, content-type, dpop, mcp-protocol-version"),
    (b"access-control-expose-headers", b"dpop-nonce"),
]


class OAuthExchange:
    """One request and its answer.

    Attributes:
        proofs: Its headers `DPoP`; a valid request has one at most.
        nonce: The nonce for the client's next proof, which is in the answer.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self.proofs = [value.decode("latin-1") for name, value in scope["headers"] if name == b"dpop"]
        self.nonce: str | None = None
        self.send = send
        self._query: bytes = scope.get("query_string", b"")
        self._receive = receive

    def query(self) -> dict[str, str]:
        """Return the parameters of the URL.

        Raises:
            OAuthRefusal: One is repeated (RFC 6749, 3.1), or there are too many.
        """
        return _fields(self._query)

    async def form(self) -> dict[str, str]:
        """Return the fields of a form.

        Raises:
            OAuthRefusal: The body is not a form, is too long, or repeats a field.
        """
        kind = self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/x-www-form-urlencoded":
            raise OAuthRefusal("invalid_request", "the body must be a form (application/x-www-form-urlencoded)")
        return _fields(await self._body())

    async def json(self) -> Json:
        """Return the JSON object of the body.

        Raises:
            OAuthRefusal: The body is not a JSON object, or is too long.
        """
        body = await self._body()
        try:
            return decode_json(body, Json)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise OAuthRefusal("invalid_client_metadata", "the body must be a JSON object") from None

    async def _body(self) -> bytes:
        body: bytes | None = None
        with anyio.move_on_after(_SECONDS):
            body = await read_body(self._receive, _MAX_BYTES)
        if body is None:
            raise OAuthRefusal("invalid_request", "the body is too long, or did not come in time", status=413)
        return body

    async def answer(self, status: int, value: JsonObject, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Answer a client with JSON, which no cache keeps and pages of every origin may read."""
        body = json.dumps(value).encode()
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            (b"pragma", b"no-cache"),
            *_SHARED,
            *headers,
        ]
        if self.nonce is not None:
            head.append((b"dpop-nonce", self.nonce.encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: OAuthRefusal, *, nonce: str | None = None) -> None:
        """Answer a client with an error (RFC 6749, 5.2)."""
        self.nonce = nonce or self.nonce
        headers: list[tuple[bytes, bytes]] = []
        if refusal.status == 401:
            headers.append((b"www-authenticate", b"Basic"))
        if refusal.retry_after:
            headers.append((b"retry-after", b"%d" % refusal.retry_after))
        await self.answer(refusal.status, {"error": refusal.error, "error_description": str(refusal)}, headers)

    async def preflight(self) -> None:
        """Answer a CORS preflight."""
        await respond(self.send, 204, headers=_SHARED)

    async def redirect(self, url: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Send a browser somewhere else, with GET."""
        head = [
            (b"location", url.encode("ascii", "ignore")),
            (b"cache-control", b"no-store"),
            (b"referrer-policy", b"no-referrer"),
            *headers,
        ]
        await respond(self.send, 303, headers=head)


def _fields(data: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(data.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except (ValueError, UnicodeError):
        raise OAuthRefusal("invalid_request", "the parameters cannot be read") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise OAuthRefusal("invalid_request", "a parameter is repeated")
    # An empty parameter counts as one that is left out (RFC 6749, 3.1).
    return without_empty(fields)
