"""Truncation of tool results: a model reads head and tail; the rest is kept and can be read with a tool.

Cuts values; knows no model and no server.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from toolweave.errors import ErrorKind, ToolError
from toolweave.protocol.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent, TextContent
from toolweave.tools._call import CallContext, ToolCall
from toolweave.tools._function import tool as function_tool
from toolweave.tools._result import ToolResult
from toolweave.tools._spec import ToolSpec
from toolweave.tools._toolset import Listeners, Tool, ToolsChanged, ToolSnapshot, Unsubscribe
from toolweave.tools._wrappers import BaseToolset

__all__ = ["ResultCache", "ResultPolicy", "fitted"]

_NOTE = 200
"""Characters reserved for the notes on omitted parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPolicy:
    """Size limits for one tool result that a model reads.

    Attributes:
        max_chars: Characters of text; of a longer one the model reads the head and the tail.
        head: Share of `max_chars` for the head, from 0 to 1.
        max_binary: Bytes of an image, a sound or another binary block; a larger one is left out with a note.
        keep_chars: Characters of long results that are kept for `read_tool_result`, for each session; 0 keeps none.
            The oldest go first.
    """

    max_chars: int = 40_000
    head: float = 0.75
    max_binary: int = 5_000_000
    keep_chars: int = 20_000_000

    def __post_init__(self) -> None:
        if self.max_chars < 2 * _NOTE or not 0 <= self.head <= 1:
            raise ValueError(f"max_chars is at least {2 * _NOTE} and head from 0 to 1, not {self!r}")


def fitted(result: ToolResult, policy: ResultPolicy, *, result_id: str | None = None) -> tuple[ToolResult, str | None]:
    """Truncate a result; return it as a model reads it, and the whole text when some of it was left out.

    A truncated result has text, links and notes first, as one block; images and other binary blocks follow unchanged,
    and never become text.

    Args:
        result: The result of the tool.
        policy: The size limits for it.
        result_id: The id under which the whole will be kept, for the note; None when it will not be.
    """
    texts = result.content
    media: list[ContentBlock] = []
    if any(map(_is_binary, result.content)):
        texts = tuple(block for block in result.content if not _is_binary(block))
        media = [_light(block, policy) for block in result.content if _is_binary(block)]
    text = "\n".join(block.render() for block in texts) if texts or media else result.text
    if len(text) <= policy.max_chars:
        unchanged = not media or all(new is old for new, old in zip(media, filter(_is_binary, result.content)))  # noqa: B905
        return (result, None) if unchanged else (_replaced(result, policy), None)
    return result.replace_content((TextContent(text=_cut(text, policy, result_id)), *media)), text


def _replaced(result: ToolResult, policy: ResultPolicy) -> ToolResult:
    return result.replace_content(_light(block, policy) if _is_binary(block) else block for block in result.content)


def _cut(text: str, policy: ResultPolicy, result_id: str | None) -> str:
    room = policy.max_chars - _NOTE
    head = int(room * policy.head)
    tail = room - head
    left = len(text) - room
    how = f'; read them with read_tool_result(id="{result_id}", offset={head})' if result_id is not None else ""
    return (
        f"{text[:head]}\n[... {left:,} of {len(text):,} characters left out here{how} ...]\n{text[len(text) - tail :]}"
    )


def _is_binary(block: ContentBlock) -> bool:
    return isinstance(block, (ImageContent, AudioContent)) or (
        isinstance(block, EmbeddedResource) and block.blob is not None
    )


def _light(block: ContentBlock, policy: ResultPolicy) -> ContentBlock:
    data = block.blob if isinstance(block, EmbeddedResource) else getattr(block, "data", "")
    if len(data or "") * 3 // 4 <= policy.max_binary:
        return block
    return TextContent(text=f"{block.render()} (left out: larger than {policy.max_binary:,} bytes)")


class ResultCache(BaseToolset):
    """The whole texts of truncated results, as a toolset: its one tool appears with the first text."""

    def __init__(self, policy: ResultPolicy) -> None:
        self._policy = policy
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._size = 0
        self._tool: Tool | None = None  # rarely needed, and made anew for every session
        self._snapshot = ToolSnapshot()
        self._listeners = Listeners()

    def keep(self, result_id: str, text: str) -> None:
        """Keep a text; the oldest are dropped beyond the limit."""
        self._size += len(text) - len(self._texts.pop(result_id, ""))
        self._texts[result_id] = text
        while self._size > self._policy.keep_chars:
            self._size -= len(self._texts.popitem(last=False)[1])
        if self._tool is None and self._texts:
            self._tool = function_tool(self._read, name="read_tool_result", annotations={"readOnlyHint": True})
            before, self._snapshot = self._snapshot, ToolSnapshot((self._tool.spec,), version=1)
            self._listeners.emit(ToolsChanged.between(before, self._snapshot))

    def owns(self, tool: ToolSpec) -> bool:
        """Whether a tool is the one that reads kept results, under any name."""
        return self._tool is not None and tool.input_schema is self._tool.input_schema

    async def _read(self, id: str, offset: int = 0, length: int = 20_000) -> str:  # noqa: A002 - the model's word
        """Read on in a tool result that was too long to be shown whole.

        Args:
            id: The id that the shortened result names.
            offset: The first character to read, from 0.
            length: How many characters.
        """
        text = self._texts.get(id)
        if text is None:
            raise ToolError(f"no result {id!r} is kept (any more); call its tool again", kind=ErrorKind.NOT_FOUND)
        start = min(max(0, offset), len(text))
        part = text[start : start + max(1, min(length, self._policy.max_chars - _NOTE))]
        end = start + len(part)
        return f"{part}\n[characters {start:,} to {end:,} of {len(text):,}]"

    def snapshot(self) -> ToolSnapshot:
        """Return the one tool, or none while nothing is kept."""
        return self._snapshot

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Read a kept result."""
        if self._tool is None:
            return ToolResult.failure("no result is kept", kind=ErrorKind.NOT_FOUND)
        return await self._tool.toolset.call(call, ctx)

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` when the tool appears."""
        return self._listeners.subscribe(listener)
