"""A compiled graph of LangGraph on our journal: outcomes of tools, and what its other nodes returned, are recorded.

Imported when one is given.
"""

from __future__ import annotations

import copy
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from toolweave.durability._durable_agent import FrameworkInput, FrameworkOutcome
from toolweave.durability._recorder import KeptOutcome, RunRecorder
from toolweave.models._base import Usage
from toolweave.models._messages import ToolCallPart

__all__ = ["LangGraphAgent"]

_NAME = "langgraph"
_MARK = "toolweave_run"
_WRAPPER = "_awrap_tool_call"
_SERIALIZER = JsonPlusSerializer(allowed_msgpack_modules=None)  # nothing in a store is run as code


class LangGraphAgent:
    """A compiled graph, run by a recorder.

    Raises:
        ValueError: The graph has subgraphs, or a `ToolNode` with a wrapper that cannot be waited for.
    """

    name = _NAME

    def __init__(self, graph: Any) -> None:  # its class leaves most of its types open
        self._graph = graph
        for name, node in graph.nodes.items():
            if node.subgraphs:
                raise ValueError(f"durable(): node {name!r} is a graph of its own, whose calls cannot be recorded")
            bound = node.bound
            if isinstance(bound, ToolNode) and _member(bound, "_wrap_tool_call") and not _member(bound, _WRAPPER):
                raise ValueError(f"durable(): node {name!r} has a wrap_tool_call; give it as awrap_tool_call")

    def kept(self, sent: Any, options: Mapping[str, Any]) -> FrameworkInput:
        value = {"input": _dumped(sent), "thread": _thread(options.get("config"))}
        return FrameworkInput(text=_text_of(sent), value=json.dumps(value))

    async def execute(
        self, kept: FrameworkInput, options: Mapping[str, Any], recorder: RunRecorder, answer: Any
    ) -> Any:
        given = dict(options)
        recorded = json.loads(kept.value or "null") or {"input": _dumped({"messages": [("user", kept.text)]})}
        config = cast("RunnableConfig", dict(given.pop("config", None) or {}))
        thread = _thread(config) or recorded.get("thread") or recorder.run_id
        config["configurable"] = {**(config.get("configurable") or {}), "thread_id": thread}
        config["metadata"] = {**(config.get("metadata") or {}), _MARK: recorder.run_id}
        sent: Any = _loaded(recorded["input"])
        if self._graph.checkpointer:
            state = await self._graph.aget_state(config)
            known: Mapping[str, Any] = state.metadata or {}
            if known.get(_MARK) == recorder.run_id:  # it has begun, and its thread knows where it is
                if answer is None and not state.next:
                    return state.values
                sent = answer
        return await self._recorded(recorder).ainvoke(sent, config, **given)

    def outcome(self, result: Any) -> FrameworkOutcome:
        values: dict[str, Any] = cast("dict[str, Any]", result) if isinstance(result, dict) else {}
        if values.get("__interrupt__"):
            return FrameworkOutcome(text="waits for an answer to its interrupt", waits=True)
        messages = values.get("messages") or [None]
        last = messages[-1]
        return FrameworkOutcome(text=last.text if isinstance(last, BaseMessage) else "")

    def continues(self, sent: Any) -> bool:
        return isinstance(sent, Command)

    def _recorded(self, recorder: RunRecorder) -> Any:
        """Return the graph with its nodes recorded."""
        nodes = {
            name: node if name.startswith("__") else node.copy({"bound": _bound(name, node.bound, recorder)})
            for name, node in self._graph.nodes.items()
        }
        return self._graph.copy({"nodes": nodes})


def _bound(name: str, bound: Runnable[Any, Any], recorder: RunRecorder) -> Runnable[Any, Any]:
    return _tool_node(bound, recorder) if isinstance(bound, ToolNode) else RecordedNode(name, bound, recorder)


def _tool_node(node: ToolNode, recorder: RunRecorder) -> ToolNode:
    """Return a copy of a node whose calls are recorded, each for itself."""
    inner = _member(node, _WRAPPER)

    async def recorded(request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
        call = request.tool_call
        part = ToolCallPart(id=call["id"], name=call["name"], arguments=call["args"])
        metadata: Mapping[str, Any] = (request.tool and request.tool.metadata) or {}

        async def make() -> Any:
            return await (execute(request) if inner is None else inner(request, execute))

        form = GraphValueForm(call)
        return await recorder.call(_step(request.runtime.config), part, metadata.get("annotations"), make, form)

    made = copy.copy(node)
    vars(made).update({_WRAPPER: recorded}, func=_member(made, "_func"), afunc=_member(made, "_afunc"))
    return made


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
        metadata = (config or {}).get("metadata") or {}
        key = f"node/{self.name}/{'/'.join(map(str, metadata.get('langgraph_path', ())))}"

        async def make() -> Any:
            return await self._bound.ainvoke(input, config, **options)

        value = await self._recorder.value(_step(config), f"node {self.name}", key, _NODE, make)
        self._recorder.count(*_usages(value))
        return value


class GraphValueForm:
    """The form of what a tool call, or a node, returned: LangGraph's own, as for a checkpoint."""

    def __init__(self, call: Mapping[str, Any] | None = None) -> None:
        self._call: Mapping[str, Any] = call or {}

    def of_value(self, value: Any) -> KeptOutcome:
        failed = isinstance(value, ToolMessage) and value.status == "error"
        return KeptOutcome(kind="value", value=_dumped(value), text=_text_of(value), is_error=failed)

    def of_error(self, error: Exception) -> KeptOutcome | Literal["undone"] | None:
        return "undone" if isinstance(error, GraphBubbleUp) else None  # an interrupt: its node begins anew

    def replayed(self, kept: KeptOutcome) -> Any:
        return _loaded(kept.value)

    def unknown(self, message: str) -> Any:
        return ToolMessage(message, name=self._call["name"], tool_call_id=self._call["id"], status="error")


_NODE = GraphValueForm()


def _step(config: RunnableConfig | None) -> int:
    return int(((config or {}).get("metadata") or {})["langgraph_step"])


def _thread(config: Mapping[str, Any] | None) -> str | None:
    configurable: Mapping[str, Any] = (config or {}).get("configurable") or {}
    return configurable.get("thread_id")


def _dumped(value: Any) -> list[str]:
    kind, data = _SERIALIZER.dumps_typed(value)
    return [kind, b64encode(data).decode()]


def _loaded(kept: list[str]) -> Any:
    return _SERIALIZER.loads_typed((kept[0], b64decode(kept[1])))


def _messages(value: Any) -> list[Any]:
    found: Any = cast("dict[str, Any]", value).get("messages", ()) if isinstance(value, dict) else value
    return list(cast("list[Any]", found)) if isinstance(found, (list, tuple)) else [found]


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
    answers = [one for one in _messages(value) if isinstance(one, AIMessage)]
    used = [one.usage_metadata or {} for one in answers]
    return [Usage(input_tokens=one.get("input_tokens", 0), output_tokens=one.get("output_tokens", 0)) for one in used]
