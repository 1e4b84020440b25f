"""Tool search: above a token budget a model sees one tool that searches the others and loads them on demand.

One toolset serves one conversation. The loaded tools follow from the conversation alone, so a resumed run, which has
nothing but its messages, sees the same tools. Knows no provider; a provider with its own tool search gets the names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from toolweave._json_types import JsonObject, object_entries, object_or_empty, text_entries
from toolweave.models import AssistantMessage, Message, ToolMessage
from toolweave.protocol.content import TextContent
from toolweave.tools import (
    CallContext,
    RoutingToolset,
    ToolCall,
    ToolResult,
    ToolsChanged,
    Toolset,
    ToolSnapshot,
    ToolSpec,
    Unsubscribe,
    WrapperToolset,
)
from toolweave.tools._search_tool import (
    BUDGET_TOKENS,
    MAX_TOOLS,
    SEARCH_NAME,
    SEARCH_SCHEMA,
    exceeds_budget,
    first_line,
    index_of,
    named_sources,
    search_problems,
)
from toolweave.tools._wrappers import route_of
from toolweave.tools.names import free_name
from toolweave.tools.result import invalid_input
from toolweave.tools.toolset import Listeners


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTools:
    """The tool definitions of one model request.

    Attributes:
        tools: The definitions.
        deferred: Names of tools that the provider loads on demand.
    """

    tools: ToolSnapshot
    deferred: frozenset[str] = frozenset()


class ToolSearchToolset(WrapperToolset, RoutingToolset):
    """A `Toolset` that shows `search_tools` and the loaded tools instead of all tools, if these exceed a budget.

    Below the budget it shows the wrapped toolset. A tool that was found or called stays loaded for the conversation.
    Every tool can be called at any time, shown or not: `find` returns the definition of either.

    Args:
        toolset: The toolset to search; the caller opens and closes it.
        budget_tokens: `estimated_tokens` of all definitions up to which nothing is deferred.
        always: Names of tools that are always shown.
    """

    __slots__ = (
        "_always",
        "_budget",
        "_deferred",
        "_inner",
        "_listeners",
        "_loaded",
        "_loads",
        "_search",
        "_seen",
        "_view",
    )

    def __init__(self, toolset: Toolset, *, budget_tokens: int = BUDGET_TOKENS, always: Collection[str] = ()) -> None:
        super().__init__(toolset)
        self._inner = toolset
        self._budget = budget_tokens
        self._always = tuple(always)
        self._loaded: dict[str, None] = {}
        self._loads = 0
        self._deferred = False
        self._listeners = Listeners()
        self._seen: ToolSnapshot | None = None
        self._view = ToolSnapshot()
        self._search: ToolSpec | None = None

    @property
    def loaded(self) -> tuple[str, ...]:
        """The names of the tools that the conversation has loaded, in the order of loading."""
        return tuple(self._loaded)

    @property
    def active(self) -> bool:
        """Whether tools are deferred now."""
        self.snapshot()
        return self._search is not None

    def snapshot(self) -> ToolSnapshot:
        """Return the tools that a model sees now."""
        inner = self._inner.snapshot()
        if inner is not self._seen:
            if exceeds_budget(inner, self._budget):
                self._search = _search_tool(inner)
            else:
                self._search = None
            self._seen = inner
            self._show()
        return self._view

    def find(self, name: str) -> ToolSpec | None:
        """Return the definition of any tool that can be called, shown or not."""
        return self.snapshot().find(name) or self._inner.snapshot().find(name)

    def owns(self, tool: ToolSpec) -> bool:
        """Whether a tool is the search tool."""
        return tool.input_schema is SEARCH_SCHEMA

    def offered(self, *, native: bool = False) -> RequestTools:
        """Return the tool definitions for a request.

        Args:
            native: Whether the provider has a tool search: it gets all definitions, and the names of those to defer.
        """
        view = self.snapshot()
        if self._search is None or not native:
            return RequestTools(tools=view)
        inner = self._inner.snapshot()
        return RequestTools(tools=inner, deferred=frozenset(inner.by_name) - frozenset(view.by_name))

    def load(self, *names: str) -> None:
        """Show these tools from now on; a name without a tool takes effect when the tool appears."""
        new = [name for name in dict.fromkeys(names) if name not in self._loaded]
        if not new:
            return
        before = self.snapshot()
        self._loaded |= dict.fromkeys(new)
        if self._search is not None:
            self._loads += 1
            self._show()
            self._listeners.emit(ToolsChanged.between(before, self._view))

    def restore(self, messages: Iterable[Message]) -> None:
        """Load the tools that a conversation found or called so far."""
        self.snapshot()
        own = SEARCH_NAME if self._search is None else self._search.name
        for message in messages:
            if isinstance(message, AssistantMessage):
                self.load(*(self._named(call.name) for call in message.tool_calls if call.name != own))
            elif isinstance(message, ToolMessage):
                for outcome in message.outcomes:
                    if outcome.name.startswith(SEARCH_NAME):
                        self.load(*_found(outcome.result))

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Search the tools, or call any of them."""
        self.snapshot()
        if self._search is not None and call.name == self._search.name:
            return self._searched(call.arguments)
        return await super().call(call, ctx)

    def route(self, name: str) -> tuple[Toolset, str] | None:
        """Return where a call by this name ends, and load the tool; see `RoutingToolset.route`."""
        self.snapshot()
        if self._search is not None and name == self._search.name:
            return self, name
        own = self._named(name)
        if self._inner.snapshot().find(own) is not None:
            self.load(own)
        # which names the existing tools
        return route_of(self._inner, name) or (self._inner, name)

    def _feeds(self) -> Iterable[Callable[[Callable[[ToolsChanged], None]], Unsubscribe]]:
        return [*super()._feeds(), self._listeners.subscribe]

    def _show(self) -> None:
        """Rebuild the snapshot; its version grows with the toolset's and with every loaded tool."""
        inner = self._seen or ToolSnapshot()
        version = inner.version + self._loads
        if self._search is None:
            # the same object if it can be: models cache their form of it
            if self._deferred:
                self._view = ToolSnapshot(inner, version=version)
            else:
                self._view = inner
            return
        self._deferred = True
        names = dict.fromkeys([*self._always, *reversed(self._loaded)])
        shown = {name for name in list(names)[: MAX_TOOLS - 1] if name in inner.by_name}
        # in the order of loading, so that the definitions a provider has cached stay a prefix
        kept = [name for name in (*self._always, *self._loaded) if name in shown]
        self._view = ToolSnapshot(
            (self._search, *(inner.by_name[name] for name in dict.fromkeys(kept))), version=version
        )

    def _named(self, name: str) -> str:
        spec = self._inner.snapshot().find(name)
        if spec is None:
            return name
        return spec.name

    def _searched(self, arguments: JsonObject) -> ToolResult:
        problems = search_problems(arguments)
        if problems:
            return invalid_input(SEARCH_NAME, problems)
        index = index_of(self._inner.snapshot())
        found = [match.tool for match in index.search(arguments["query"], int(arguments.get("limit", 5)))]
        self.load(*(tool.name for tool in found))
        return _answer(arguments["query"], found)


