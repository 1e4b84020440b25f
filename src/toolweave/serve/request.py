"""Requests, the clients that sent them, and the reply channels to these clients, on any transport.

The port between the endpoint with its features and the transports: stdio, HTTP and the SDK's server. Knows neither.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast

import msgspec

from toolweave._json import JsonDecoder
from toolweave._json_types import Json, new_object, object_or_empty
from toolweave.config import Secret
from toolweave.errors import RequestError
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.schema.fitting import object_meant
from toolweave.serve._sent_call import SentCall
from toolweave.tools import ToolSpec

__all__ = [
    "CallNext",
    "ChangeSubscriptions",
    "Client",
    "Feature",
    "FindOffers",
    "Identity",
    "MayUse",
    "Method",
    "Middleware",
    "OfferKind",
    "OfferLookup",
    "Offered",
    "Push",
    "ReplyChannel",
    "Request",
    "Responder",
    "issuer_of",
    "may_use",
    "principal_name",
    "principal_of",
    "with_object",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The authenticated identity of a token.

    Attributes:
        client_id: The OAuth client that got the token.
        subject: The user, unique for the issuer; None for the client itself.
        issuer: The issuer of the token.
        scopes: The scopes of the token.
        expires_at: When it is no longer accepted, in seconds since the epoch, a leeway included; None for never.
        key_thumbprint: The thumbprint (RFC 7638) of the key that the token is bound to, its `cnf.jkt`; the request must
            prove that it has that key (RFC 9449). None for a bearer token.
        claims: All verified claims of the token, or the answer of the issuer's introspection; empty where a function of
            yours identified the caller by less.
        token: The token itself, kept only where a gateway gives it for others (RFC 8693); None anywhere else.
    """

    client_id: str
    subject: str | None = None
    issuer: str | None = None
    scopes: tuple[str, ...] = ()
    expires_at: int | None = None
    key_thumbprint: str | None = None
    claims: Mapping[str, Any] = field(default_factory=new_object, repr=False, hash=False, compare=False)
    token: Secret | None = field(default=None, repr=False, hash=False, compare=False)

    @property
    def principal(self) -> str:
        """The unique name of the principal; see `Client.principal`."""
        return principal_of(self.client_id, self.issuer, self.subject)


def principal_of(client_id: str, issuer: str | None, subject: str | None) -> str:
    """Return the unique name of a principal, as JSON; sessions, signed state, tasks and sign-ins are bound to it."""
    return msgspec.json.encode((client_id, issuer or None, subject or None)).decode()


_read_principal = JsonDecoder(tuple[str, str | None, str | None])


@lru_cache(maxsize=1024)
def principal_name(principal: str) -> str:
    """Return a principal as people know it: its user, else the client; anything else as it is."""
    try:
        client_id, _, subject = _read_principal(principal)
    except msgspec.MsgspecError:
        return principal
    return subject or client_id


def issuer_of(principal: str) -> str | None:
    """Return the issuer in the unique name of a principal, or None."""
    try:
        return _read_principal(principal)[1]
    except msgspec.MsgspecError:
        return None


OfferKind: TypeAlias = Literal["tools", "resources", "prompts"]
"""The kinds of a server's offers."""


class MayUse(Protocol):
    """Whether a caller may see and use an offer."""

    def __call__(self, kind: OfferKind, name: str, scopes: Iterable[str] = (), server: str | None = None, /) -> bool:
        """Return whether the caller may.

        Args:
            kind: The kind of the offer.
            name: Its name, URI or template.
            scopes: The scopes that its definition needs.
            server: The upstream that has it, where that is known.
        """
        ...


def may_use(
    may: MayUse | None, kind: OfferKind, name: str, scopes: Iterable[str] = (), server: str | None = None
) -> bool:
    """Return whether a caller may use an offer; without a rule (None) it may use all. See `MayUse`."""
    return may is None or may(kind, name, scopes, server)


