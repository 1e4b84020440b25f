"""The stored sign-in of an earlier run, for a server that may or may not require one.

An `AuthHook` of `toolweave.connect`, which it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolweave.config import OAuth
from toolweave.oauth._auth_challenge import MAX_RESENDS, AuthChallenge
from toolweave.oauth._defaults import default_token_store
from toolweave.oauth.metadata import resource_of

if TYPE_CHECKING:
    from toolweave.oauth._token_source import TokenSource


class StoredSignIn:
    """The authorization of requests to a server that may require none: a stored token, after a request was refused.

    The store is not read before. Without a stored sign-in, the refusal stays as it is.

    Attributes:
        max_resends: The maximum number of times that one refused request is sent again.
        only_stored: Whether requests have credentials only if a person has signed in to the server before.
    """

    max_resends = MAX_RESENDS
    only_stored = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._source: TokenSource | None = None

    @property
    def problems(self) -> tuple[str, ...]:
        """The answers of the authorization server that differ from the standards, each once."""
        if self._source is None:
            return ()
        return self._source.problems

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize a request; none until a request was refused.

        Raises:
            ConnectError: The token has expired, and could not be renewed now.
            StoreError: The store cannot be read.
        """
        if self._source is None:
            return _NONE
        return await self._source.headers(method, url)

    async def challenged(self, challenge: AuthChallenge) -> Mapping[str, str] | None:
        """Return the headers with which a refused request is sent again, or None to leave it refused.

        Raises:
            AuthRequiredError: The stored token is no longer valid.
            ConnectError: The authorization server did not respond.
            StoreError: The store cannot be read or written.
        """
        if self._source is not None:
            return await self._source.challenged(challenge)
        if challenge.status != 401:
            return None
        records = await default_token_store().records(resource=resource_of(self._url), principal="")
        if not any(record.access_token for record in records):
            return None
        # Imported late: most servers require no sign-in.
        from toolweave.oauth._token_source import token_source

        self._source = token_source(OAuth(), self._url, server=self._url)
        return await self._source.headers(challenge.method, challenge.url) or None

    def answered(self, url: str, headers: Mapping[str, str]) -> None:
        """Store the nonce of an answer for the next proof."""
        if self._source is not None:
            self._source.answered(url, headers)


_NONE: Mapping[str, str] = {}
