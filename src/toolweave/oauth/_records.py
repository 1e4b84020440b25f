"""The values that outlive a process: registrations of clients, tokens, and the protocol of their stores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Protocol, runtime_checkable

from toolweave._value import Value
from toolweave.config import Secret


class TokenKey(Value, frozen=True):
    """The identity of a stored token: it is never used for another one.

    Attributes:
        issuer: The issuer of the authorization server, as the identical string of its metadata.
        resource: The URL of the MCP server that the token is for (RFC 8707).
        client: The client that asked: a configured `client_id`, the URL of a client id metadata document, or empty for
            a client that is registered dynamically.
        principal: The user on whose behalf it was issued, as the program names them; empty if there is only one.
    """

    issuer: str
    resource: str
    client: str = ""
    principal: str = ""

    def is_of(self, resource: str | None, principal: str | None) -> bool:
        """Return whether the token is for a resource and a principal; None is any."""
        return resource in (None, self.resource) and principal in (None, self.principal)


class ClientRegistration(Value, frozen=True):
    """A client that is registered at one authorization server (RFC 7591), and unknown to every other.

    Attributes:
        client_id: Its id.
        client_secret: Its secret, if it has one.
        method: How it authenticates at the token endpoint: `none`, `client_secret_basic`, `client_secret_post` or
            `private_key_jwt`.
        redirect_uris: The redirect URIs it was registered with.
        secret_expires_at: When its secret expires, in seconds since the epoch; None for never.
        scopes: The scopes that its registration named: some servers refuse it every other scope.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"client_secret"})

    client_id: str
    client_secret: str | None = None
    method: str = "none"
    redirect_uris: tuple[str, ...] = ()
    secret_expires_at: float | None = None
    scopes: tuple[str, ...] = ()


class TokenRecord(Value, frozen=True):
    """A token with all that is needed to renew it.

    Attributes:
        key: Its identity.
        access_token: The token; empty for a record that holds only a registration.
        token_type: `Bearer` or `DPoP`.
        expires_at: When it expires, in seconds since the epoch; None if that is not known.
        refresh_token: The token that renews it, if there is one.
        scopes: The scopes it was issued for.
        registration: The client it was issued to.
        dpop_key: The private key that it is bound to (RFC 9449), as PEM.
        saved_at: When it was saved, in seconds since the epoch.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"access_token", "refresh_token", "dpop_key"})

    key: TokenKey
    access_token: str = ""
    token_type: str = "Bearer"  # noqa: S105
    expires_at: float | None = None
    refresh_token: str | None = None
    scopes: tuple[str, ...] = ()
    registration: ClientRegistration | None = None
    dpop_key: str | None = None
    saved_at: float = 0.0

    def secrets(self) -> tuple[Secret, ...]:
        """Return every secret in it, for masking."""
        values = [self.access_token, self.dpop_key, self.refresh_token]
        if self.registration is not None:
            values.append(self.registration.client_secret)
        return tuple(Secret(value) for value in values if value)


@runtime_checkable
class TokenStore(Protocol):
    """A store of tokens; every method may wait for a disk, a keyring or a network, and raises `StoreError`."""

    async def load(self, key: TokenKey) -> TokenRecord | None:
        """Return the record of a key, or None."""
        ...

    async def save(self, record: TokenRecord) -> None:
        """Store a record, replacing the one with its key, whole or not at all."""
        ...

    async def delete(self, key: TokenKey) -> bool:
        """Delete the record of a key; return whether there was one."""
        ...

    async def records(self, *, resource: str | None = None, principal: str | None = None) -> Sequence[TokenRecord]:
        """Return the records of a resource, of a principal, or all, the newest first."""
        ...

    def locked(self, key: TokenKey, *, seconds: float) -> AbstractAsyncContextManager[None]:
        """Hold the record of a key alone, among all processes that use the store, so that a refresh happens once.

        The holder reads the record again before it renews the token.

        Raises:
            StoreError: Another holder keeps it for longer than these seconds.
        """
        ...
