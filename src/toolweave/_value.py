"""The base of the values that nearly every call makes: frozen structs, built in C."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

if TYPE_CHECKING:
    import inspect


class DeferredTypes(msgspec.StructMeta):
    """The metaclass of structs with members of types that are imported for type checkers alone.

    The signature of a struct resolves all its annotations, and so would fail; here it has them as they are written,
    for `help()`. Making such a struct takes twice the time of another, so the values of hot paths do not use it.
    """

    @property
    def __signature__(self) -> inspect.Signature:
        try:
            return super().__signature__
        except NameError:
            return self._as_written()

    def _as_written(self) -> inspect.Signature:
        import inspect  # only `help()` and the like come here

        names = self.__struct_fields__
        defaults = self.__struct_defaults__
        kinds: dict[str, Any] = {}
        for one in reversed(self.__mro__):
            kinds |= inspect.get_annotations(one)
        given = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        keyword = inspect.Parameter.KEYWORD_ONLY
        required = inspect.Parameter.empty
        return inspect.Signature(
            [inspect.Parameter(one, keyword, default=given.get(one, required), annotation=kinds[one]) for one in names]
        )


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen value with named members; `replace` returns a changed copy."""

    repr_exclude: ClassVar[frozenset[str]] = frozenset()
    """Members that `repr` leaves out: long ones, and those that may hold secrets."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy in which these members are changed.

        Raises:
            TypeError: There is no such member.
        """
        return msgspec.structs.replace(self, **changes)

    def without_defaults(self) -> dict[str, Any]:
        """Return the members that differ from their defaults, by name."""
        names = self.__struct_fields__
        defaults = self.__struct_defaults__
        required = len(names) - len(defaults)  # the members without a default come first
        changed = {name: getattr(self, name) for name in names[:required]}
        for name, default in zip(names[required:], defaults, strict=True):
            value = getattr(self, name)
            make = getattr(default, "factory", None)
            if value != (default if make is None else make()):
                changed[name] = value
        return changed

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in self.repr_exclude)
        return f"{type(self).__name__}({', '.join(shown)})"
