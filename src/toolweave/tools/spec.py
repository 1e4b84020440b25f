"""What a tool is: its definition, and the definition joined to the toolset that runs it.

Knows nothing of MCP connections, models or servers; `raw` carries whatever the producer had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, overload

from toolweave.errors import ErrorKind, as_tool_error
from toolweave.protocol.frozen import slot_setters
from toolweave.tools.call import NO_CONTEXT, CallContext, plain_call
from toolweave.tools.result import ToolResult

if TYPE_CHECKING:
    from toolweave.tools.toolset import Toolset

__all__ = ["Tool", "ToolList", "ToolSpec"]


def _no_parameters() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class ToolSpec:
    """One tool's definition: the value every producer offers and every consumer reads.

    The schemas are the server's own JSON values, unchanged (DESIGN decision 6, requirement R47).

    Attributes:
        name: The exposed name, unique in its snapshot.
        original_name: The name the producer knows the tool by; always what is sent (requirement R41).
        server: The key of the MCP server, or None for local tools.
        description: `""` when the producer gave none (requirement R29).
        input_schema: JSON Schema 2020-12 of the arguments object.
        output_schema: JSON Schema of `structured_content`, or None.
        annotations: Behaviour hints (`readOnlyHint`, ...) as they came; untrusted. None when absent.
        icons: Icon objects as they came.
        meta: The definition's `_meta`.
        aliases: Other names the tool is found by, such as `server:tool` (requirement C1).
        raw: The whole definition as it came; unknown members survive here.
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
        """Whether it says that its calls run one at a time, in its annotations or its `_meta` (requirement C28)."""
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


class Tool:
    """A tool that can be called: a `ToolSpec` and the `Toolset` it came from.

    Indistinguishable for a consumer whether a function or a server stands behind it (requirement R48).
    """

    __slots__ = ("spec", "toolset")

    def __init__(self, spec: ToolSpec, toolset: Toolset) -> None:
        self.spec = spec
        self.toolset = toolset

    @property
    def name(self) -> str:
        """The exposed name."""
        return self.spec.name

    @property
    def server(self) -> str | None:
        """The key of the MCP server, or None for a local tool."""
        return self.spec.server

    @property
    def original_name(self) -> str:
        """The name the producer knows the tool by."""
        return self.spec.original_name

    @property
    def title(self) -> str | None:
        """A name for people, or None."""
        return self.spec.title

    @property
    def description(self) -> str:
        """What the tool does, for a model; `""` when unknown."""
        return self.spec.description

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments object."""
        return self.spec.input_schema

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The same as `input_schema`, under the name LLM APIs use (requirement R50)."""
        return self.spec.input_schema

    @property
    def output_schema(self) -> Mapping[str, Any] | bool | None:
        """JSON Schema of the structured content, or None."""
        return self.spec.output_schema

    @property
    def annotations(self) -> Mapping[str, Any] | None:
        """Behaviour hints as they came; untrusted."""
        return self.spec.annotations

    @property
    def icons(self) -> tuple[Mapping[str, Any], ...]:
        """Icon objects as they came."""
        return self.spec.icons

    @property
    def raw(self) -> Mapping[str, Any]:
        """The whole definition as it came."""
        return self.spec.raw

    async def execute(self, arguments: Mapping[str, Any] | None = None, ctx: CallContext | None = None) -> ToolResult:
        """Run the tool and return its result; tool and transport faults come back as error results.

        Arguments travel as one mapping, so a parameter may have any name (requirement D16).
        Only cancellation and programming errors such as a non-mapping argument propagate. A tool that is gone is not
        found, also where another one has its name by now.
        """
        call = plain_call(self.spec.name, {} if arguments is None else arguments)
        try:
            now = self.toolset.snapshot().find(call.name)
            if now is not None and now is not self.spec and not self._is(now):
                return ToolResult.failure(f"{self!r} is gone; {now.name!r} is another tool", kind=ErrorKind.NOT_FOUND)
            return await self.toolset.call(call, NO_CONTEXT if ctx is None else ctx)
        except Exception as exc:  # boundary: a third-party Toolset may raise where ours returns (C2)
            return ToolResult.failure(as_tool_error(exc))

    async def call(self, arguments: Mapping[str, Any] | None = None, ctx: CallContext | None = None) -> ToolResult:
        """Run the tool and return its result.

        Raises:
            ToolExecutionError: The result is an error; it is on the exception as `result`.
        """
        return (await self.execute(arguments, ctx)).raise_for_error(tool=self.name)

    def _is(self, spec: ToolSpec) -> bool:
        """Whether a definition is this tool's, however it changed: it is the same tool of the same server."""
        return (spec.server, spec.original_name) == (self.spec.server, self.spec.original_name)

    def __repr__(self) -> str:
        origin = f" from server {self.server!r}" if self.server else ""
        return f"<Tool {self.name!r}{origin}>"

    def _repr_html_(self) -> str:
        from toolweave.tools.notebook import tool_html  # for notebooks alone

        return tool_html(self.spec)


class ToolList(Sequence[Tool]):
    """An immutable sequence of tools that is also indexed by name: `tools["fs_read_file"]`."""

    __slots__ = ("_by_name", "_tools")

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)
        self._by_name: dict[str, Tool] = {}
        for tool in self._tools:
            self._by_name.setdefault(tool.name, tool)
        for tool in self._tools:
            for alias in tool.spec.aliases:
                self._by_name.setdefault(alias, tool)

    @overload
    def __getitem__(self, key: int) -> Tool: ...
    @overload
    def __getitem__(self, key: slice) -> ToolList: ...
    @overload
    def __getitem__(self, key: str) -> Tool: ...
    def __getitem__(self, key: int | slice | str) -> Tool | ToolList:
        if isinstance(key, slice):
            return ToolList(self._tools[key])
        if isinstance(key, int):
            return self._tools[key]
        try:
            return self._by_name[key]
        except KeyError:
            raise KeyError(f"no tool {key!r}; there are {', '.join(sorted(self.names)) or 'none'}") from None

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name or alias, or None."""
        return self._by_name.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The exposed names, in order."""
        return tuple(tool.name for tool in self._tools)

    def __contains__(self, item: object) -> bool:
        return item in self._by_name if isinstance(item, str) else item in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __repr__(self) -> str:
        return f"ToolList({list(self.names)!r})"

    def _repr_html_(self) -> str:
        from toolweave.tools.notebook import tools_html  # for notebooks alone

        return tools_html(tool.spec for tool in self._tools)
