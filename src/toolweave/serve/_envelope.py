"""The envelope in a modern request's `_meta` as a `Client`.

Independent of the transport; the headers that repeat parts of it over HTTP are checked elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolweave._json_types import as_object, object_or_empty
from toolweave.errors import RequestError
from toolweave.protocol.codes import INVALID_PARAMS, UNSUPPORTED_VERSION
from toolweave.protocol.logs import LEVELS
from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.serve.request import Client, Identity, Json, MayUse


def has_envelope(params: Mapping[str, Any]) -> bool:
    """Whether a request is of the modern era: its `_meta` names a protocol version, valid or not."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION in meta


def checked_envelope(params: Mapping[str, Any], versions: Sequence[str]) -> Mapping[str, Any]:
    """Return the `_meta` of a request of the modern era.

    Args:
        params: The request's parameters.
        versions: The revisions that are served, newest first; a client of another gets an error.

    Raises:
        RequestError: The envelope is incomplete (-32602), or of an unsupported revision (-32022).
    """
    members = object_or_empty(params.get("_meta"))
    for key, kind in ((PROTOCOL_VERSION, str), (CLIENT_CAPABILITIES, dict)):
        if not isinstance(members.get(key), kind):
            raise RequestError(f"params._meta must have {key!r}, {_KINDS[kind]}", code=INVALID_PARAMS)
    # Before the optional members: a client of another revision gets the supported ones, and not an error about a member
    # that its revision may define differently.
    if members[PROTOCOL_VERSION] != MODERN_VERSION:
        raise unsupported_version(members[PROTOCOL_VERSION], versions)
    malformed = _malformed(members)
    if malformed is not None:
        raise RequestError(f"params._meta: {malformed}", code=INVALID_PARAMS)
    return members


def client_of(
    meta: Mapping[str, Any],
    identity: Identity | None = None,
    may: MayUse | None = None,
    conversation: str | None = None,
) -> Client:
    """Return the client that sent a request of the modern era: the one place that makes it, for every transport.

    Args:
        meta: The `_meta` of the request, which was checked.
        identity: The authenticated identity; None without authorization.
        may: The offers that it may use; None for all.
        conversation: The conversation that the request arrived in, or None.
    """
    return Client(
        version=MODERN_VERSION,
        capabilities=meta[CLIENT_CAPABILITIES],
        info=meta.get(CLIENT_INFO),
        principal=None if identity is None else identity.principal,
        conversation=conversation,
        may=may,
        identity=identity,
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
    return Client(
        version=result["protocolVersion"],
        capabilities=object_or_empty(params.get("capabilities")),
        info=as_object(params.get("clientInfo")),
        principal=principal,
        conversation=conversation,
    )


def is_whole(meta: Mapping[str, Any]) -> bool:
    """Whether a `_meta` has every required member of the era, and no malformed optional one."""
    if meta.get(PROTOCOL_VERSION) != MODERN_VERSION or not isinstance(meta.get(CLIENT_CAPABILITIES), dict):
        return False
    return _malformed(meta) is None


def _malformed(meta: Mapping[str, Any]) -> str | None:
    """Return the problem of a malformed optional member, or None."""
    for name, value in meta[CLIENT_CAPABILITIES].items():
        if not isinstance(value, dict):
            return f"the capability {name!r} in {CLIENT_CAPABILITIES!r} must be an object"
    info = meta.get(CLIENT_INFO)
    if info is not None and not _is_implementation(info):
        return f"{CLIENT_INFO!r} must be an object with 'name' and 'version', both strings"
    # a tuple, not a set: `[]` has no hash
    if LOG_LEVEL in meta and meta[LOG_LEVEL] not in LEVELS:
        return f"{LOG_LEVEL!r} must be one of {', '.join(LEVELS)}"
    token = meta.get("progressToken", 0)
    if isinstance(token, bool) or not isinstance(token, int | str):
        return "'progressToken' must be a string or an integer"
    if isinstance(token, str) and len(token) > MAX_TOKEN:
        return f"'progressToken' must have at most {MAX_TOKEN:,} characters"
    return None


def _is_implementation(info: object) -> bool:
    members = as_object(info)
    if members is None:
        return False
    return isinstance(members.get("name"), str) and isinstance(members.get("version"), str)


def is_progress_token(token: object) -> bool:
    """Return whether a caller gets progress under this token: a text of up to `MAX_TOKEN` characters, or an integer."""
    if isinstance(token, str):
        return len(token) <= MAX_TOKEN
    return isinstance(token, int) and not isinstance(token, bool)


MAX_TOKEN = 1_024
"""Characters of a progress token, which is sent back with each report of progress."""
_KINDS = {str: "a string", dict: "an object"}


def unsupported_version(requested: object, versions: Sequence[str]) -> RequestError:
    """Return the error for a revision that is not served, with those that are, newest first."""
    data: Json = {"supported": list(versions)}
    if isinstance(requested, str):
        data["requested"] = requested
    return RequestError("Unsupported protocol version", code=UNSUPPORTED_VERSION, data=data)
