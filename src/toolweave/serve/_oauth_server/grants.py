"""Grants of people to clients, in a store: sign-ins, codes, grants with the provider's tokens, refresh tokens."""

# The store contains no usable credential: of random values it has digests, and the provider's tokens are encrypted.
# Each document is used up at the revision that was read, so of two requests at the same time, on any replica, one
# succeeds. A used code or refresh token stays in the store for a while: a second use is then noticed and revokes the
# grant, which ends all tokens of it. No token lives longer than its grant.

from __future__ import annotations

import time
from typing import Any, ClassVar

import msgspec

from toolweave._json_types import JsonObject
from toolweave._value import Value
from toolweave.serve._oauth_server.keys import ServerKeys, digest, new_secret
from toolweave.state import Put, Store

_SIGN_INS = "toolweave.oauth.sign_ins"
CODES = "toolweave.oauth.codes"
GRANTS = "toolweave.oauth.grants"
REFRESH = "toolweave.oauth.refresh"
_SIGN_IN_SECONDS = 600.0
_CODE_SECONDS = 60.0
_USED_CODE_SECONDS = 3600.0
_SEALED = "upstream tokens"
_FORM = "sign-ins"


class PendingSignIn(Value, frozen=True, kw_only=True):
    """An authorization request whose person has yet to sign in.

    Attributes:
        client_id: The client that asks.
        redirect_uri: The URI for its answer.
        state: Its state, empty for none.
        challenge: Its PKCE challenge.
        scopes: The scopes that it asks for.
        verifier: The PKCE verifier for the provider, once the person has consented.
        nonce: The nonce for the provider.
        thumbprint: The thumbprint of the key for redeeming the code (RFC 9449, 10), empty for any.
        resource: The endpoint for its token, empty for the endpoint of the server.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"state", "verifier", "nonce"})

    client_id: str
    redirect_uri: str
    state: str
    challenge: str
    scopes: tuple[str, ...]
    verifier: str = ""
    nonce: str = ""
    thumbprint: str = ""
    resource: str = ""


class Code(Value, frozen=True, kw_only=True):
    """An authorization code that was given to a client.

    Attributes:
        grant: The id of the grant.
        thumbprint: The thumbprint of the key for redeeming it, empty for any or none.
        resource: The endpoint for its token, empty for the endpoint of the server.
        used: Whether it was redeemed; a second try then revokes the grant.
    """

    grant: str
    client_id: str
    redirect_uri: str
    challenge: str
    scopes: tuple[str, ...]
    thumbprint: str = ""
    resource: str = ""
    used: bool = False


class Grant(Value, frozen=True, kw_only=True):
    """A person's grant to a client; its tokens are valid while it exists.

    Attributes:
        client_id: The client.
        subject: The person, at the provider.
        scopes: The scopes.
        sealed: The provider's tokens, encrypted.
        ends_at: When it ends, in seconds since the epoch.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"sealed"})

    client_id: str
    subject: str
    scopes: tuple[str, ...]
    sealed: str
    ends_at: float


class RefreshToken(Value, frozen=True, kw_only=True):
    """A refresh token; a used one stays, so that its reuse is noticed.

    Attributes:
        thumbprint: The thumbprint of the key that it is bound to, or "".
        resource: The endpoint for its tokens, empty for the endpoint of the server.
    """

    grant: str
    client_id: str
    scopes: tuple[str, ...]
    thumbprint: str = ""
    resource: str = ""
    used: bool = False


