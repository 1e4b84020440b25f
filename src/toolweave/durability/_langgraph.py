"""A compiled graph of LangGraph on our journal: outcomes of tools, and the results of its other nodes, are recorded.

A node that is a graph is not recorded itself, but its nodes are. They count their own steps from 1, so their entries
are below the step of the outermost graph, under ids that begin with the nodes and steps around them. Imported when a
graph is given.
"""

from __future__ import annotations

import copy
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel  # pyright: ignore[reportMissingTypeStubs] - it is typed itself
from langgraph.types import Command, Interrupt

from toolweave._json_types import JsonObject, as_object, as_sequence, object_or_empty
from toolweave.agent.approval import denied
from toolweave.durability._durable_agent import FrameworkInput, FrameworkOutcome
from toolweave.durability._recorder import KeptOutcome, RunRecorder
from toolweave.models import ToolCallPart, Usage
from toolweave.tools import ToolSpec
from toolweave.tools._approval_request import approval_request

_NAME = "langgraph"
_MARK = "toolweave_run"
_WRAPPER = "_awrap_tool_call"
_PULL = "__pregel_pull"
"""The first part of the path of a task whose node runs once in its step."""
# Nothing in a store is run as code.
_SERIALIZER = JsonPlusSerializer(allowed_msgpack_modules=None)
_asked: ContextVar[list[Interrupt]] = ContextVar("toolweave-asked-approvals")


class _JournalPlace(NamedTuple):
    """The place of a node's entries in the journal.

    Attributes:
        step: The step of the outermost graph.
        within: The beginning of their ids: the nodes and steps around it, `""` in the outermost graph.
    """

    step: int
    within: str = ""


_around: ContextVar[_JournalPlace | None] = ContextVar("toolweave-graph-around", default=None)
"""The place of the graph that runs as a node; None in the outermost graph."""


class LangGraphAgent:
    """A compiled graph, run by a recorder.

    Raises:
        ValueError: A function of the graph runs another graph, or a `ToolNode` has a wrapper that cannot be waited for.
    """

    name = _NAME

    def __init__(self, graph: Any) -> None:  # its class leaves most of its types open
        self._graph = graph
        _check_nodes(graph)

    def record_input(self, sent: Any, options: Mapping[str, Any]) -> FrameworkInput:
        value = {"input": _dumped(sent), "thread": _thread(options.get("config"))}
        return FrameworkInput(text=_text_of(sent), value=json.dumps(value))

    async def execute(
        self, run_input: FrameworkInput, options: Mapping[str, Any], recorder: RunRecorder, answer: Any
    ) -> Any:
        given = dict(options)
        recorded = json.loads(run_input.value or "null") or {"input": _dumped({"messages": [("user", run_input.text)]})}
        config = cast("RunnableConfig", dict(given.pop("config", None) or {}))
        thread = _thread(config) or recorded.get("thread") or recorder.run_id
        config["configurable"] = {**(config.get("configurable") or {}), "thread_id": thread}
        config["metadata"] = {**(config.get("metadata") or {}), _MARK: recorder.run_id}
        sent: Any = _loaded(recorded["input"])
        if self._graph.checkpointer:
            state = await self._graph.aget_state(config)
            known: JsonObject = state.metadata or {}
            if known.get(_MARK) == recorder.run_id:
                # It has begun, and its thread knows where it is.
                if answer is None and not state.next:
                    return state.values
                sent = answer
        # Else it is in the graph whose tool runs this one.
        token = _around.set(None)
        try:
            return await _recorded(self._graph, recorder).ainvoke(sent, config, **given)
        finally:
            _around.reset(token)

    def outcome(self, result: Any) -> FrameworkOutcome:
        values = object_or_empty(result)
        if interrupts := values.get("__interrupt__"):
            calls = list(filter(None, (_call_id(one.value) for one in interrupts)))
            return FrameworkOutcome(text="waits for an answer to its interrupt", waits=True, calls=calls)
        messages = values.get("messages") or [None]
        last = messages[-1]
        return FrameworkOutcome(text=last.text if isinstance(last, BaseMessage) else "")

    def continues(self, sent: Any) -> bool:
        return isinstance(sent, Command)


