"""Kinds of client messages, for every transport: requests, notifications, and messages that are neither."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from toolweave.protocol.jsonrpc import RequestId, StrictMessage


def is_notification(message: StrictMessage) -> bool:
    """Whether a message has a method and no id, so that no response is due."""
    return message.id is msgspec.UNSET and message.method is not msgspec.UNSET


def fault_of(message: StrictMessage) -> str | None:
    """Return why a message that is not a response is neither a request nor a notification, or None."""
    if message.id is None:
        return "'id' must be a string or an integer"
    if message.method is msgspec.UNSET:
        return "it has no 'method'"
    return None


def answerable_id(message: StrictMessage) -> RequestId | None:
    """Return the id that an error for a message repeats, or None."""
    if message.is_answer or not isinstance(message.id, int | str):
        return None
    return message.id


def cancelled_id(params: Mapping[str, Any]) -> RequestId | None:
    """Return the id of the request that `notifications/cancelled` names, or None if it is not an id."""
    key = params.get("requestId")
    if isinstance(key, bool):  # which Python counts as an integer, and JSON-RPC does not
        return None
    if isinstance(key, int | str):
        return key
    return None
