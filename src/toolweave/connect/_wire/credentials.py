"""The credentials of HTTP requests: configured ones, hooks that make others, and their masking in foreign texts.

Knows the config of one server; sends nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from toolweave._json import decode_json
from toolweave._json_types import as_object, as_text, object_or_empty
from toolweave._masking import mask_foreign
from toolweave.config import Auth, Secret, ServerConfig
from toolweave.config._auth import AuthFlow
from toolweave.errors import AuthRequiredError
from toolweave.oauth import AuthChallenge
from toolweave.protocol.headers import NAME_PARAMETERS


class AuthHook(Protocol):
    """An authorization hook for the HTTP requests to one server; an exception fails the request at hand.

    It may have an attribute `max_resends`: how often one request is sent again at most, once without it; and a method
    `answered(url, headers)`, called with the headers of responses, in lower case; and an attribute `problems`: texts
    about the sign-in that are then among those of the connection.
    """

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize a request; called before each."""
        ...

    async def challenged(self, challenge: AuthChallenge) -> Mapping[str, str] | None:
        """Return other headers, with which a refused request is sent again, or None to leave it refused."""
        ...


class Credentials:
    """The factory of request headers: called for each request where a callable makes them, else once."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._asks = _asks(config.auth)
        self._last: Mapping[str, str] = {}
        self._made: Mapping[str, str] = {}

    def source(self) -> Any:
        """Return the headers themselves where they never change, else the callable that makes them."""
        config = self._config
        if callable(config.headers) or self._asks:
            return self.make
        made = config.header_values()
        if config.auth is None:
            return made
        return made | _rendered(config.auth, config.auth.token)

    async def make(self) -> Mapping[str, str]:
        """Return the headers of one request, with callables evaluated again."""
        configured = self._config.headers
        auth = self._config.auth
        values: Any = configured() if callable(configured) else configured
        if inspect.isawaitable(values):
            values = await values
        made: dict[str, str] = {name: _reveal(value) for name, value in values.items()}
        if auth is not None:
            token: Any = auth.token
            if self._asks:
                token = auth.provider()
                if inspect.isawaitable(token):
                    token = await token
            made |= _rendered(auth, token)
        # Kept for `redact`: servers quote the credentials of a request in their errors.
        self._last = made
        return made

    def remember(self, headers: Mapping[str, str]) -> None:
        """Mask these headers too, which were made elsewhere for a request."""
        self._made = headers

    def redact(self, text: str) -> str:
        """Mask the credentials that a server may have echoed in its text."""
        text = self._config.redact(text)
        values = (*self._last.values(), *self._made.values())
        return mask_foreign(text, [word for value in values for word in (value, value.partition(" ")[2])])


def flow_of(config: ServerConfig) -> AuthFlow | None:
    """Return the `httpx` authorization object of a config, or None."""
    provider = _provider_of(config)
    if _is_flow(provider):
        return provider
    return None


def _provider_of(config: ServerConfig) -> Any:
    if config.auth is None:
        return None
    return config.auth.provider


def needed_caller(config: ServerConfig) -> str:
    """Return why a server that is called for the callers of a gateway cannot be called without one."""
    if config.signs_in_callers:
        return "it is called as the callers of a gateway, each signed in themself"
    names = ", ".join((*config.forward_headers, *config.claim_headers))
    return f"it is called with headers of each caller of a gateway ({names})"


def hook_of(config: ServerConfig) -> AuthHook | None:
    """Return the hook that authorizes the requests of a config, or None; called in the event loop of its connection."""
    if config.as_caller:
        raise AuthRequiredError(f"{needed_caller(config)}; serve it with `toolweave gateway`", server=config.name)
    if config.auth is not None and config.auth.oauth is not None:
        from toolweave.oauth import token_source  # only to sign in

        return token_source(
            config.auth.oauth,
            config.url,
            server=config.name,
            revision=config.protocol,
            configured=config.source is not None,
        )
    provider = _provider_of(config)
    if _is_hook(provider):
        return provider
    return None


def problems_of(hook: AuthHook | None) -> tuple[str, ...]:
    """Return the report of a hook about the sign-in."""
    return tuple(getattr(hook, "problems", ()))


def resends_of(hook: AuthHook) -> int:
    """Return how often a request is sent again at most."""
    return getattr(hook, "max_resends", 1)


def operation_of(body: bytes) -> str:
    """Return the method of a message with the name that it addresses; empty for text that is not a message."""
    try:
        message = object_or_empty(decode_json(body))
    except (msgspec.DecodeError, RecursionError):
        return ""
    method = as_text(message.get("method"))
    params = object_or_empty(message.get("params"))
    if method is None:
        return ""
    name = params.get(NAME_PARAMETERS.get(method, ""))
    if isinstance(name, str):
        return f"{method} {name}"
    return method


def _asks(auth: Auth | None) -> bool:
    """Return whether a plain callable makes the credentials."""
    if auth is None or auth.provider is None:
        return False
    return not _is_flow(auth.provider) and not _is_hook(auth.provider)


def _is_flow(provider: Any) -> bool:
    return hasattr(provider, "async_auth_flow")


def _is_hook(provider: Any) -> bool:
    return hasattr(provider, "challenged") and hasattr(provider, "headers")


def _rendered(auth: Auth, token: Any) -> dict[str, str]:
    headers = as_object(token)
    if headers is not None:
        return {str(name): _reveal(value) for name, value in headers.items()}
    made = {name: _reveal(value) for name, value in auth.headers.items()}
    if token is not None:
        text = _reveal(token)
        # A bare callable gives a token without a header: a bearer token, as a bare string is.
        if auth.type == "bearer" or not auth.header:
            text = f"Bearer {text}"
        made[auth.header or "Authorization"] = text
    return made


def _reveal(value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    return str(value)
