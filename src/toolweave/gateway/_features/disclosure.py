"""Disclosure of a large catalogue: a few tools that find and call the others, instead of all definitions at once.

The outermost layer around a gateway. A call by `call_tool` becomes one of the tool itself before any rule, limit or
figure sees it, and a search finds only what this caller is listed by the layers behind it: nothing is found that could
not be listed, and nothing is called that could not be called by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from toolweave._json_types import object_or_empty, without_members
from toolweave.errors import ErrorKind, RequestError, ToolError
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.content import TextContent
from toolweave.protocol.jsonrpc import encode_value
from toolweave.serve import CallNext, Request
from toolweave.serve._unknown import not_offered
from toolweave.serve.request import Json
from toolweave.tools import ToolResult, Toolset, ToolSnapshot, ToolSpec
from toolweave.tools._search import ToolIndex
from toolweave.tools._search_tool import (
    SEARCH_NAME,
    SEARCH_SCHEMA,
    exceeds_budget,
    index_of,
    named_sources,
    search_problems,
)
from toolweave.tools.mcp import call_result, read_definition, tool_definition
from toolweave.tools.result import invalid_input

DisclosureMode: TypeAlias = Literal["all", "auto", "search", "groups"]
"""The form in which callers learn of tools: all definitions; a search; a list for each server; or, by `auto`, all up to
a size and a search beyond it."""
DISCLOSURES: tuple[DisclosureMode, ...] = get_args(DisclosureMode)

_CALL_NAME = "call_tool"
_LIST_NAME = "list_tools"
_MAX_PAGES = 10_000
_READS: Mapping[str, Any] = {"readOnlyHint": True, "openWorldHint": False}
_CALL = ToolSpec(
    name=_CALL_NAME,
    title="Call a tool",
    description="Calls a tool that is not listed, by its name and with the arguments that its definition asks for.",
    input_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The tool's name, exactly as it was found."},
            "arguments": {"type": "object", "description": "Its arguments, by its input schema."},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)


class _VisibleTools(NamedTuple):
    """The tools that one caller is listed, except those of pages alone, which no model may see or call.

    Attributes:
        page: The first page as it is.
        definitions: Each definition by name.
        specs: The tools.
    """

    page: Json
    definitions: Mapping[str, Json]
    specs: Sequence[ToolSpec]


class Disclosure:
    """Middleware that shows a catalogue in one form.

    Args:
        tools: The tools of the gateway, or of a virtual server.
        mode: The form.

    Raises:
        ValueError: The form is not known.
    """

    def __init__(self, tools: Toolset, mode: DisclosureMode) -> None:
        self._tools = tools
        self.mode: DisclosureMode = mode
        self._shown: tuple[ToolSnapshot, ToolSnapshot] | None = None
        if mode not in DISCLOSURES:
            raise ValueError(f"disclosure must be one of {', '.join(DISCLOSURES)}, not {mode!r}")
        self._own: Mapping[str, Callable[[_VisibleTools, Mapping[str, Any]], ToolResult]] = (
            {_LIST_NAME: self._of_server} if mode == "groups" else {SEARCH_NAME: self._found}
        )

    @property
    def active(self) -> bool:
        """Whether tools may be hidden from some caller now."""
        if self.mode == "auto":
            return exceeds_budget(self._tools.snapshot())
        return self.mode in ("search", "groups")

    def plain(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Unwrap a `call_tool` meta-call into the target tool's parameters."""
        if method != methods.TOOLS_CALL or params.get("name") != _CALL_NAME or not self.active:
            return params
        wanted = object_or_empty(params.get("arguments"))
        return {**params, "name": wanted.get("name"), "arguments": wanted.get("arguments", {})}

    async def __call__(self, request: Request, call_next: CallNext) -> Json:
        """Answer a request about tools in the form of the catalogue, and pass on every other."""
        if request.method == methods.TOOLS_LIST and self.active:
            return await self._list(request, call_next)
        if request.method != methods.TOOLS_CALL or not self.active:
            return await call_next(request)
        name = request.params.get("name")
        if name == _CALL_NAME:
            return await self._call(request, call_next)
        answer = self._own.get(name) if isinstance(name, str) else None
        if answer is None:
            return await call_next(request)
        visible = await self._visible(request, call_next)
        return call_result(answer(visible, request.object("arguments")), modern=request.modern)

    async def _call(self, request: Request, call_next: CallNext) -> Json:
        """Call a tool for a model, to which a tool of pages alone is as unknown as one that is not there."""
        params = self.plain(request.method, request.params)
        name = params.get("name")
        if isinstance(name, str) and not await self._is_for_models(name, request, call_next):
            raise not_offered("tools", name, modern=request.modern)
        return await call_next(request.replace(params=params))

    async def _is_for_models(self, name: str, request: Request, call_next: CallNext) -> bool:
        spec = self._tools.snapshot().find(name)
        if spec is not None:
            return spec.for_models
        # the caller's own, or none
        return name in (await self._visible(request, call_next)).definitions

    async def _list(self, request: Request, call_next: CallNext) -> Json:
        visible = await self._visible(request, call_next)
        continues = request.params.get("cursor") is not None
        if not visible.specs or (self.mode == "auto" and not exceeds_budget(visible.specs)):
            if continues:
                return await call_next(request)
            return visible.page
        if continues:
            raise RequestError("Invalid cursor", code=INVALID_PARAMS)
        if self.mode == "groups":
            first = _lister(visible.specs)
        else:
            first = _searcher(visible.specs)
        shown = [tool_definition(spec, modern=request.modern) for spec in (first, _CALL)]
        return {**without_members(visible.page, "nextCursor"), "tools": shown}

    async def _visible(self, request: Request, call_next: CallNext) -> _VisibleTools:
        """Return the tools that this caller is listed, by asking for every page."""
        params: Json = {"_meta": request.params["_meta"]} if "_meta" in request.params else {}
        first: Json = {}
        definitions: dict[str, Json] = {}
        for _ in range(_MAX_PAGES):
            page = await call_next(request.replace(method=methods.TOOLS_LIST, params=params))
            first = first or page
            definitions |= {tool["name"]: tool for tool in page["tools"]}
            if "nextCursor" not in page:
                break
            params = {**params, "cursor": page["nextCursor"]}
        by_name = self._tools.snapshot().by_name
        specs = {name: by_name.get(name) or _own_tool(definition) for name, definition in definitions.items()}
        shown = {name: spec for name, spec in specs.items() if spec.for_models}
        return _VisibleTools(first, {name: definitions[name] for name in shown}, list(shown.values()))

    def _for_models(self) -> ToolSnapshot:
        """Return the tools that models may use; the same object while nothing has changed."""
        whole = self._tools.snapshot()
        if self._shown is None or self._shown[0] is not whole:
            found = [spec for spec in whole if spec.for_models]
            self._shown = whole, whole if len(found) == len(whole) else ToolSnapshot(found)
        return self._shown[1]

    def _found(self, visible: _VisibleTools, arguments: Mapping[str, Any]) -> ToolResult:
        problems = search_problems(arguments)
        if problems:
            return invalid_input(SEARCH_NAME, problems)
        snapshot = self._for_models()
        whole = visible.definitions.keys() == snapshot.by_name.keys()
        if whole:
            index = index_of(snapshot)
        else:
            index = ToolIndex(ToolSnapshot(visible.specs))
        found = index.search(arguments["query"], int(arguments.get("limit", 5)))
        if not found:
            query = arguments["query"]
            return _answer(f"No tool fits {query!r}. Try other words, or the name of a server.", [])
        return _answer("Call these by `call_tool`:", [visible.definitions[match.tool.name] for match in found])

    def _of_server(self, visible: _VisibleTools, arguments: Mapping[str, Any]) -> ToolResult:
        chosen = [spec for spec in visible.specs if (spec.server or "") == arguments.get("server")]
        if not chosen:
            text = f"'server' must be one of: {named_sources(visible.specs)}"
            return ToolResult.failure(ToolError(text, kind=ErrorKind.INVALID_INPUT))
        return _answer("Call these by `call_tool`:", [visible.definitions[spec.name] for spec in chosen])


