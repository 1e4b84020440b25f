"""Records as JSON, their names, and which of them are asked for; the same for every store."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from toolweave._json import decode_json
from toolweave.errors import StoreError
from toolweave.oauth._records import TokenKey, TokenRecord


def digest(*parts: str) -> str:
    """Return a name for these texts, the same in every process, from which they cannot be read."""
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def name_of(key: TokenKey) -> str:
    """Return the name of a stored record, from which no part of its key can be read."""
    return digest(key.issuer, key.resource, key.client, key.principal)


def write_record(record: TokenRecord) -> bytes:
    """Return a record as JSON, secrets included."""
    return msgspec.json.encode(record)


def read_record(data: bytes | str) -> TokenRecord:
    """Return the record of a JSON text.

    Raises:
        StoreError: The text is not a record. No part of it is in the message.
    """
    try:
        return decode_json(data, TokenRecord)
    except (ValueError, RecursionError):
        # without their message, which quotes the text
        raise StoreError("a record is damaged: it is not a token") from None


def newest_first(
    records: Iterable[TokenRecord], *, resource: str | None = None, principal: str | None = None
) -> list[TokenRecord]:
    """Return the records of a resource, of a principal, or all, the newest first."""
    found = [one for one in records if one.key.is_of(resource, principal)]
    return sorted(found, key=lambda one: one.saved_at, reverse=True)
