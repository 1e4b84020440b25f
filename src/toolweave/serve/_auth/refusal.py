"""Refusals of requests: the challenges of RFC 6750 and RFC 9449, each with all that a client needs to continue.

If no token was sent, a challenge has no error (RFC 6750, 3.1).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

import msgspec

from toolweave._json_types import without_empty
from toolweave.serve._http.asgi import Send

_ANONYMOUS = "A token is required, in the header 'Authorization: Bearer TOKEN'"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that refuses a request.

    Attributes:
        status: The HTTP status.
        error: The error code, or "".
        description: The human-readable description, which never contains foreign text.
        headers: The headers, beside those of the body.
    """

    status: int
    error: str = ""
    description: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def send(self, send: Send) -> None:
        """Answer with it."""
        members = {"error": self.error, "error_description": self.description}
        body = json.dumps(without_empty(members)).encode()
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            *self.headers,
        ]
        await send({"type": "http.response.start", "status": self.status, "headers": head})
        await send({"type": "http.response.body", "body": body})


class Refused(Exception):
    """A private signal: a request is answered with this refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.error)
        self.refusal = refusal


class IssuerUnavailable(Exception):
    """A private signal: the issuer of tokens cannot be asked now, so nothing is known of the token.

    Attributes:
        retry_after: Seconds after which it is worth asking again.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__("the issuer of tokens cannot be asked now")
        self.retry_after = retry_after


class TooManyTokens(Exception):
    """A private signal: an address has sent too many tokens that the issuer refused.

    Attributes:
        retry_after: Seconds after which one more is judged.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__("too many refused tokens")
        self.retry_after = retry_after


class Challenges(msgspec.Struct, frozen=True, kw_only=True):
    """The challenges of one endpoint.

    Attributes:
        metadata_url: The URL of its metadata (RFC 9728), or None.
        scopes: The scopes that every token must have.
        dpop_algorithms: The algorithms of proofs, where clients are offered to send them (RFC 9449); else empty.
        dpop_required: Whether a token without a proof is never accepted.
    """

    metadata_url: str | None = None
    scopes: tuple[str, ...] = ()
    dpop_algorithms: tuple[str, ...] = ()
    dpop_required: bool = False

    def mounted_at(self, root_path: str) -> Challenges:
        """Return the challenges of the endpoint in an app that is mounted at a path of its host.

        The metadata are served below the mount, so their URL is named there: RFC 9728, 5.1, allows any URL.
        """
        if not root_path.strip("/") or self.metadata_url is None:
            return self
        parts = urlsplit(self.metadata_url)
        mount = quote("/" + root_path.strip("/"), safe="/:@!$&'()*+,;=-._~%")
        return msgspec.structs.replace(self, metadata_url=f"{parts.scheme}://{parts.netloc}{mount}{parts.path}")

    def no_token(self) -> Refusal:
        """Return the refusal of a request without a token: 401, without an error code (RFC 6750, 3.1)."""
        headers = self._headers(self._parameters(scopes=self.scopes))
        return Refusal(status=401, description=_ANONYMOUS, headers=headers)

    def invalid_token(self, description: str = "The token is not valid here") -> Refusal:
        """Return the refusal of a token that is invalid, expired or issued for another audience: 401."""
        parameters = self._parameters("invalid_token", description, scopes=self.scopes)
        return Refusal(status=401, error="invalid_token", description=description, headers=self._headers(parameters))

    def invalid_proof(self, error: str, description: str, *, algorithms: Sequence[str], nonce: str | None) -> Refusal:
        """Return the refusal of a token whose proof of possession is missing or wrong: 401 (RFC 9449, 7.1 and 9)."""
        parameters = self._parameters(error, description, scopes=self.scopes)
        headers = [(b"www-authenticate", _challenge("DPoP", {**parameters, "algs": " ".join(algorithms)}))]
        if nonce is not None:
            headers.append((b"dpop-nonce", nonce.encode()))
        return Refusal(status=401, error=error, description=description, headers=tuple(headers))

    def insufficient_scope(self, scopes: Sequence[str], *, scheme: str = "Bearer") -> Refusal:
        """Return the refusal of a token that lacks scopes: 403, with all that the operation needs (RFC 6750, 3.1)."""
        description = "The token lacks a scope that this needs"
        parameters = self._parameters("insufficient_scope", description, scopes=scopes)
        return Refusal(
            status=403,
            error="insufficient_scope",
            description=description,
            headers=((b"www-authenticate", _challenge(scheme, parameters)),),
        )

    def unavailable(self, retry_after: float) -> Refusal:
        """Return the refusal of a token that cannot be verified now: 503.

        With 401, a client would discard a token that may be valid, and ask its user to sign in again at an issuer that
        is down.
        """
        return Refusal(
            status=503,
            error="temporarily_unavailable",
            description="The issuer of tokens cannot be asked now; the token may be valid",
            headers=((b"retry-after", b"%d" % max(1, round(retry_after))),),
        )

    def slow_down(self, retry_after: float) -> Refusal:
        """Return the refusal of a token whose address has sent too many refused ones: 429."""
        return Refusal(
            status=429,
            error="slow_down",
            description="Too many tokens from this address were refused; this one was not judged",
            headers=((b"retry-after", b"%d" % math.ceil(retry_after)),),
        )

    def _parameters(self, error: str = "", description: str = "", *, scopes: Sequence[str]) -> dict[str, str]:
        parameters = {"error": error, "error_description": description, "scope": " ".join(scopes)}
        if self.metadata_url is not None:
            parameters["resource_metadata"] = self.metadata_url
        return parameters

    def _headers(self, parameters: dict[str, str]) -> tuple[tuple[bytes, bytes], ...]:
        headers: list[tuple[bytes, bytes]] = []
        if not self.dpop_required:
            headers.append((b"www-authenticate", _challenge("Bearer", parameters)))
        if self.dpop_algorithms:
            proved = {**parameters, "algs": " ".join(self.dpop_algorithms)}
            headers.append((b"www-authenticate", _challenge("DPoP", proved)))
        return tuple(headers)


def _challenge(scheme: str, parameters: dict[str, str]) -> bytes:
    """Return one challenge; every value was checked to have no quote, backslash or control character."""
    text = ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)
    return f"{scheme} {text}".strip().encode("ascii")
