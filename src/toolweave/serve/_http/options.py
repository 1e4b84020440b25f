"""The options of an endpoint over HTTP, checked where they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict, cast

from toolweave._option_checks import COUNT, FLAG, TEXT, TEXTS, OptionKind, check_kinds, check_number, instance_of
from toolweave.config.validation import suggestion
from toolweave.errors import ConfigError
from toolweave.protocol.uris import web_address_problem
from toolweave.serve._http.asgi import App
from toolweave.serve._http.events import EventStore
from toolweave.serve._http.limits import HttpLimits
from toolweave.serve._option_types import check_auth

if TYPE_CHECKING:
    from toolweave.serve._auth.token_auth import TokenAuth


class HttpOptions(TypedDict, total=False):
    """Options for serving an endpoint over HTTP.

    Attributes:
        path: The path of the endpoint; `/mcp`.
        allowed_hosts: Accepted Host names beside that of the bound address: `api.example`, `api.example:8443`, or
            `*` behind a proxy that checks it.
        allowed_origins: Origins whose web pages may send requests.
        cors_origins: Origins whose web pages may also read the answers.
        limits: Resource limits for untrusted clients.
        trusted_proxies: Addresses and networks of proxies in front of the server, such as `10.0.0.0/8`: callers without
            a token count by the address in their `X-Forwarded-For`. Without it, all callers of a proxy are one.
        stateless: Legacy clients get no session: any replica answers any request, and no client can be asked.
        json_response: Never answer with an event stream; notifications before the result are dropped.
        auth: A `BearerAuth`, `JwtAuth`, `IntrospectionAuth` or `OAuthServer`; None is that of the server. Without any,
            everyone is allowed, except for operations that need scopes.
        health_path: Answers `ok`; `/healthz`, None for none.
        event_store: Keeps the events of legacy streams for clients that resume them (SSE polling): a
            `MemoryEventStore`, or one of your own.
        retry_interval: The `retry` time that such clients are sent, in milliseconds.
        middleware: Functions that wrap an ASGI app in another; the first is the outermost, all are behind the guard.
        rest: Whether each tool is offered as `POST /tools/NAME` too, described by `GET /openapi.json`.
        server_card: Whether anyone may read the server's name, version, description and address at
            `/mcp/server-card`, and the catalog of such cards; or the address of the host as clients know it, such as
            `https://tools.example`.
    """

    path: str
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    cors_origins: Sequence[str]
    limits: HttpLimits
    trusted_proxies: Sequence[str]
    stateless: bool
    json_response: bool
    auth: TokenAuth | None
    health_path: str | None
    event_store: EventStore | None
    retry_interval: int | None
    middleware: Sequence[Callable[[App], App]]
    rest: bool
    server_card: bool | str


def _is_function_list(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(callable, cast("list[object]", value)))


_KINDS: Mapping[str, OptionKind] = {
    "path": TEXT,
    **dict.fromkeys(("allowed_hosts", "allowed_origins", "cors_origins", "trusted_proxies"), TEXTS),
    "limits": instance_of(HttpLimits, "HttpLimits(...)"),
    # A text such as "false" would count as true.
    **dict.fromkeys(("stateless", "json_response", "rest"), FLAG),
    "health_path": TEXT.or_none,
    "event_store": instance_of(EventStore, "an event store, such as MemoryEventStore()").or_none,
    "retry_interval": COUNT.or_none._replace(shown="a whole number of milliseconds, or None"),
    "middleware": OptionKind(_is_function_list, "a list of functions that wrap an app"),
    "server_card": instance_of((bool, str), "True, False or the address of the host"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteHttpOptions:
    """`HttpOptions` with every default filled in."""

    path: str = "/mcp"
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    cors_origins: Sequence[str] = ()
    limits: HttpLimits = field(default_factory=HttpLimits)
    trusted_proxies: Sequence[str] = ()
    stateless: bool = False
    json_response: bool = False
    auth: TokenAuth | None = None
    health_path: str | None = "/healthz"
    event_store: EventStore | None = None
    retry_interval: int | None = None
    middleware: Sequence[Callable[[App], App]] = ()
    rest: bool = False
    server_card: bool | str = True

    def __post_init__(self) -> None:
        check_kinds(self, _KINDS)
        check_auth(self.auth)
        if self.retry_interval is not None:
            check_number("retry_interval", self.retry_interval)
        if not self.path.startswith("/") or self.path == self.health_path:
            raise ConfigError(f"path {self.path!r} must start with '/' and not be that of the health check")
        if isinstance(self.server_card, str) and web_address_problem(self.server_card) is not None:
            raise ConfigError(f"server_card {self.server_card!r} is not the address of a host, such as https://HOST")
        if self.stateless and self.event_store is not None:
            raise ConfigError("an event store keeps the streams of sessions, and a stateless app has no sessions")


def check_option_names(owner: str, options: Mapping[str, object]) -> None:
    """Refuse options that there are not, such as a misspelt `allowed_hosts`.

    Raises:
        TypeError: An option is unknown; the error names the nearest one.
    """
    for name in options:
        if name not in HttpOptions.__annotations__:
            raise TypeError(f"{owner} has no option {name!r}; {suggestion(name, HttpOptions.__annotations__)}")
