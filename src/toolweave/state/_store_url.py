"""Stores by path or URL.

Opens nothing yet: a store opens when it is used.
"""

from __future__ import annotations

from urllib.parse import unquote

from toolweave.errors import StoreError
from toolweave.state._memory import MemoryStore
from toolweave.state._redis_address import REDIS_SCHEMES, split_name
from toolweave.state.store import Store


def open_store(text: str) -> Store:
    """Return the store that a path or a URL names.

    A path, or `sqlite:///relative.db`, `sqlite:////absolute.db`, is a `SqliteStore`; `redis://`, `rediss://` (TLS),
    `valkey://`, `valkeys://`, `unix://` and, with Sentinels, `redis+sentinel://` are a `RedisStore`, with `?name=` in
    the URL that of the backend with this name; `memory://` is a `MemoryStore`.

    Raises:
        TypeError: It is not a text.
        StoreError: The URL is empty, has another scheme, or is not understood. The message has no secret.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers pass anything
        raise TypeError(f"open_store takes a path or a URL as a text, not {type(text).__name__}")
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not text.strip():
        raise StoreError("a store has no name: expected a path, sqlite:///path or redis://host:port/database")
    if separator and scheme in REDIS_SCHEMES:
        from toolweave.state._redis import RedisStore  # each kind of store is imported where it is wanted

        address, name = split_name(text)
        try:
            return RedisStore(address, prefix=name or "toolweave")
        except ValueError as exc:
            raise StoreError(f"the name in the URL: {exc}") from None
    if separator and scheme == "memory":
        return MemoryStore()
    if separator and scheme != "sqlite":
        kinds = ", ".join(f"{known}://" for known in sorted([*REDIS_SCHEMES, "memory", "sqlite"]))
        raise StoreError(f"no store is known as {scheme}://; expected a path, or one of {kinds}")
    from toolweave.state._sqlite import SqliteStore

    if not separator:
        return SqliteStore(text)
    path = unquote(rest.removeprefix("/"))
    if not path or not rest.startswith("/"):
        raise StoreError("sqlite:// names no file; expected sqlite:///relative.db or sqlite:////absolute.db")
    return SqliteStore(path)
