"""The port to the person who signs in: a browser and the listener for its redirect, or a code to type elsewhere."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Protocol

from toolweave._value import Value


class AuthorizationResponse(Value, frozen=True):
    """The query of the redirect that ends an authorization request (RFC 6749 4.1.2, RFC 9207). It is not trusted.

    Attributes:
        code: The authorization code.
        state: The state that came back.
        issuer: The `iss` parameter.
        error: The error code, of a refusal.
        error_description: Its description.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"code", "state"})

    code: str | None = None
    state: str | None = None
    issuer: str | None = None
    error: str | None = None
    error_description: str | None = None


class DevicePrompt(Value, frozen=True):
    """A code that a person types into a page on any device (RFC 8628).

    Attributes:
        user_code: The code.
        verification_uri: The page.
        verification_uri_complete: The page with the code in it, if the server offers one.
        expires_in: Seconds until the code expires.
    """

    user_code: str
    verification_uri: str
    verification_uri_complete: str | None = None
    expires_in: float = 0.0


class RedirectListener(Protocol):
    """A listener for one redirect."""

    redirect_uri: str
    """Its URI, with the port it listens on."""

    async def response(self, url: str, *, state: str) -> AuthorizationResponse:
        """Show a person the authorization URL, and return the redirect that carries this state; others are ignored."""
        ...


class UserAgent(Protocol):
    """Shows a person where to sign in; raises `AuthRequiredError` if it cannot reach a person."""

    def listener(
        self, *, server: str, seconds: float, port: int | None = None
    ) -> AbstractAsyncContextManager[RedirectListener]:
        """Open a listener for the redirect of one sign-in to a server, for at most these seconds.

        It listens on `port`, or on a free one; the context manager raises `OSError` if that port is in use.
        """
        ...

    async def show_device_code(self, prompt: DevicePrompt, *, server: str) -> None:
        """Show a person a code and the page to type it into; return at once."""
        ...
