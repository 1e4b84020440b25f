"""The kinds of options that are stores, and of the options of stores."""

from __future__ import annotations

from toolweave._option_checks import FUNCTION, instance_of
from toolweave.state.store import Store

__all__ = ["CLOCK", "STORE"]

STORE = instance_of(Store, "a store, such as SqliteStore(path) or open_store(url)")
CLOCK = FUNCTION._replace(shown="a function that returns the time in seconds").or_none
