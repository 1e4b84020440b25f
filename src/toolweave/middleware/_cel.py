"""Expressions of the Common Expression Language (CEL) as conditions; the only file that knows its package.

A condition holds if its value is `true` and nothing else: an error, a missing member and a missing variable come back
as values, which may well look true.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from toolweave.errors import printable, shortened

_log = logging.getLogger("toolweave.middleware")

_ARGUMENTS = "args"
_TEXTS = ("kind", "name", "server")
_OBJECTS = ("tool", "caller")
_NAMES = frozenset({*_TEXTS, *_OBJECTS, _ARGUMENTS})


class Expression:
    """A compiled expression over the facts of a request.

    Args:
        text: The expression.

    Attributes:
        reads: The names of the facts that it reads.

    Raises:
        ValueError: It does not compile, can be neither true nor false, or the package is not installed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.reads = _NAMES
        self._compiled = _compiled(text, self.reads)
        # The package does not list the names that an expression reads. Compiling without a name fails exactly if it is
        # read, and happens once for each rule.
        for name in _NAMES:
            try:
                self._compiled = _compiled(text, without := self.reads - {name})
            except ValueError:  # it reads that
                continue
            self.reads = without

    @property
    def reads_arguments(self) -> bool:
        """Whether it reads the arguments of a call."""
        return _ARGUMENTS in self.reads

    def is_true(self, facts: Mapping[str, Any]) -> bool:
        """Whether the expression is true; one that fails is not."""
        return self._value(facts) is True

    def is_false(self, facts: Mapping[str, Any]) -> bool:
        """Whether the expression is false; one that fails is not."""
        return self._value(facts) is False

    def _value(self, facts: Mapping[str, Any]) -> Any:
        try:
            # Each has a price, whether it is read or not.
            read = {name: facts[name] for name in self.reads}
            return self._compiled.eval(data=read).value()
        except Exception as exc:
            # Boundary: a value that CEL has no type for, or a loop beyond its bound.
            _log.warning("the expression %r failed: %s", shortened(self.text, 200), shortened(printable(str(exc)), 200))
            return None


def _compiled(text: str, names: Collection[str]) -> Any:
    try:
        from cel_expr_python import cel  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise ValueError("expressions need the extra 'cel': pip install 'toolweave[cel]'") from None
    objects = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    variables = {name: cel.Type.STRING if name in _TEXTS else objects for name in names}
    try:
        compiled = cel.NewEnv(variables=variables).compile(text)
    except Exception as exc:
        # Boundary: the package says nothing of its errors.
        raise ValueError(f"'when' does not compile: {exc}") from None
    kind = compiled.return_type()
    # Refused at the start: a number or a text is never `True`, so a rule that allows by it would never fit, without a
    # word.
    if kind not in (cel.Type.BOOL, cel.Type.DYN):
        raise ValueError(f"'when' must be true or false; this is {kind.name()}")
    return compiled