def _search_tool(inner: ToolSnapshot) -> ToolSpec:
    return ToolSpec(
        name=free_name(SEARCH_NAME, None, inner.by_name),
        title="Search tools",
        description=(
            f"Finds tools that are not listed and loads them: they can be called from the next turn on. There are "
            f"{len(inner)} tools. Search before you say that something cannot be done. "
            f"They come from: {named_sources(inner)}."
        ),
        input_schema=SEARCH_SCHEMA,
        annotations={"readOnlyHint": True, "openWorldHint": False},
    )


def _answer(query: str, found: list[ToolSpec]) -> ToolResult:
    if not found:
        text = f"No tool fits {query!r}. Try other words: its purpose, its subject, or the server's name."
        return ToolResult(content=(TextContent(text=text),), structured_content={"tools": []})
    lines = [f"- {tool.name}: {first_line(tool.description)}".rstrip(": ") for tool in found]
    text = "\n".join(["Loaded; from the next turn on they are among the tools:", *lines])
    return ToolResult(
        content=(TextContent(text=text),), structured_content={"tools": [{"name": tool.name} for tool in found]}
    )


def _found(result: ToolResult) -> list[str]:
    entries = object_entries(object_or_empty(result.structured_content).get("tools"))
    return text_entries([entry.get("name") for entry in entries])
