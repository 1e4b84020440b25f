"""How the values that every call makes are filled at a fraction of the price. Knows none of them.

The `__init__` that `dataclasses` writes for a frozen class asks `object.__setattr__` for each field by its name.
The slots themselves can be set directly; the class stays as frozen for everybody else. What is made in great numbers
can be made without `__init__` and its keywords: filled as an instance of a mutable class with the same slots, which
then becomes one of the frozen class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["mutable_twin", "slot_setters"]


def slot_setters(cls: type, *names: str) -> Iterator[Callable[[object, Any], None]]:
    """Return what sets each of these slots of an instance, for the class's own `__init__`."""
    return (getattr(cls, name).__set__ for name in names)


def mutable_twin(cls: type) -> Any:  # Any: it has the attributes of `cls`, and an instance ends as one of that
    """Return a class with the slots of a frozen dataclass whose instances can be filled by plain assignment.

    Python lets an instance change to a class of the same layout: same bases, same slots. Filling every slot of a twin
    and assigning `__class__` takes a fifth of the instructions of calling the class itself.
    """
    own = {name: getattr(object, name) for name in ("__init__", "__setattr__", "__delattr__")}  # not those of a base
    return type(f"{cls.__name__}Twin", cls.__bases__, {"__slots__": cls.__dict__["__slots__"], **own})
