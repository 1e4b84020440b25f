"""Fast construction of the frozen dataclasses that every call makes.

The `__init__` that `dataclasses` writes for a frozen class calls `object.__setattr__` for each field by name.
Setting the slots directly is faster, and the class stays frozen for every user. Instances made in great numbers skip
`__init__` and its keywords too: they are filled as instances of a mutable class with the same slots, whose
`__class__` is then set to the frozen class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["mutable_twin", "slot_setters"]


def slot_setters(cls: type, *names: str) -> Iterator[Callable[[object, Any], None]]:
    """Return a setter for each of these slots, for the class's own `__init__`."""
    return (getattr(cls, name).__set__ for name in names)


def mutable_twin(cls: type) -> Any:  # Any: it has the attributes of `cls`, and an instance ends as one of that
    """Return a class with the slots of a frozen dataclass whose instances can be filled by plain assignment.

    Python lets an instance change to a class of the same layout: same bases, same slots. Filling every slot of a twin
    and assigning `__class__` takes a fifth of the instructions of calling the class itself.
    """
    own = {name: getattr(object, name) for name in ("__init__", "__setattr__", "__delattr__")}  # not those of a base
    return type(f"{cls.__name__}Twin", cls.__bases__, {"__slots__": cls.__dict__["__slots__"], **own})
