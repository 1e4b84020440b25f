"""The envelope in a modern request's `_meta` as a `Client`.

Independent of the transport; the headers that repeat parts of it over HTTP are checked elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from toolweave.errors import RequestError
from toolweave.protocol.codes import INVALID_PARAMS, UNSUPPORTED_VERSION
from toolweave.protocol.logs import LEVELS
from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve._request import Client, Json


def has_envelope(params: Mapping[str, Any]) -> bool:
    """Whether a request is of the modern era: its `_meta` names a protocol version, valid or not."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION in meta


def client_of_envelope(
    params: Mapping[str, Any], versions: Sequence[str], *, principal: str | None = None, name: str | None = None
) -> Client:
    """Return the client that sent a request of the modern era.

    Args:
        params: The request's parameters.
        versions: The revisions that are served, newest first; a client of another gets an error.
        principal: The authorized principal, or None.
        name: The conversation it came in, or None.

    Raises:
        RequestError: The envelope is incomplete (-32602), or of an unsupported revision (-32022).
    """
    meta = params.get("_meta")
    members = cast("Json", meta) if isinstance(meta, dict) else {}
    for key, kind in ((PROTOCOL_VERSION, str), (CLIENT_CAPABILITIES, dict)):
        if not isinstance(members.get(key), kind):
            raise RequestError(f"params._meta must have {key!r}, {_KINDS[kind]}", code=INVALID_PARAMS)
    if members[PROTOCOL_VERSION] != MODERN_VERSION:
        raise unsupported_version(members[PROTOCOL_VERSION], versions)
    malformed = _malformed(members)
    if malformed is not None:
        raise RequestError(f"params._meta: {malformed}", code=INVALID_PARAMS)
    info = members.get(CLIENT_INFO)
    return Client(
        version=MODERN_VERSION,
        capabilities=members[CLIENT_CAPABILITIES],
        info=cast("Json", info) if isinstance(info, dict) else None,
        principal=principal,
        conversation=name,
    )


def client_of_handshake(
    params: Mapping[str, Any],
    result: Mapping[str, Any],
    *,
    conversation: str,
    principal: str | None = None,
) -> Client:
    """Return the client that a successful handshake began with.

    Args:
        params: The parameters of `initialize` as they came.
        result: Its result.
        conversation: The conversation that begins.
        principal: The authorized principal, or None.
    """
    capabilities = params.get("capabilities")
    info = params.get("clientInfo")
    return Client(
        version=result["protocolVersion"],
        capabilities=cast("Json", capabilities) if isinstance(capabilities, dict) else {},
        info=cast("Json", info) if isinstance(info, dict) else None,
        principal=principal,
        conversation=conversation,
    )


def is_whole(meta: Json) -> bool:
    """Whether a `_meta` has every required member of the era, and no malformed optional one."""
    right = meta.get(PROTOCOL_VERSION) == MODERN_VERSION and isinstance(meta.get(CLIENT_CAPABILITIES), dict)
    return right and _malformed(meta) is None


def _malformed(meta: Json) -> str | None:
    """Return the problem of a malformed optional member, or None."""
    odd = [name for name, value in meta[CLIENT_CAPABILITIES].items() if not isinstance(value, dict)]
    if odd:
        return f"the capability {odd[0]!r} in {CLIENT_CAPABILITIES!r} must be an object"
    info = meta.get(CLIENT_INFO)
    if info is not None and not _is_implementation(info):
        return f"{CLIENT_INFO!r} must be an object with 'name' and 'version', both strings"
    if LOG_LEVEL in meta and meta[LOG_LEVEL] not in LEVELS:  # a tuple, no set: `[]` has no hash
        return f"{LOG_LEVEL!r} must be one of {', '.join(LEVELS)}"
    token = meta.get("progressToken", 0)
    if not isinstance(token, int | str) or isinstance(token, bool):
        return "'progressToken' must be a string or an integer"
    if isinstance(token, str) and len(token) > MAX_TOKEN:
        return f"'progressToken' must have at most {MAX_TOKEN:,} characters"
    return None


def _is_implementation(info: object) -> bool:
    if not isinstance(info, dict):
        return False
    members = cast("Json", info)
    return isinstance(members.get("name"), str) and isinstance(members.get("version"), str)


MAX_TOKEN = 1_024
"""Characters of a progress token, which is sent back with each report of progress."""
_KINDS = {str: "a string", dict: "an object"}


def unsupported_version(requested: object, versions: Sequence[str]) -> RequestError:
    """Return the refusal of a revision that is not served, with those that are, newest first."""
    data: Json = {"supported": list(versions)}
    if isinstance(requested, str):
        data["requested"] = requested
    return RequestError("Unsupported protocol version", code=UNSUPPORTED_VERSION, data=data)
