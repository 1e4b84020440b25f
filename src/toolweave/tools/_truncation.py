"""Truncation of tool results: a model reads head and tail; the rest is kept, to be paged and searched with a tool.

Cuts values; knows no model and no server.
"""

from __future__ import annotations

import json
import operator
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from toolweave.errors import ErrorKind, ToolError, as_tool_error, shortened
from toolweave.protocol.content import (
    ContentBlock,
    EmbeddedResource,
    TextContent,
    is_binary_block,
)
from toolweave.tools._audience import LEFT_OUT, is_json_of
from toolweave.tools._call import CallContext, ToolCall
from toolweave.tools._function import tool as function_tool
from toolweave.tools._wrappers import BaseToolset, RoutingToolset, WrapperToolset
from toolweave.tools.result import ToolResult
from toolweave.tools.spec import ToolSpec
from toolweave.tools.toolset import Listeners, Tool, ToolsChanged, Toolset, ToolSnapshot, Unsubscribe

READ_TOOL = "read_tool_result"
_NOTE = 260
"""Characters reserved for the notes on omitted parts."""
_MAX_ID = 64
_MAX_FOUND = 20
_SEARCHED = 2_000_000
"""Maximum characters that one search looks through, since it holds up everything else in the event loop."""
_AROUND = 160
"""Characters that are shown around words that were found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPolicy:
    """Size limits for one tool result that a model reads.

    Attributes:
        max_chars: Characters of text, at least 400; of a longer one the model reads the head and the tail. 40,000 are
            some 10,000 tokens of English.
        head: Share of `max_chars` for the head, from 0 to 1.
        max_binary: Bytes of an image, a sound or another binary block; a larger one is left out with a note.
        keep_chars: Characters of long results that are kept for `read_tool_result`, for each session of an agent, and
            for all callers of a `budgeted` toolset; 0 keeps none. The oldest of the caller with the most go first.
        keep_seconds: Seconds for which they are kept.
    """

    max_chars: int = 40_000
    head: float = 0.75
    max_binary: int = 5_000_000
    keep_chars: int = 20_000_000
    keep_seconds: float = 3600

    def __post_init__(self) -> None:
        if self.max_chars < 400 or not 0 <= self.head <= 1:
            raise ValueError(f"max_chars is at least 400 and head from 0 to 1, not {self!r}")


def fitted(result: ToolResult, policy: ResultPolicy, *, result_id: str | None = None) -> tuple[ToolResult, str | None]:
    """Truncate a result; return it as a model reads it, and the whole text when some of it was left out.

    A truncated result has text, links and notes first, as one block; images and other binary blocks follow unchanged,
    and never become text.

    Args:
        result: The result of the tool.
        policy: The size limits for it.
        result_id: The id under which the whole will be kept, for the note; None when it will not be.
    """
    result = result.for_model()
    media: list[ContentBlock] = []
    texts: list[str] = []
    unchanged = True
    for block in result.content:
        if is_binary_block(block):
            light = _light(block, policy)
            unchanged &= light is block
            media.append(light)
        else:
            texts.append(block.render())
    text = "\n".join(texts)
    if not result.content:
        text = result.text
    if len(text) <= policy.max_chars:
        if unchanged:
            return (result, None)
        return (_replaced(result, policy), None)
    if len(text) > policy.keep_chars:
        # Its rest could not be read.
        result_id = None
    return result.replace_content((TextContent(text=_cut(text, policy, result_id)), *media)), text


def _replaced(result: ToolResult, policy: ResultPolicy) -> ToolResult:
    return result.replace_content(
        _light(block, policy) if is_binary_block(block) else block for block in result.content
    )


def _cut(text: str, policy: ResultPolicy, result_id: str | None) -> str:
    room = policy.max_chars - _NOTE
    # Room for the note is set aside first: the whole, note included, has at most `max_chars`.
    head = _edge(text, int(room * policy.head))
    tail = _edge(text, len(text) - (room - head), later=True)
    how = ""
    if result_id is not None:
        how = f'; {READ_TOOL}(id="{result_id}", offset={head}) reads on, search="..." instead of offset finds words'
    return f"{text[:head]}\n[... {tail - head:,} of {len(text):,} {LEFT_OUT}{how} ...]\n{text[tail:]}"


def _edge(text: str, at: int, *, later: bool = False) -> int:
    """Return where a text may be cut near an index: never within a surrogate pair, which some servers send apart."""
    if not 0 < at < len(text):
        return at
    within_pair = "\ud800" <= text[at - 1] <= "\udbff" and "\udc00" <= text[at] <= "\udfff"
    if within_pair:
        if later:
            return at + 1
        return at - 1
    return at


def _light(block: ContentBlock, policy: ResultPolicy) -> ContentBlock:
    if isinstance(block, EmbeddedResource):
        data = block.blob
    else:
        data = getattr(block, "data", "")
    # Base64 has four characters for three bytes. Decoding megabytes only to count them would cost more.
    if len(data or "") * 3 // 4 <= policy.max_binary:
        return block
    return TextContent(text=f"{block.render()} (left out: larger than {policy.max_binary:,} bytes)")


def _for_user(block: ContentBlock, policy: ResultPolicy) -> ContentBlock:
    """Return a block that no model reads, if it is not larger than one for a model; else its shortened text."""
    if is_binary_block(block):
        light = _light(block, policy)
    else:
        light = block
    text = light.render()
    if len(text) <= policy.max_chars:
        cut = text
    else:
        cut = _cut(text, policy, None)
    if light is block and cut is text:
        return block
    return TextContent(text=cut, annotations=block.annotations)


class _KeptText(NamedTuple):
    text: str
    until: float


class ResultCache(BaseToolset):
    """The whole texts of truncated results, as a toolset: its one tool appears with the first text.

    Args:
        policy: How much is kept, and for how long.
        by_principal: Whether a text belongs to the principal of its call, and is read in its name alone.
        always: Offer the tool from the start.
        clock: Monotonic time, in seconds.
    """

    def __init__(
        self,
        policy: ResultPolicy,
        *,
        by_principal: bool = False,
        always: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policy = policy
        self._by_principal = by_principal
        self._clock = clock
        self._texts: dict[str | None, OrderedDict[str, _KeptText]] = {}
        self._sizes: dict[str | None, int] = {}
        # Rarely needed, and made for every session.
        self._tool: Tool | None = None
        self._snapshot = ToolSnapshot()
        self._listeners = Listeners()
        if always:
            self._offer()

    def cut(self, result: ToolResult, ctx: CallContext, *, result_id: str | None = None) -> ToolResult:
        """Return a result whose form for a model has the right size, and keep the whole text if some was left out.

        A result that fits is returned as it is: `ToolResult.for_model` and `for_person` are for its readers. Blocks for
        the user alone follow the rest of the others.

        Args:
            result: The result of the tool.
            ctx: The context of its call.
            result_id: A short id that no other result has; by default an unguessable one.
        """
        if result_id is None or len(result_id) > _MAX_ID:
            result_id = secrets.token_urlsafe(16)
        model = result.for_model()
        read, whole = fitted(model, self.policy, result_id=result_id)
        if whole is not None and len(whole) <= self.policy.keep_chars:
            self._keep(self._owner(ctx), result_id, whole)
        if read is model:
            return result
        users = [block for block in result.content if "assistant" not in block.audience]
        made = read.replace_content((*read.content, *(_for_user(block, self.policy) for block in users)))
        # A structured text is the text once more: whole, it would be kept and sent beside its own cut form.
        if isinstance(made.structured_content, str):
            return made.replace(structured_content=made.text)
        return made

    def _owner(self, ctx: CallContext) -> str | None:
        if self._by_principal:
            return ctx.principal
        return None

    def _keep(self, owner: str | None, result_id: str, text: str) -> None:
        # Expired texts go first, those of all callers. Then the caller with the most loses its oldest: a caller that
        # fills the cache drops its own texts, not those of others.
        now = self._clock()
        for other in tuple(self._texts):
            self._drop_expired(other, now)
        self._drop(owner, result_id)
        self._texts.setdefault(owner, OrderedDict())[result_id] = _KeptText(text, now + self.policy.keep_seconds)
        self._sizes[owner] = self._sizes.get(owner, 0) + len(text)
        while sum(self._sizes.values()) > self.policy.keep_chars:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self._drop(largest, next(iter(self._texts[largest])))
        self._offer()

    def _drop_expired(self, owner: str | None, now: float) -> None:
        # All are kept equally long, and dictionaries keep their order: the first one expires first.
        texts = self._texts.get(owner)
        while texts and (oldest := next(iter(texts.items())))[1].until <= now:
            self._drop(owner, oldest[0])

    def _drop(self, owner: str | None, result_id: str) -> None:
        texts = self._texts.get(owner)
        if texts is not None and result_id in texts:
            self._sizes[owner] -= len(texts.pop(result_id).text)
            if not texts:
                del self._texts[owner], self._sizes[owner]

    def _offer(self) -> None:
        if self._tool is None:
            self._tool = function_tool(self.read, name=READ_TOOL, annotations={"readOnlyHint": True})
            before = self._snapshot
            self._snapshot = ToolSnapshot((self._tool.spec,), version=1)
            self._listeners.emit(ToolsChanged.between(before, self._snapshot))

    def owns(self, tool: ToolSpec) -> bool:
        """Whether a tool is the one that reads kept results, under any name."""
        return self._tool is not None and tool.input_schema is self._tool.input_schema

    async def read(
        self,
        ctx: CallContext,
        id: str,  # noqa: A002 - the model's word
        offset: int = 0,
        length: int = 20_000,
        search: str | None = None,
    ) -> str:
        """Read on in a tool result that was too long to be shown whole, or find words in it.

        Args:
            ctx: The context of the call.
            id: The id that the shortened result names.
            offset: The first character to read, or to search from; from 0.
            length: How many characters.
            search: Words to find instead, in upper or lower case; the answer has the offset of each place.
        """
        owner = self._owner(ctx)
        self._drop_expired(owner, self._clock())
        texts = self._texts.get(owner)
        found = None if texts is None else texts.get(id)
        if found is None:
            raise ToolError(
                f"no result {shortened(id, _MAX_ID)!r} is kept (any more); call its tool again",
                kind=ErrorKind.NOT_FOUND,
            )
        start = min(max(0, offset), len(found.text))
        if search:
            return "\n".join(_places(found.text, search, start, self.policy.max_chars))
        # 2: a surrogate pair is never split.
        most = max(2, min(length, self.policy.max_chars - _NOTE))
        start = _edge(found.text, start)
        end = _edge(found.text, min(start + most, len(found.text)))
        return f"{found.text[start:end]}\n[characters {start:,} to {end:,} of {len(found.text):,}]"

    def snapshot(self) -> ToolSnapshot:
        """Return the one tool, or none while nothing was kept."""
        return self._snapshot

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Read a kept result."""
        if self._tool is None:
            return ToolResult.failure("no result is kept", kind=ErrorKind.NOT_FOUND)
        return await self._tool.toolset.call(call, ctx)

    def subscribe(self, listener: Callable[[ToolsChanged], None]) -> Unsubscribe:
        """Call `listener` when the tool appears."""
        return self._listeners.subscribe(listener)