class GrantStore:
    """The grants of one authorization server.

    Args:
        store: Stores the grants.
        keys: Encrypts the provider's tokens.
        seconds: How long a grant lasts, however often it is refreshed.
    """

    def __init__(self, store: Store, keys: ServerKeys, seconds: float) -> None:
        self._store = store
        self._keys = keys
        self._seconds = seconds

    # sign-ins

    def form(self, sign_in: PendingSignIn) -> str:
        """Return a sealed sign-in for the form that asks the person; until they consent, nothing of it is stored."""
        return self._keys.seal(_FORM, msgspec.to_builtins(sign_in))

    def of_form(self, sealed: str) -> PendingSignIn | None:
        """Return the sign-in of a form; None if it is older than ten minutes, or not a form of ours."""
        found = self._keys.unseal(_FORM, sealed, seconds=int(_SIGN_IN_SECONDS))
        if found is None:
            return None
        return msgspec.convert(found, PendingSignIn)

    async def begin(self, sign_in: PendingSignIn) -> str:
        """Store a sign-in for ten minutes; return its id."""
        name = new_secret()
        await self._store.put(_SIGN_INS, digest(name), msgspec.to_builtins(sign_in), ttl=_SIGN_IN_SECONDS)
        return name

    async def use_sign_in(self, name: str) -> PendingSignIn | None:
        """Return a sign-in, once."""
        found = await self._store.get(_SIGN_INS, digest(name))
        if found is None:
            return None
        # Only the request whose deletion succeeds gets it: of two callbacks at once, one is a replay.
        if not await self._store.delete(_SIGN_INS, digest(name), expect=found.revision):
            return None
        return msgspec.convert(found.value, PendingSignIn)

    # codes

    async def grant(self, sign_in: PendingSignIn, subject: str, tokens: JsonObject) -> str:
        """Store a grant, and return the code for it."""
        name = new_secret()
        code = new_secret()
        grant = Grant(
            client_id=sign_in.client_id,
            subject=subject,
            scopes=sign_in.scopes,
            sealed=self._keys.seal(_SEALED, tokens),
            ends_at=time.time() + self._seconds,
        )
        made = Code(
            grant=name,
            client_id=sign_in.client_id,
            redirect_uri=sign_in.redirect_uri,
            challenge=sign_in.challenge,
            scopes=sign_in.scopes,
            thumbprint=sign_in.thumbprint,
            resource=sign_in.resource,
        )
        await self._store.write(
            [
                # until the code is redeemed; a person who closes the window leaves no grant behind
                Put(collection=GRANTS, key=digest(name), value=msgspec.to_builtins(grant), ttl=2 * _CODE_SECONDS),
                Put(collection=CODES, key=digest(code), value=msgspec.to_builtins(made), ttl=_CODE_SECONDS),
            ]
        )
        return code

    async def code(self, code: str) -> Code | None:
        """Return the record of a code; one that was used revokes its grant (RFC 6749, 4.1.2)."""
        found = await self._store.get(CODES, digest(code))
        if found is None:
            return None
        made = msgspec.convert(found.value, Code)
        if made.used:
            await self.revoke(made.grant)
            return None
        return made

    async def use_code(self, code: str) -> Grant | None:
        """Use up a code and return its grant, which lasts from now on; a second use revokes it."""
        found = await self._store.get(CODES, digest(code))
        if found is None:
            return None
        made = msgspec.convert(found.value, Code)
        grant = await self.find(made.grant)
        if grant is None or made.used:
            await self.revoke(made.grant)
            return None
        used = msgspec.to_builtins(made.replace(used=True))
        lasting = Put(
            collection=GRANTS, key=digest(made.grant), value=msgspec.to_builtins(grant), ttl=self._left(grant)
        )
        taken = Put(collection=CODES, key=digest(code), value=used, ttl=_USED_CODE_SECONDS, expect=found.revision)
        # One write, which fails if the code was used since it was read. Then two parties have the code, and one of
        # them is not the client: the grant ends for both (RFC 6749, 4.1.2). A used code is kept for a while, since an
        # expired one could not be distinguished from one that is tried twice.
        if await self._store.write([taken, lasting]) is None:
            await self.revoke(made.grant)
            return None
        return grant

    # grants

    async def find(self, name: str) -> Grant | None:
        """Return a grant, or None if it was revoked or has ended."""
        found = await self._store.get(GRANTS, digest(name))
        if found is None:
            return None
        return msgspec.convert(found.value, Grant)

    async def revoke(self, name: str) -> None:
        """End a grant, and with it all its tokens."""
        await self._store.delete(GRANTS, digest(name))

    def tokens_of(self, grant: Grant) -> dict[str, Any]:
        """Return the provider's tokens of a grant; nothing if they cannot be decrypted any longer."""
        return self._keys.unseal(_SEALED, grant.sealed) or {}

    async def keep_tokens(self, name: str, grant: Grant, tokens: JsonObject) -> None:
        """Store the renewed tokens of the provider for a grant, unless it was revoked meanwhile."""
        # With the revision that was read, and only if it is there: a grant that is revoked during the renewal must not
        # return with the new tokens.
        found = await self._store.get(GRANTS, digest(name))
        if found is not None:
            value = msgspec.to_builtins(grant.replace(sealed=self._keys.seal(_SEALED, tokens)))
            await self._store.put(GRANTS, digest(name), value, ttl=self._left(grant), expect=found.revision)

    # refresh tokens

    async def refresh_token(self, made: RefreshToken, grant: Grant) -> str:
        """Make a refresh token of a grant."""
        token = new_secret()
        value = msgspec.to_builtins(made)
        await self._store.put(REFRESH, digest(token), value, ttl=self._left(grant))
        return token

    async def refresh(self, token: str) -> RefreshToken | None:
        """Return the record of a refresh token; one that was used revokes its grant: one of its two users stole it."""
        found = await self._store.get(REFRESH, digest(token))
        if found is None:
            return None
        made = msgspec.convert(found.value, RefreshToken)
        if made.used:
            await self.revoke(made.grant)
            return None
        return made

    async def use_refresh(self, token: str, *, used: bool = True) -> bool:
        """Mark a refresh token as used, once; `used=False` makes it usable again after a failure of the provider."""
        found = await self._store.get(REFRESH, digest(token))
        if found is None:
            return False
        made = msgspec.convert(found.value, RefreshToken)
        if made.used and used:
            await self.revoke(made.grant)
            return False
        left = None
        if found.expires_at is not None:
            left = max(1.0, found.expires_at - time.time())
        value = msgspec.to_builtins(made.replace(used=used))
        # Two uses at once: both read an unused token, one write fails. As with a code, one of the two is not the
        # client, and the grant ends.
        if await self._store.put(REFRESH, digest(token), value, ttl=left, expect=found.revision) is None:
            await self.revoke(made.grant)
            return False
        return True

    def _left(self, grant: Grant) -> float:
        return max(1.0, grant.ends_at - time.time())
