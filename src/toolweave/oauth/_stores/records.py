"""Records as JSON, their names, and which of them are asked for; the same for every store."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from toolweave._json import decode_json
from toolweave.errors import StoreError
from toolweave.oauth._records import TokenKey, TokenRecord


def digest(*parts: str) -> str:
    """Return a name for these texts that says nothing of them, the same in every process."""
    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def name_of(key: TokenKey) -> str:
    """Return the name under which a record is kept: no part of a key can be read from it."""
    return digest(key.issuer, key.resource, key.client, key.principal)


def write_record(record: TokenRecord) -> bytes:
    """Return a record as JSON, secrets included."""
    return msgspec.json.encode(record)


def read_record(data: bytes | str) -> TokenRecord:
    """Return the record of a JSON text.

    Raises:
        StoreError: It is none; no part of it is in the message.
    """
    try:
        return decode_json(data, TokenRecord)
    except (ValueError, RecursionError):  # whose message quotes the text
        raise StoreError("a record is damaged: it is no token") from None


def newest_first(
    records: Iterable[TokenRecord], *, resource: str | None = None, principal: str | None = None
) -> list[TokenRecord]:
    """Return the records of a resource, of a principal, or all, the newest first."""
    found = [one for one in records if resource in (None, one.key.resource) and principal in (None, one.key.principal)]
    return sorted(found, key=lambda one: one.saved_at, reverse=True)
