"""A request that the MCP server has refused, as a connection passes it to the authorizer of its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from toolweave._value import Value

MAX_RESENDS = 6
"""The maximum number of times that one refused request is sent again: for a nonce, a new token, more scopes."""


class AuthChallenge(Value, frozen=True, kw_only=True):
    """A request that its server has refused: 401, or 403.

    Attributes:
        method: The HTTP method of the request.
        url: The URL of the request.
        status: The HTTP status of the answer.
        headers: The headers of the answer, in lower case: `www-authenticate` has the challenge (RFC 9110, 11.6.1);
            repeated ones are joined by commas.
        sent: The headers that the hook had given for the request.
        operation: The MCP method of the request's message, with the name of its tool, prompt or resource, such as
            `tools/call NAME`.
        attempt: The number of times that this request was refused before.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"url", "sent"})
    method: str
    url: str
    status: int
    headers: Mapping[str, str]
    sent: Mapping[str, str]
    operation: str = ""
    attempt: int = 0
