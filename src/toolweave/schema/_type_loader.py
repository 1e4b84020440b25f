"""Conversion of JSON results to values of a type; the JSON stays authoritative.

Knows neither the origin of a type nor tools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolweave.errors import SchemaError
from toolweave.schema._json_values import JsonValue

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class TypeLoader:
    """A converter from JSON to values of a type; a value that does not fit is returned unchanged.

    Args:
        make: Makes the type's pydantic adapter at the first conversion, which takes milliseconds. It may raise
            `SchemaError` for a type that has no JSON form; all values are then returned unchanged.
        member: The member of an object that holds the value, if the adapter takes it out; also taken out of a value
            that does not fit.
    """

    __slots__ = ("_adapter", "_make", "_member")

    def __init__(self, make: Callable[[], TypeAdapter[Any]], *, member: str | None = None) -> None:
        self._make = make
        self._member = member
        self._adapter: TypeAdapter[Any] | bool = True

    def __call__(self, value: Any) -> Any:
        """Convert a JSON value to the type, or return it unchanged."""
        if self._adapter is True:
            try:
                self._adapter = self._make()
            except SchemaError:
                self._adapter = False
        if isinstance(self._adapter, bool):
            return self.plain(value)
        try:
            return self._adapter.validate_python(value)
        except ValueError:
            return self.plain(value)

    def plain(self, value: JsonValue) -> JsonValue:
        """Return the JSON that stands for the value: that of the member if the adapter takes it out."""
        if self._member is None or not isinstance(value, dict):
            return value
        return value.get(self._member, value)
