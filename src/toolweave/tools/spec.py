"""Definitions of tools.

Independent of MCP connections, models and servers; `raw` holds the producer's own definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from toolweave.protocol.frozen import slot_setters

__all__ = ["ToolSpec"]


def _no_parameters() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class ToolSpec:
    """One tool's definition: the value every producer offers and every consumer reads.

    The schemas are the server's own JSON values, unchanged.

    Attributes:
        name: The exposed name, unique in its snapshot.
        original_name: The producer's own name of the tool, which is always the one sent.
        server: The key of the MCP server, or None for local tools.
        description: `""` when the producer gave none.
        input_schema: JSON Schema 2020-12 of the arguments object.
        output_schema: JSON Schema of `structured_content`, or None.
        annotations: Behaviour hints (`readOnlyHint`, ...) as they came; untrusted. None when absent.
        icons: Icon objects as they came.
        meta: The definition's `_meta`.
        aliases: Other names of the tool, such as `server:tool`.
        raw: The whole definition as received, unknown members included.
    """

    name: str
    original_name: str = ""
    server: str | None = None
    title: str | None = None
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=_no_parameters)
    output_schema: Mapping[str, Any] | bool | None = None
    annotations: Mapping[str, Any] | None = None
    icons: tuple[Mapping[str, Any], ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    aliases: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __init__(  # noqa: PLR0913 - the fields
        self,
        *,
        name: str,
        original_name: str = "",
        server: str | None = None,
        title: str | None = None,
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | bool | None = None,
        annotations: Mapping[str, Any] | None = None,
        icons: tuple[Mapping[str, Any], ...] = (),
        meta: Mapping[str, Any] | None = None,
        aliases: tuple[str, ...] = (),
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        _set_name(self, name)
        _set_original_name(self, original_name or name)
        _set_server(self, server)
        _set_title(self, title)
        _set_description(self, description)
        _set_input_schema(self, _no_parameters() if input_schema is None else input_schema)
        _set_output_schema(self, output_schema)
        _set_annotations(self, annotations)
        _set_icons(self, icons)
        _set_meta(self, {} if meta is None else meta)
        _set_aliases(self, aliases)
        _set_raw(self, {} if raw is None else raw)

    def hint(self, name: str) -> bool | None:
        """Return one behaviour hint, such as `"readOnlyHint"`, or None when it is not a boolean."""
        value = (self.annotations or {}).get(name)
        return value if isinstance(value, bool) else None

    @property
    def sequential(self) -> bool:
        """Whether its annotations or its `_meta` declare that its calls run one at a time."""
        return self.hint("sequential") is True or self.meta.get("sequential") is True


(
    _set_name,
    _set_original_name,
    _set_server,
    _set_title,
    _set_description,
    _set_input_schema,
    _set_output_schema,
    _set_annotations,
    _set_icons,
    _set_meta,
    _set_aliases,
    _set_raw,
) = slot_setters(ToolSpec, *(part.name for part in fields(ToolSpec)))
