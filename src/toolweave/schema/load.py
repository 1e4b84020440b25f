"""From JSON back to values of a type, for programs that read results; the JSON stays the truth.

Knows neither where a type comes from nor what a tool is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolweave.errors import SchemaError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Load"]


class Load:
    """Turns a JSON value into a value of a type; returns it as it is where it does not fit.

    Args:
        make: Makes the type's adapter, when the first value is turned: that takes pydantic milliseconds. It may raise
            `SchemaError` for a type that has no JSON form; all values are then returned as they are.
    """

    __slots__ = ("_adapter", "_make")

    def __init__(self, make: Callable[[], TypeAdapter[Any]]) -> None:
        self._make = make
        self._adapter: TypeAdapter[Any] | bool = True

    def __call__(self, value: Any) -> Any:
        """Return the value of the type that a JSON value stands for."""
        if self._adapter is True:
            try:
                self._adapter = self._make()
            except SchemaError:
                self._adapter = False
        if isinstance(self._adapter, bool):
            return value
        try:
            return self._adapter.validate_python(value)
        except ValueError:
            return value