class Offered(NamedTuple):
    """Something that a server offers.

    Attributes:
        kind: Its kind.
        name: Its name, URI or template.
        scopes: The scopes that its definition needs.
        server: The upstream that has it; None for an offer of the server's own, and where it is not known.
    """

    kind: OfferKind
    name: str
    scopes: tuple[str, ...]
    server: str | None = None


FindOffers: TypeAlias = Callable[[str, Mapping[str, Any]], Sequence[Offered]]
"""Returns the offers that a request is about, by its method and params."""


class OfferLookup(Protocol):
    """Finds the offers of a server."""

    def find_tool(self, name: str, version: str | None = None) -> ToolSpec | None:
        """Return the definition of a tool by its name or an alias, or of one version of it, or None.

        A server in front of others, which know their versions, returns the newest.
        """
        ...

    async def learn_offers(self, method: str, params: Mapping[str, Any]) -> None:
        """List the definitions that `offers_of` needs for this request, if the offers are those of other servers."""
        ...

    def offers_of(self, method: str, params: Mapping[str, Any]) -> Sequence[Offered]:
        """Return the offers that a request is about, found as the request itself finds them.

        There is one for each server that may have it, and one for each template that it may be of.
        """
        ...


@dataclass(frozen=True, slots=True)
class Client:
    """A client, as it declared itself in the handshake or with the request.

    Attributes:
        version: The protocol revision that holds for the request.
        capabilities: Its `ClientCapabilities` as received.
        info: Its `Implementation` object as received, or None.
        principal: The authorized principal, or None; signed state and tasks are bound to it.
        conversation: Names the conversation (stdio, in process, a legacy HTTP session); None for a modern request.
        may: Whether lists show something to it, and whether it may be used; None shows all.
        identity: The authenticated identity, whose principal it is; None without authorization.
    """

    version: str
    capabilities: Mapping[str, Any] = field(default_factory=new_object)
    info: Mapping[str, Any] | None = None
    principal: str | None = None
    conversation: str | None = None
    may: MayUse | None = None
    identity: Identity | None = None

    @property
    def key(self) -> str | None:
        """A key that identifies this client among all others, or None."""
        if self.principal is None and self.conversation is None:
            return None
        return f"{self.principal or ''}|{self.conversation or ''}"

    @property
    def claims(self) -> Mapping[str, Any]:
        """The verified claims of its token; empty without one."""
        if self.identity is None:
            return {}
        return self.identity.claims

    @property
    def modern(self) -> bool:
        """Whether the request is of the modern era (2026-07-28)."""
        return self.version == MODERN_VERSION

    def limited(self, may: MayUse) -> Client:
        """Return the same client, restricted to the offers that `may` allows."""
        return Client(self.version, self.capabilities, self.info, self.principal, self.conversation, may, self.identity)


class ReplyChannel(Protocol):
    """The reply channel to the client while one of its requests runs."""

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on the request's own stream; nothing is raised when the client is gone."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> Json:
        """Send the client a request and return its result; legacy revisions only.

        Raises:
            RequestError: The client refused, or cannot be asked on this transport.
        """
        ...

    async def release(self) -> None:
        """Close the response stream where the client can resume it later (SSE polling); does nothing elsewhere."""
        ...


