"""How the values that every call makes are filled at a third of the price. Knows none of them.

The `__init__` that `dataclasses` writes for a frozen class asks `object.__setattr__` for each field by its name.
The slots themselves can be set directly; the class stays as frozen for everybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["slot_setters"]


def slot_setters(cls: type, *names: str) -> Iterator[Callable[[object, Any], None]]:
    """Return what sets each of these slots of an instance, for the class's own `__init__`."""
    return (getattr(cls, name).__set__ for name in names)
