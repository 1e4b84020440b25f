"""The stored sign-in of an earlier run, for a server that may or may not require one.

An `AuthHook` of `toolweave.connect`, which it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolweave.config import OAuth
from toolweave.oauth._auth_challenge import MOST_RESENDS, AuthChallenge
from toolweave.oauth._defaults import default_token_store
from toolweave.oauth._metadata import resource_of

if TYPE_CHECKING:
    from toolweave.oauth._token_source import TokenSource


class StoredSignIn:
    """The authorization of requests to a server that may want none: a kept token, once a request was refused for it.

    The store is not looked into before. Without a stored sign-in, the refusal stays as it is.

    Attributes:
        max_resends: The number of times that one refused request is sent again at most.
        only_stored: That no request carries credentials unless a person has signed in to the server before.
    """

    max_resends = MOST_RESENDS
    only_stored = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._source: TokenSource | None = None

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize a request; none as long as none was refused.

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
            AuthRequiredError: The kept token is worth nothing any more.
            ConnectError: Its renewal did not work now.
            StoreError: The store cannot be read or written.
        """
        if self._source is not None:
            return await self._source.challenged(challenge)
        if challenge.status != 401:
            return None
        kept = await default_token_store().records(resource=resource_of(self._url), principal="")
        if not any(record.access_token for record in kept):
            return None
        from toolweave.oauth._token_source import token_source  # for servers that want a sign-in

        self._source = token_source(OAuth(), self._url, server=self._url)
        return await self._source.headers(challenge.method, challenge.url) or None

    def answered(self, url: str, headers: Mapping[str, str]) -> None:
        """Keep the nonce that an answer brings for the next proof."""
        if self._source is not None:
            self._source.answered(url, headers)


_NONE: Mapping[str, str] = {}
