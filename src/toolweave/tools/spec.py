"""Definitions of tools.

Independent of MCP connections, models and servers; `raw` holds the producer's own definition.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from toolweave._json_types import Json, JsonObject, new_object
from toolweave._value import Value
from toolweave.protocol.apps import is_for_models
from toolweave.protocol.component_meta import tags_in, version_in

__all__ = ["AppliedRule", "ToolSpec", "is_destructive", "is_repeatable"]


def _no_parameters() -> Json:
    return {"type": "object", "properties": {}}


class ToolSpec(Value, frozen=True, kw_only=True):
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
        scopes: The OAuth scopes that a caller's token needs where it is served over HTTP; clients do not see them.
        needs_approval: Whether the config of its server wants a person to approve each call of it; agents ask.
        raw: The whole definition as received, unknown members included.
        shape: The last rule that shaped it; None for a definition as its producer gave it.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"raw", "shape"})
    name: str
    original_name: str = ""
    server: str | None = None
    title: str | None = None
    description: str = ""
    input_schema: JsonObject = msgspec.field(default_factory=_no_parameters)
    output_schema: JsonObject | bool | None = None
    annotations: JsonObject | None = None
    icons: tuple[JsonObject, ...] = ()
    meta: JsonObject = msgspec.field(default_factory=new_object)
    aliases: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    needs_approval: bool = False
    raw: JsonObject = msgspec.field(default_factory=new_object)
    shape: AppliedRule | None = None

    def __post_init__(self) -> None:
        if not self.original_name:
            msgspec.structs.force_setattr(self, "original_name", self.name)

    def hint(self, name: str) -> bool | None:
        """Return one behaviour hint, such as `"readOnlyHint"`, or None when it is not a boolean."""
        value = (self.annotations or {}).get(name)
        if isinstance(value, bool):
            return value
        return None

    @property
    def tags(self) -> frozenset[str]:
        """The tags that its `_meta` names; of a server's tool they are as untrusted as all that it says."""
        return tags_in(self.meta)

    @property
    def version(self) -> str | None:
        """The version that its `_meta` names, or None."""
        return version_in(self.meta)

    @property
    def sequential(self) -> bool:
        """Whether its annotations or its `_meta` declare that its calls run one at a time."""
        return self.hint("sequential") is True or self.meta.get("sequential") is True

    @property
    def for_models(self) -> bool:
        """Whether a model may see and call it; a tool of MCP Apps may be for its page alone (`_meta.ui.visibility`)."""
        return is_for_models(self.meta)

    @property
    def unshaped(self) -> ToolSpec:
        """The definition before any rule shaped it: as its producer gave it."""
        spec = self
        while spec.shape is not None:
            spec = spec.shape.before
        return spec


class AppliedRule(Value, frozen=True, kw_only=True):
    """A rule that shaped a definition; see `toolweave.definitions`.

    Attributes:
        before: The definition before it.
        rule: The rule, as people find it: `shape[0]`.
        changes: Its changes in words.
        arguments: Its rules for arguments by the names these had before; those without an effect are left out.
    """

    repr_exclude: ClassVar[frozenset[str]] = frozenset({"before", "arguments"})
    before: ToolSpec
    rule: str
    changes: tuple[str, ...] = ()
    arguments: JsonObject = msgspec.field(default_factory=new_object)


def is_destructive(spec: ToolSpec) -> bool:
    """Whether a tool may be destructive, which is the default without a hint (MCP specification, `ToolAnnotations`)."""
    return spec.hint("readOnlyHint") is not True and spec.hint("destructiveHint") is not False


def is_repeatable(spec: ToolSpec) -> bool:
    """Whether a call of a tool may be sent twice, as its hints promise."""
    return spec.hint("readOnlyHint") is True or spec.hint("idempotentHint") is True