def _check_nodes(graph: Any) -> None:
    for name, node in graph.nodes.items():
        bound = node.bound
        if isinstance(bound, Pregel):
            _check_nodes(bound)
        elif node.subgraphs:
            raise ValueError(
                f"durable(): node {name!r} is a function that runs a graph, whose calls cannot be recorded; add the "
                "graph itself as the node"
            )
        if not isinstance(bound, ToolNode):
            continue
        if _member(bound, "_wrap_tool_call") and not _member(bound, _WRAPPER):
            raise ValueError(f"durable(): node {name!r} has a wrap_tool_call; give it as awrap_tool_call")


def _recorded(graph: Any, recorder: RunRecorder) -> Any:
    """Return a graph with its nodes recorded, and those of the graphs that are nodes of it."""
    nodes = {
        name: node if name.startswith("__") else node.copy({"bound": _bound(name, node.bound, recorder)})
        for name, node in graph.nodes.items()
    }
    return graph.copy({"nodes": nodes})


def _bound(name: str, bound: Runnable[Any, Any], recorder: RunRecorder) -> Runnable[Any, Any]:
    if isinstance(bound, Pregel):
        return GraphNode(name, _recorded(bound, recorder))
    if isinstance(bound, ToolNode):
        return _tool_node(bound, recorder)
    return RecordedNode(name, bound, recorder)


