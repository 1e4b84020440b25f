"""Conversion of conversations to and from Pydantic AI's messages. Pure; imports that library on first use.

Parts with content that only their provider understands (signatures, ids, steps of its own tools) are kept in
Pydantic AI's own JSON form and are sent back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from toolweave.models._history import pair_tool_calls
from toolweave.models._messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    ProviderPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.protocol.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent
from toolweave.tools._arguments import read_arguments, wire_id
from toolweave.tools._media import sniff
from toolweave.tools._names import NameMap

if TYPE_CHECKING:
    import pydantic
    from pydantic_ai import messages as wire

__all__ = ["PROVIDER", "our_message", "wire_history"]

PROVIDER = "pydantic_ai"
"""Marker of the parts of a conversation that only this library understands."""

_OF_NEXT = "of-next-part"
"""Kind of the part that holds the provider's additions to the text or call after it."""
_ADDED = ("id", "provider_name", "provider_details")

Name: TypeAlias = Callable[[str], str]


def wire_history(messages: Sequence[Message], system: str | None, names: NameMap) -> list[wire.ModelMessage]:
    """Return the conversation in Pydantic AI's form; the system prompt goes with the last request."""
    from pydantic_ai import messages as wire

    out: list[wire.ModelMessage] = []
    pending: list[wire.ModelRequestPart] = []
    for message in pair_tool_calls(messages):
        match message:
            case UserMessage():
                pending.append(wire.UserPromptPart(content=_user_content(message.content)))
            case ToolMessage():
                pending += [_tool_return(outcome, names) for outcome in message.outcomes]
            case AssistantMessage():
                if pending:
                    out.append(wire.ModelRequest(parts=pending))
                    pending = []
                out.append(wire.ModelResponse(parts=_response_parts(message.parts, names)))
    if pending or not out:
        out.append(wire.ModelRequest(parts=pending))
    last = next((one for one in reversed(out) if isinstance(one, wire.ModelRequest)), None)
    if last is not None and system:
        last.instructions = system
    return out


def our_message(parts: Iterable[wire.ModelResponsePart], exposed: Name) -> AssistantMessage:
    """Return a response as an `AssistantMessage`."""
    return AssistantMessage(parts=tuple(ours for part in parts for ours in _our_parts(part, exposed)))


def _our_parts(part: wire.ModelResponsePart, exposed: Name) -> Iterable[AssistantPart]:
    from pydantic_ai import messages as wire

    match part:
        case wire.TextPart():
            if part.content:
                yield from _added(part)
                yield TextPart(text=part.content)
        case wire.ThinkingPart():
            yield ThinkingPart(text=part.content, raw=_adapter().dump_python(part, mode="json"), provider=PROVIDER)
        case wire.ToolCallPart():
            arguments, malformed = (part.args, None) if isinstance(part.args, dict) else read_arguments(part.args or "")
            yield from _added(part)
            name = exposed(part.tool_name)
            yield ToolCallPart(id=part.tool_call_id, name=name, arguments=arguments, malformed=malformed)
        case _:
            yield ProviderPart(provider=PROVIDER, raw=_adapter().dump_python(part, mode="json"))


def _added(part: wire.TextPart | wire.ToolCallPart) -> Iterable[AssistantPart]:
    added = {name: value for name in _ADDED if (value := getattr(part, name)) is not None}
    if added.keys() - {"provider_name"}:
        yield ProviderPart(provider=PROVIDER, raw={"part_kind": _OF_NEXT, **added})


def _response_parts(parts: Iterable[AssistantPart], names: NameMap) -> list[wire.ModelResponsePart]:
    from pydantic_ai import messages as wire

    out: list[wire.ModelResponsePart] = []
    added: dict[str, Any] = {}
    for part in parts:
        match part:
            case TextPart():
                out.append(wire.TextPart(content=part.text, **added))
            case ToolCallPart():
                args = dict(part.arguments)
                call_id = wire_id(part.id)
                out.append(wire.ToolCallPart(names.wire(part.name), args=args, tool_call_id=call_id, **added))
            case ThinkingPart(raw=raw, provider="pydantic_ai") | ProviderPart(raw=raw, provider="pydantic_ai") if raw:
                if raw.get("part_kind") == _OF_NEXT:
                    added = {name: raw[name] for name in _ADDED if name in raw}
                    continue
                out.append(_adapter().validate_python(dict(raw)))
            case _:
                pass  # another provider's
        added = {}
    return out


def _tool_return(outcome: ToolOutcome, names: NameMap) -> wire.ToolReturnPart:
    from pydantic_ai import messages as wire

    result = outcome.result
    contents = _contents(result.content) if result.content and not result.is_error else [result.text]
    texts = [one for one in contents if isinstance(one, str)]
    return wire.ToolReturnPart(
        tool_name=names.wire(outcome.name),
        content="\n".join(texts) if len(texts) == len(contents) else contents,
        tool_call_id=wire_id(outcome.call_id),
        outcome="failed" if result.is_error else "success",
    )


def _user_content(blocks: Sequence[ContentBlock]) -> str | list[str | wire.BinaryContent]:
    contents = _contents(blocks)
    return contents[0] if len(contents) == 1 and isinstance(contents[0], str) else contents


def _contents(blocks: Iterable[ContentBlock]) -> list[str | wire.BinaryContent]:
    return [content if (content := _binary(block)) is not None else block.render() for block in blocks]


def _binary(block: ContentBlock) -> wire.BinaryContent | None:
    """Return an image, audio or a PDF as binary content; None for a block that every provider gets as text."""
    if not isinstance(block, ImageContent | AudioContent | EmbeddedResource):
        return None
    if isinstance(block, EmbeddedResource) and block.blob is None:
        return None
    try:
        data = block.decode()
    except ValueError:  # what a server calls base64 may be none
        return None
    kind = sniff(data) or block.mime_type or ""
    if not kind.startswith(("image/", "audio/")) and kind != "application/pdf":
        return None
    from pydantic_ai import messages as wire

    return wire.BinaryContent(data=data, media_type=kind)


@cache
def _adapter() -> pydantic.TypeAdapter[Any]:
    import pydantic
    from pydantic_ai import messages as wire

    return pydantic.TypeAdapter(wire.ModelResponsePart)
