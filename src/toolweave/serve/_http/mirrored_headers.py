"""The arguments that each tool wants in headers, kept as long as its definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolweave.protocol.headers import Mirrored, mirrored_arguments, mirroring_problem

_MAX_KNOWN = 20_000


class MirroredArguments:
    """The arguments that a tool wants in headers (`x-mcp-header`); found once for each definition."""

    def __init__(self, schema_of: Callable[[str], Mapping[str, Any] | None] | None) -> None:
        self._schema_of = schema_of
        self._known: dict[str, tuple[object, Mirrored]] = {}

    def __call__(self, name: str) -> Mirrored:
        if self._schema_of is None:
            schema = None
        else:
            schema = self._schema_of(name)
        if schema is None:
            # Callers choose names, so unknown ones leave nothing behind.
            self._known.pop(name, None)
            return ()
        known = self._known.get(name)
        # By identity: a tool that was replaced under the same name has another schema object.
        if known is None or known[0] is not schema:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()  # of tools that came and went
            # a client drops a tool with a wrong annotation, and sends no headers
            if mirroring_problem(schema) is not None:
                mirrored = ()
            else:
                mirrored = mirrored_arguments(schema)
            known = self._known[name] = (schema, mirrored)
        return known[1]