@dataclass(slots=True)
class Request:
    """One request of a client, the same on every transport and in every revision.

    Attributes:
        method: The method, such as `tools/call`.
        params: Its parameters as received; `{}` without any.
        client: The client that sent it.
        reply_channel: The channel to it, for notifications and questions while the request runs.
        id: The JSON-RPC id.
        headers: The HTTP headers, names in lower case; empty on other transports.
        server: The current offers, for middleware; None without middleware.
        sent: The call that was sent for it already, on a fast path; None for all other requests.
        takes_texts: Whether members of the result may be left as JSON texts, except those that name its kind.
    """

    method: str
    params: Mapping[str, Any]
    client: Client
    reply_channel: ReplyChannel
    id: int | str
    headers: Mapping[str, str] = field(default_factory=new_object)
    server: OfferLookup | None = None
    sent: SentCall | None = None
    takes_texts: bool = False

    def replace(self, **changes: Any) -> Request:
        """Return a copy in which these attributes are changed.

        Raises:
            TypeError: An attribute does not exist.
        """
        same: Json = {
            "method": self.method,
            "params": self.params,
            "client": self.client,
            "reply_channel": self.reply_channel,
            "id": self.id,
            "headers": self.headers,
            "server": self.server,
            "sent": self.sent,
            "takes_texts": self.takes_texts,
        }
        return Request(**(same | changes))  # `dataclasses.replace` takes four times as long

    @property
    def modern(self) -> bool:
        """Whether the request is of the modern era (2026-07-28)."""
        return self.client.version == MODERN_VERSION

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's `_meta`; `{}` when it has none or a malformed one."""
        return object_or_empty(self.params.get("_meta"))

    def text(self, name: str) -> str:
        """Return a parameter that must be a text.

        Raises:
            RequestError: It is missing, or something else (-32602).
        """
        value = self.params.get(name)
        if not isinstance(value, str):
            raise RequestError(f"{self.method} needs a parameter {name!r} that is a string", code=INVALID_PARAMS)
        return value

    def object(self, name: str) -> Json:
        """Return a parameter that must be a JSON object when it is there; `{}` when it is not.

        Raises:
            RequestError: It is something else (-32602).
        """
        value = self.params.get(name)
        if value is None and name not in self.params:
            return {}
        if not isinstance(value, dict):
            raise RequestError(f"{self.method}: parameter {name!r} must be an object", code=INVALID_PARAMS)
        return cast("Json", value)


def with_object(request: Request) -> Request:
    """Return a request whose `arguments` are an object: the one that is meant, or the request itself."""
    given: object = request.params.get("arguments", {})
    if isinstance(given, dict):
        return request
    found = object_meant(given)
    if found is None:
        return request
    return request.replace(params={**request.params, "arguments": found})


Method: TypeAlias = Callable[[Request], Awaitable[Json]]
"""Answers a request with the result's members; the endpoint adds those that every result of the era has.

Raises `RequestError` for a JSON-RPC error; anything else that it raises is masked as an internal error.
"""

CallNext: TypeAlias = Method
"""Answers a request through the rest of the chain: the next middleware, or the server itself."""

Middleware: TypeAlias = Callable[[Request, CallNext], Awaitable[Json]]
"""Answers a request, in most cases with the result of `call_next(request)`: `async def middleware(request, call_next)`.

The result holds all members that the revision asks for. `call_next` raises `RequestError` where the answer is a
JSON-RPC error, and a middleware raises one to refuse; any other exception of a middleware is logged with its name and
masked as an internal error.
"""


Push: TypeAlias = Callable[[str, Mapping[str, Any]], None]
"""Sends a notification, method and params, on a conversation's own stream, without waiting."""


class ChangeSubscriptions(Protocol):
    """The open legacy conversations, which are notified of changes."""

    def join(self, push: Push, *, conversation: str) -> Callable[[], None]:
        """Send every change to `push` from now on; returns a function that ends that."""
        ...

    def note_from_client(self, method: str, client: Client) -> None:
        """Handle a notification of a client in a legacy conversation that is about no request."""
        ...


class Feature(Protocol):
    """A server feature: its methods and the capabilities that it declares, by era."""

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return the methods it answers in that era; read when the endpoint is made or its revisions are limited."""
        ...

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return its members of `ServerCapabilities`, according to its current offers."""
        ...


class Responder(Protocol):
    """The answering side of a carrier: an `Endpoint`, or a wrapper of one."""

    @property
    def versions(self) -> tuple[str, ...]:
        """The revisions that are spoken, newest first."""
        ...

    def serves(self, method: str, *, modern: bool) -> bool:
        """Whether the method exists in that era."""
        ...

    def negotiate(self, offered: object) -> str:
        """Return the handshake-era revision for the one that a client offers."""
        ...

    def answer(self, request: Request) -> Awaitable[Json]:
        """Return the result of a request, complete for its era.

        Raises:
            RequestError: The answer is a JSON-RPC error.
        """
        ...
