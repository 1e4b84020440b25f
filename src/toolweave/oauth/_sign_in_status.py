"""The human-readable state of a stored sign-in: its principal, scopes and expiry. No token is in it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from toolweave._value import Value
from toolweave.oauth._records import TokenRecord

SignInState: TypeAlias = Literal["signed in", "renewable", "expired", "registered"]
"""Signed in; expired but renewed at the next use; expired; a client that is registered and has no token."""


class SignInStatus(Value, frozen=True, kw_only=True):
    """The state of a stored sign-in.

    Attributes:
        resource: The URL of the server that its token is for.
        issuer: The issuer of its token.
        client: The client that asked for it; see `TokenKey`.
        principal: The user on whose behalf; empty if there is only one.
        scopes: The scopes of the token.
        state: `signed in`, `renewable` if the token is renewed at its next use, `expired`, or `registered` if there is
            only a client so far.
        expires_at: When the token expires, in seconds since the epoch; None if that is not known.
        renewable: Whether there is a token that renews it.
    """

    resource: str
    issuer: str
    client: str
    principal: str
    scopes: tuple[str, ...]
    state: SignInState
    expires_at: float | None
    renewable: bool

    @classmethod
    def of(cls, record: TokenRecord, *, now: float | None = None) -> SignInStatus:
        """Return the state of a record.

        Args:
            record: The record.
            now: The time in seconds since the epoch.
        """
        if now is None:
            now = time.time()
        renewable = record.refresh_token is not None
        until = record.expires_at
        state: SignInState
        if not record.access_token:
            state = "registered"
        elif until is None or until > now:
            state = "signed in"
        elif renewable:
            state = "renewable"
        else:
            state = "expired"
        return cls(
            resource=record.key.resource,
            issuer=record.key.issuer,
            client=record.key.client,
            principal=record.key.principal,
            scopes=record.scopes,
            state=state,
            expires_at=until,
            renewable=renewable,
        )

    @property
    def text(self) -> str:
        """The state in words, with its end."""
        return sign_in_text(self.state, self.expires_at)


def sign_in_text(state: SignInState, expires_at: float | None) -> str:
    """Return the state of a sign-in in words, with its end."""
    match state:
        case "signed in":
            return f"signed in{_end('until', expires_at)}"
        case "renewable":
            return "signed in; its token is renewed at the next use"
        case "expired":
            return f"expired{_end('since', expires_at)}"
        case "registered":
            return "registered, not signed in"


def _end(word: str, seconds: float | None) -> str:
    if seconds is None:
        return ""
    try:
        date = datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        # a server may name any number
        date = "a time that no calendar has"
    return f" {word} {date}"
