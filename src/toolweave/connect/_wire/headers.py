"""HTTP headers that mirror a modern request (SEP-2243): its method, its name, annotated arguments. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolweave.connect._wire.request_head import SharedHeaders
from toolweave.protocol.headers import NAME_PARAMETERS, Mirrored, encode_value, mirrored_arguments

__all__ = ["HeaderFactory", "argument_headers"]

_MAX_ALIKE = 1_000
_MAX_MIRRORED = 10_000


class HeaderFactory:
    """The factory of the headers of modern requests; equal ones are made once."""

    def __init__(self) -> None:
        self._alike: dict[tuple[str, str, str | None], SharedHeaders] = {}
        self._mirrored: dict[int, tuple[Mapping[str, Any], Mirrored]] = {}

    def of(
        self, method: str, params: Mapping[str, Any], revision: str, schema: Mapping[str, Any] | None
    ) -> Mapping[str, str]:
        """Return the headers of one request; `schema` is the input schema of the tool that it calls, if known."""
        name = params.get(NAME_PARAMETERS.get(method, ""))
        key = (revision, method, name if isinstance(name, str) else None)
        headers = self._alike.get(key)
        if headers is None:
            headers = SharedHeaders({"mcp-protocol-version": revision, "mcp-method": method})
            if key[2] is not None:
                headers["mcp-name"] = encode_value(key[2])
            if len(self._alike) >= _MAX_ALIKE:
                self._alike.clear()
            self._alike[key] = headers
        mirrored = self._mirrored_by(schema) if schema is not None else None
        return headers | argument_headers(mirrored, params.get("arguments")) if mirrored else headers

    def _mirrored_by(self, schema: Mapping[str, Any]) -> Mirrored:
        known = self._mirrored.get(id(schema))
        if known is None or known[0] is not schema:
            if len(self._mirrored) >= _MAX_MIRRORED:  # schemas of lists long gone
                self._mirrored.clear()
            known = self._mirrored[id(schema)] = (schema, mirrored_arguments(schema))
        return known[1]


def argument_headers(mirrored: Mirrored, arguments: Any) -> dict[str, str]:
    """Return the headers for the arguments of one call; what is absent or null has none."""
    headers: dict[str, str] = {}
    for path, name in mirrored:
        value = arguments
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        text = _rendered(value)
        if text is not None:
            headers[name] = encode_value(text)
    return headers


def _rendered(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return str(value) if isinstance(value, (str, int, float)) else None
    except ValueError:  # more digits than Python writes
        return None
