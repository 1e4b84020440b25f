"""Expressions of the Common Expression Language (CEL) as conditions; the only file that knows its package.

A condition holds if its value is `true` and nothing else: an error, a missing member and a missing variable come back
as values, which may well look true.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from toolweave.errors import printable, shortened

_log = logging.getLogger("toolweave.middleware")

_ARGUMENTS = "args"
_TEXTS = ("kind", "name", "server")
_OBJECTS = ("tool", "caller")


class Expression:
    """A compiled expression over the facts of a request.

    Args:
        text: The expression.

    Attributes:
        reads_arguments: Whether it reads the arguments of a call.

    Raises:
        ValueError: It does not compile, can be neither true nor false, or the package is not installed.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._compiled = _compiled(text, arguments=False)
            self.reads_arguments = False
        except ValueError:  # of a name that is not declared, or of anything else, which the next try tells
            self._compiled = _compiled(text, arguments=True)
            self.reads_arguments = True

    def is_true(self, facts: Mapping[str, Any]) -> bool:
        """Whether the expression is true; one that fails is not."""
        return self._value(facts) is True

    def is_false(self, facts: Mapping[str, Any]) -> bool:
        """Whether the expression is false; one that fails is not."""
        return self._value(facts) is False

    def _value(self, facts: Mapping[str, Any]) -> Any:
        try:
            return self._compiled.eval(data=facts).value()
        except Exception as exc:  # boundary: a value that CEL has no type for, or a loop beyond its bound
            _log.warning("the expression %r failed: %s", shortened(self.text, 200), shortened(printable(str(exc)), 200))
            return None


def _compiled(text: str, *, arguments: bool) -> Any:
    try:
        from cel_expr_python import cel  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise ValueError("expressions need the extra 'cel': pip install 'toolweave[cel]'") from None
    objects = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    variables = {**dict.fromkeys(_TEXTS, cel.Type.STRING), **dict.fromkeys(_OBJECTS, objects)}
    if arguments:
        variables[_ARGUMENTS] = objects
    try:
        compiled = cel.NewEnv(variables=variables).compile(text)
    except Exception as exc:  # boundary: the package says nothing of its errors
        raise ValueError(f"'when' does not compile: {exc}") from None
    kind = compiled.return_type()
    if kind not in (cel.Type.BOOL, cel.Type.DYN):
        raise ValueError(f"'when' must be true or false; this is {kind.name()}")
    return compiled
