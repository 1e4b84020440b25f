"""The values that a caller's headers and claims have for the servers that get them: `forward_headers`, `claim_headers`.

A value decides which connections a request uses, so it is read strictly: a header that is there twice, is too long or
has control characters is refused, and nothing is cut, joined or guessed.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from toolweave._json_types import as_number
from toolweave.config import Secret, ServerConfig
from toolweave.errors import ErrorKind, ToolError
from toolweave.serve import Client
from toolweave.serve._http.asgi import VisibleHeaders
from toolweave.tools.selection import member_of

_log = logging.getLogger("toolweave.gateway")

_MAX_BYTES = 4096
_VALUE = re.compile(r"[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?")
"""A value as it may stand in a header (RFC 9110, 5.5), each byte as one character."""

Values: TypeAlias = Mapping[str, Mapping[str, Secret]]
"""The headers of a caller by server; a server that the caller cannot use is missing."""


def values_for(configs: Iterable[ServerConfig], headers: Mapping[str, str], client: Client) -> Values:
    """Return the headers that a request gives for each server that gets some.

    Args:
        configs: The servers.
        headers: The headers of the request.
        client: The client that sent it.

    Raises:
        ToolError: A header is there twice, is too long, or has characters that no header may have.
    """
    found: dict[str, Mapping[str, Secret]] = {}
    for config in configs:
        claims = {name: _claimed(client, claim) for name, claim in config.claim_headers.items()}
        if None in claims.values():
            _log.info("server %r is not offered to a caller without the claims of 'claim_headers'", config.name)
            continue
        values = {name: _forwarded(headers, name) for name in config.forward_headers} | claims
        found[config.name] = {name: Secret(value) for name, value in values.items() if value is not None}
    return found


def digest_of(values: Values) -> str:
    """Return a text that is the same for the same values alone, and does not show them."""
    plain = {server: {name: value.reveal() for name, value in given.items()} for server, given in values.items()}
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()


def with_headers(config: ServerConfig, own: Mapping[str, Secret]) -> ServerConfig:
    """Return the settings of a server for one caller, whose headers are sent with every request."""
    fixed = config.headers
    if not callable(fixed):
        return config.replace(headers={**_without(fixed, own), **own}, forward_headers=(), claim_headers={})

    async def joined() -> Mapping[str, Any]:
        made: Any = fixed()
        if inspect.isawaitable(made):
            made = await made
        return {**_without(made, own), **own}

    return config.replace(headers=joined, forward_headers=(), claim_headers={})


def _without(headers: Mapping[str, str | Secret], own: Mapping[str, Secret]) -> dict[str, str | Secret]:
    """Return the headers of the config beside the caller's own: of two values a server may take either."""
    names = {name.lower() for name in own}
    return {name: value for name, value in headers.items() if name.lower() not in names}


def _forwarded(headers: Mapping[str, str], name: str) -> str | None:
    """Return the value of a header of a request; None if it is missing or empty."""
    values: Sequence[str]
    if isinstance(headers, VisibleHeaders):
        values = headers.all_values(name)
    else:
        values = [value for known, value in headers.items() if known == name.lower()]
    values = [stripped for value in values if (stripped := value.strip(" \t"))]
    if not values:
        return None
    if len(values) > 1:
        raise _refused(f"this request has the header {name!r} more than once; send it once")
    (value,) = values
    if len(value) > _MAX_BYTES:
        raise _refused(f"the header {name!r} of this request is longer than {_MAX_BYTES} bytes; send a shorter value")
    if _VALUE.fullmatch(value) is None:
        raise _refused(f"the header {name!r} of this request has a control character; send it without")
    return value


def _refused(text: str) -> ToolError:
    return ToolError(text, kind=ErrorKind.NOT_SENT)


def _claimed(client: Client, claim: str) -> str | None:
    """Return a claim as the value of a header; None if it is missing or has no form in a header."""
    value = member_of(client.claims, claim)
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = value
    elif as_number(value) is not None:
        text = str(value)
    else:
        return None
    if len(text) > _MAX_BYTES or not text.isascii() or _VALUE.fullmatch(text) is None:
        return None
    return text