def _own_tool(definition: Json) -> ToolSpec:
    """Return a tool that only this caller is listed, such as one of a server that is called as its caller."""
    return read_definition(definition, server="", prefix="").replace(server=None, aliases=())


def _searcher(specs: Sequence[ToolSpec]) -> ToolSpec:
    return ToolSpec(
        name=SEARCH_NAME,
        title="Search tools",
        description=(
            f"Finds tools that are not listed, and returns their definitions; `{_CALL_NAME}` calls them. There are "
            f"{len(specs)} tools. Search before you say that something cannot be done. "
            f"They come from: {named_sources(specs)}."
        ),
        input_schema=SEARCH_SCHEMA,
        annotations=_READS,
    )


def _lister(specs: Sequence[ToolSpec]) -> ToolSpec:
    servers = sorted({spec.server or "" for spec in specs})
    return ToolSpec(
        name=_LIST_NAME,
        title="List the tools of a server",
        description=(
            f"Returns the definitions of one server's tools, which are not listed; `{_CALL_NAME}` calls them. "
            f"The servers, with their numbers of tools: {named_sources(specs)}."
        ),
        input_schema={
            "type": "object",
            "properties": {"server": {"type": "string", "enum": servers}},
            "required": ["server"],
            "additionalProperties": False,
        },
        annotations=_READS,
    )


def _answer(head: str, definitions: Sequence[Json]) -> ToolResult:
    lines = [encode_value(one, errors="replace").decode() for one in definitions]
    content = (TextContent(text="\n".join([head, *lines])),)
    return ToolResult(content=content, structured_content={"tools": list(definitions)})
