"""The types of a server's options: a wrong one is refused by `create_mcp_server`, with the type to pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from toolweave.jobs._queue import WorkBackend
from toolweave.state import Store
from toolweave.tools._option_checks import check_type

_TYPES: Mapping[str, tuple[type, str]] = {
    "instructions": (str, "a string or None"),
    "page_size": (int, "a whole number, or None for one page"),
    "ttl_ms": (int, "a whole number of milliseconds"),
    "tasks": (Mapping, "a mapping of tool names to rules"),
    "store": (Store, "a store, such as SqliteStore(path), or None"),
    "backend": (WorkBackend, "a backend, such as Backend(url), or None"),
    "logging": (bool, "True or False"),
}


class TypedOptions(Protocol):
    """The options that are checked."""

    @property
    def store(self) -> object:
        """The store."""
        ...

    @property
    def backend(self) -> object:
        """The backend."""
        ...


def check_option_types(options: TypedOptions) -> None:
    """Validate the types of a server's options.

    Raises:
        TypeError: An option has another type.
        ValueError: There are both a store and a backend.
    """
    for option, (kinds, expected) in _TYPES.items():
        check_type(option, getattr(options, option), kinds, expected)
    if options.store is not None and options.backend is not None:
        raise ValueError("a backend includes a store; give store= or backend=, not both")