def _tool_node(node: ToolNode, recorder: RunRecorder) -> ToolNode:
    """Return a copy of a node whose calls are recorded, each for itself, and approved before they are made."""
    inner = _member(node, _WRAPPER)

    async def recorded(request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
        call = request.tool_call
        tool = request.tool
        step, within = _place(request.runtime.config)
        part = ToolCallPart(id=f"{within}{call['id']}", name=call["name"], arguments=call["args"])
        metadata = _metadata(tool)
        if _needs_approval(tool, part.arguments):
            given = await recorder.decision(step, part, _spec(tool))
            if given is None:
                return _waits(part, tool, call["id"])
            if not given.approved:
                return _message(part, denied(part.name, given).text, call["id"])
            request = request.override(tool=_approved(tool))

        async def make() -> Any:
            return await (execute(request) if inner is None else inner(request, execute))

        form = GraphValueForm(call)
        return await recorder.call(step, part, metadata.get("annotations"), make, form)

    made = copy.copy(node)
    every: Callable[..., Awaitable[Any]] = _member(made, "_afunc")

    async def afunc(given: Any, **options: Any) -> Any:
        asked: list[Interrupt] = []
        token = _asked.set(asked)
        try:
            returned = await every(given, **options)
        finally:
            _asked.reset(token)
        if asked:
            # Not before the other calls of the node have ended, and are recorded.
            raise GraphInterrupt(tuple(asked))
        return returned

    vars(made).update({_WRAPPER: recorded}, func=_member(made, "_func"), afunc=afunc)
    return made


def _needs_approval(tool: Any, arguments: JsonObject) -> bool:
    """Whether a person has to approve a call: an exported tool says so itself, any other by its metadata."""
    if tool is None:
        return False
    asks = getattr(tool, "needs_approval", None)
    if callable(asks):
        return bool(asks(arguments))
    return _metadata(tool).get("requires_approval") is True


def _metadata(tool: Any) -> JsonObject:
    """Return the metadata of a tool, which may be None."""
    if tool is None:
        return {}
    return object_or_empty(tool.metadata)


def _call_id(value: Any) -> str | None:
    """Return the id of the call whose approval an interrupt asks for; None for one that asks for something else."""
    return object_or_empty(value).get("tool_call_id")


def _approved(tool: Any) -> Any:
    """Return a tool that does not ask again."""
    made = getattr(tool, "approved", None)
    if callable(made):
        return made()
    return tool


def _waits(call: ToolCallPart, tool: Any, call_id: str) -> ToolMessage:
    """Note that a call waits; the message replaces its result until its node is interrupted."""
    value = approval_request(call.name, call.arguments, tool.description, call.id)
    _asked.get().append(Interrupt(value=value, id=call.id))
    return _message(call, "waits for approval", call_id)


def _message(call: ToolCallPart, text: str, call_id: str) -> ToolMessage:
    return ToolMessage(text, name=call.name, tool_call_id=call_id, status="error")


def _spec(tool: Any) -> ToolSpec:
    """Return the present definition of a tool, to which an answer is bound."""
    metadata = _metadata(tool)
    schema = as_object(tool.args_schema)
    return ToolSpec(
        name=tool.name,
        server=metadata.get("server"),
        description=tool.description,
        input_schema=dict(tool.args) if schema is None else schema,
        annotations=metadata.get("annotations"),
    )


def _member(node: ToolNode, name: str) -> Any:
    """Return a member of a node that has no public name: one is its bound method, another wraps each call."""
    return getattr(node, name)


class RecordedNode(Runnable[Any, Any]):
    """A node whose return is recorded by its step, and replayed."""

    def __init__(self, name: str, bound: Runnable[Any, Any], recorder: RunRecorder) -> None:
        self.name = name
        self._bound = bound
        self._recorder = recorder

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002 - theirs
        raise NotImplementedError("a durable graph is run with DurableAgent.run, which awaits its nodes")

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002
        step, within = _place(config)
        key = f"{within}node/{self.name}/{'/'.join(map(str, _path(config)))}"

        async def make() -> Any:
            return await self._bound.ainvoke(input, config, **options)

        value = await self._recorder.value(step, f"node {self.name}", key, _NODE, make)
        self._recorder.count(*_usages(value))
        return value


class GraphNode(Runnable[Any, Any]):
    """A node that is a graph: its nodes are recorded, each time under the step and the task that it runs in."""

    def __init__(self, name: str, graph: Any) -> None:
        self.name = name
        self._graph = graph

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002 - theirs
        raise NotImplementedError("a durable graph is run with DurableAgent.run, which awaits its nodes")

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002
        step, within = _place(config)
        path = _path(config)
        # Several of one node in one step.
        tasks = () if path[:1] == (_PULL,) else path[1:]
        place = "/".join(map(str, (self.name, *tasks)))
        token = _around.set(_JournalPlace(step, f"{within}{place}/"))
        try:
            return await self._graph.ainvoke(input, config, **options)
        finally:
            _around.reset(token)


class GraphValueForm:
    """The form of the result of a tool call, or a node: LangGraph's own, as for a checkpoint."""

    def __init__(self, call: JsonObject | None = None) -> None:
        self._call: JsonObject = call or {}

    def of_value(self, value: Any) -> KeptOutcome:
        failed = isinstance(value, ToolMessage) and value.status == "error"
        return KeptOutcome(kind="value", value=_dumped(value), text=_text_of(value), is_error=failed)

    def of_error(self, error: Exception) -> KeptOutcome | Literal["undone"] | None:
        # an interrupt: its node is restarted
        if isinstance(error, GraphBubbleUp):
            return "undone"
        return None

    def replayed(self, kept: KeptOutcome) -> Any:
        return _loaded(kept.value)

    def unknown(self, message: str) -> Any:
        return ToolMessage(message, name=self._call["name"], tool_call_id=self._call["id"], status="error")


_NODE = GraphValueForm()


def _place(config: RunnableConfig | None) -> _JournalPlace:
    """Return the place of the entries of the node that runs with this config."""
    step = int(_config_metadata(config)["langgraph_step"])
    around = _around.get()
    if around is None:
        return _JournalPlace(step)
    return _JournalPlace(around.step, f"{around.within}{step}/")


def _path(config: RunnableConfig | None) -> tuple[Any, ...]:
    return tuple(_config_metadata(config).get("langgraph_path", ()))


def _config_metadata(config: RunnableConfig | None) -> JsonObject:
    return object_or_empty(object_or_empty(config).get("metadata"))


def _thread(config: JsonObject | None) -> str | None:
    configurable = object_or_empty(object_or_empty(config).get("configurable"))
    return configurable.get("thread_id")


def _dumped(value: Any) -> list[str]:
    kind, data = _SERIALIZER.dumps_typed(value)
    return [kind, b64encode(data).decode()]


def _loaded(kept: list[str]) -> Any:
    return _SERIALIZER.loads_typed((kept[0], b64decode(kept[1])))


def _messages(value: Any) -> list[Any]:
    members = as_object(value)
    found: Any = value if members is None else members.get("messages", ())
    messages = as_sequence(found)
    if messages is None:
        return [found]
    return list(messages)


def _text_of(value: Any) -> str:
    last = next(reversed(_messages(value)), None)
    match last:
        case BaseMessage():
            return last.text
        case (_, str(text)):  # ("user", "text")
            return text
        case {"content": str(text)}:
            return text
        case _:
            return str(value)


def _usages(value: Any) -> list[Usage]:
    """Return the usage of the model's answers in a node's return."""
    found: list[Usage] = []
    for message in _messages(value):
        if isinstance(message, AIMessage):
            used = message.usage_metadata or {}
            found.append(Usage(input_tokens=used.get("input_tokens", 0), output_tokens=used.get("output_tokens", 0)))
    return found