def _places(text: str, words: str, start: int, most: int) -> Iterator[str]:
    """Yield a line for each match of the words, and how far was searched; plain words, so that it takes linear time."""
    end = min(len(text), start + _SEARCHED)
    shown = length = 0
    at = None
    for match in re.compile(re.escape(words), re.IGNORECASE).finditer(text, start, end):
        at = match.start()
        line = f"offset {at}: ...{' '.join(text[max(0, at - _AROUND // 2) : at + _AROUND // 2].split())}..."
        length += len(line) + 1
        if shown == _MAX_FOUND or length > most - _NOTE:
            break
        shown += 1
        yield line
    else:
        if end == len(text):
            at = None
        else:
            at = max(start + 1, end - len(words))
    more = "" if at is None else f"; go on with offset={at}"
    places = "1 place" if shown == 1 else f"{shown} places"
    yield f"[{places} with {shortened(words, _MAX_ID)!r} from character {start:,} on{more}]"


def budgeted(
    toolset: Toolset,
    policy: ResultPolicy | None = None,
    *,
    structured: Literal["keep", "drop"] = "keep",
    always: bool = False,
) -> BudgetedToolset:
    """Return the toolset with results that fit a budget, and a tool that reads and searches the rest of those cut.

    A result whose text is too long has its head and its tail, with a note between them. The rest is kept in memory, for
    the principal of the call alone and under an id that cannot be guessed. Agents do this by themselves.

    Args:
        toolset: The toolset.
        policy: The limits.
        structured: `"keep"` leaves structured content as it is, for programs: no model of this library and no export
            sends it beside a text; a text is cut in both places. `"drop"`, for callers that may, takes the
            output schemas from the definitions, and structured content that is too large out of the results; its JSON
            is then part of the text that is cut.
        always: Offer the tool from the start, for consumers that list the tools once; by default it appears with the
            first result that was cut.
    """
    return BudgetedToolset(toolset, policy or ResultPolicy(), structured=structured, always=always)


