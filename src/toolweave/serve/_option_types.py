"""The types of a server's options: a wrong one is refused by `create_mcp_server`, with the type to pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from toolweave.jobs._queue import WorkBackend
from toolweave.serve._tools import ExposeErrors
from toolweave.state import Store
from toolweave.tools._option_checks import check_choice, check_type

_TYPES: Mapping[str, tuple[type, str]] = {
    "instructions": (str, "a string or None"),
    "page_size": (int, "a whole number, or None for one page"),
    "ttl_ms": (int, "a whole number of milliseconds"),
    "tasks": (Mapping, "a mapping of tool names to rules"),
    "store": (Store, "a store, such as SqliteStore(path), or None"),
    "backend": (WorkBackend, "a backend, such as Backend(url), or None"),
    "logging": (bool, "True or False"),
}
_CHOICES: Mapping[str, Sequence[object]] = {
    "cache_scope": ("private", "public"),
    "expose_errors": (*get_args(ExposeErrors), None),  # a slip must not unmask
}


def check_option_types(options: object) -> None:
    """Validate the types of a server's options, and the words among them.

    Raises:
        TypeError: An option has another type.
        ValueError: An option has another value than its few.
    """
    for option, (kinds, expected) in _TYPES.items():
        check_type(option, getattr(options, option), kinds, expected)
    for option, choices in _CHOICES.items():
        check_choice(option, getattr(options, option), choices)