class BudgetedToolset(WrapperToolset, RoutingToolset):
    """A toolset whose results fit a budget; see `budgeted`."""

    __slots__ = ("_cache", "_drops", "_seen", "_view")

    def __init__(self, toolset: Toolset, policy: ResultPolicy, *, structured: str, always: bool) -> None:
        super().__init__(toolset)
        self._cache = ResultCache(policy, by_principal=True, always=always)
        self._drops = structured == "drop"
        self._seen: tuple[ToolSnapshot, ToolSnapshot] | None = None
        self._view = ToolSnapshot()

    def snapshot(self) -> ToolSnapshot:
        """Return the tools of the toolset, and the one that reads on if it has no tool of that name itself."""
        seen = self._toolsets[0].snapshot(), self._cache.snapshot()
        if self._seen is None or not all(map(operator.is_, seen, self._seen)):
            inner, own = seen
            specs = [*inner, *(spec for spec in own if spec.name not in inner.by_name)]
            if self._drops:
                specs = [spec.replace(output_schema=None) for spec in specs]
            self._seen, self._view = seen, ToolSnapshot(specs, version=inner.version + own.version)
        return self._view

    def route(self, name: str) -> tuple[Toolset, str] | None:
        """Return this toolset for the tools that it wraps."""
        if self._toolsets[0].snapshot().find(name) is not None:
            return self, name
        if self._cache.snapshot().find(name) is None:
            return None
        return (self._cache, name)

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        """Run one tool and cut its result."""
        if self._toolsets[0].snapshot().find(call.name) is None:
            return await super().call(call, ctx)
        try:
            result = await self._toolsets[0].call(call, ctx)
        except Exception as exc:
            # Boundary: a third-party Toolset may raise where ours returns.
            result = ToolResult.failure(as_tool_error(exc))
        if self._drops:
            result = self._without_structured(result)
        return self._cache.cut(result, ctx)

    async def read(
        self,
        ctx: CallContext,
        id: str,  # noqa: A002 - the model's word
        offset: int = 0,
        length: int = 20_000,
        search: str | None = None,
    ) -> str:
        """Return a part of a kept result, or the places of words in it, to offer them otherwise than as a tool.

        Args:
            ctx: The context of the request.
            id: The id that the shortened result names.
            offset: The first character to read, or to search from; from 0.
            length: Number of characters.
            search: Words to find instead of reading, in upper or lower case.

        Raises:
            ToolError: No result of the caller's is kept under this id (`NOT_FOUND`).
        """
        return await self._cache.read(ctx, id, offset, length, search)

    def _without_structured(self, result: ToolResult) -> ToolResult:
        """Return a result without structured content that is too large; its text has it then."""
        if result.structured_content is None or isinstance(result.structured_content, str):
            # A text is cut with the content that it repeats.
            return result
        text = json.dumps(result.structured_content, ensure_ascii=False, default=str)
        if len(text) <= self._cache.policy.max_chars:
            return result
        value = result.structured_content
        for block in result.for_model().content:
            if isinstance(block, TextContent) and is_json_of(block.text, value):
                return result.replace(structured_content=None)
        return result.replace(content=(*result.content, TextContent(text=text)), structured_content=None)

    def _feeds(self) -> list[Callable[[Callable[[ToolsChanged], None]], Unsubscribe]]:
        return [self._toolsets[0].subscribe, self._cache.subscribe]
