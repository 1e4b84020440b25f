"""Prompts for an agent: text with variables, files, context, and messages of an MCP prompt, converted to messages.

Knows no connection: a server's prompt is recognized by its structure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, cast

from toolweave._json import decode_json
from toolweave.errors import shortened
from toolweave.models._messages import (
    AssistantMessage,
    AssistantPart,
    Message,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolOutcome,
    UserMessage,
)
from toolweave.protocol.content import ContentBlock, EmbeddedResource, ImageContent, TextContent
from toolweave.protocol.json_types import as_object, as_text
from toolweave.tools._media import File
from toolweave.tools._result import ToolResult

_DATA_URL = re.compile(r"data:(image/[\w.+-]+);base64,")
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}")


class PromptMessageLike(Protocol):
    """One message of a server's prompt."""

    @property
    def role(self) -> str:
        """`"user"` or `"assistant"`."""
        ...

    @property
    def content(self) -> ContentBlock:
        """The text, image or other block of the message."""
        ...


class PromptMessages(Protocol):
    """A filled-in prompt of a server, as `get_prompt` returns it."""

    @property
    def messages(self) -> Sequence[PromptMessageLike]:
        """Its messages, oldest first."""
        ...


class Prompt:
    """A prompt for an agent: the messages of an MCP prompt, then one message of context, files and text.

    Args:
        text: The text; `{{name}}` is replaced by a variable.
        variables: Values of the variables, which are not expanded again.
        output_type: Type of the answer, instead of the agent's (see `Agent`).
    """

    def __init__(
        self,
        text: str = "",
        *,
        variables: Mapping[str, Any] | None = None,
        output_type: Any = None,  # any type, or a JSON Schema
    ) -> None:
        self.text = text
        self.variables: dict[str, Any] = dict(variables or {})
        self.output_type = output_type
        self._messages: list[Message] = []
        self._context: list[ContentBlock] = []
        self._files: list[ContentBlock] = []

    def __repr__(self) -> str:
        return f"<Prompt {shortened(self.text, 60)!r}>"

    @classmethod
    def from_mcp(cls, prompt: PromptMessages, text: str = "", **options: Any) -> Self:
        """Return a prompt from the result of `get_prompt`; `text` comes after its messages."""
        made = cls(text, **options)
        for message in prompt.messages:
            made._messages.append(_spoken(message.role, (message.content,)))
        return made

    def add_file(
        self, content: str | Path | bytes | File | ContentBlock | Sequence[EmbeddedResource], *, name: str | None = None
    ) -> Self:
        """Add a file and return the prompt.

        Args:
            content: A result of `read_resource`, a block, a `File`, a file's path, its bytes, or a text.
            name: Its name for the model; its URI or file name by default.

        Raises:
            OSError: The file cannot be read.
            ToolError: It is too large.
        """
        if isinstance(content, (list, tuple)):
            several = cast("Sequence[EmbeddedResource]", content)
            for number, one in enumerate(several, 1):
                self.add_file(one, name=name if name is None or len(several) == 1 else f"{name} ({number})")
            return self
        single = cast("str | Path | bytes | File | ContentBlock", content)
        if isinstance(single, Path):
            name, single = name or single.name, File(single)
        for block in ToolResult.of(single).content:
            self._files += _labelled("file", name or getattr(block, "uri", None), block)
        return self

    def add_context(self, text: str, *, name: str | None = None) -> Self:
        """Add background information for the model, and return the prompt."""
        self._context += _labelled("context", name, TextContent(text=text))
        return self

    def messages(self) -> tuple[Message, ...]:
        """Return the messages to send.

        Raises:
            ValueError: A variable has no value, or nothing is left for the model to answer.
        """
        blocks = [*self._context, *self._files]
        if self.text:
            blocks.append(TextContent(text=self._filled()))
        messages = [*self._messages, UserMessage(content=tuple(blocks))] if blocks else list(self._messages)
        if not messages or isinstance(messages[-1], AssistantMessage):
            raise ValueError("the prompt ends with nothing to answer; give it a text")
        return tuple(messages)

    def _filled(self) -> str:
        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in self.variables:
                known = ", ".join(sorted(self.variables)) or "none"
                raise ValueError(f"the prompt's variable {name!r} has no value; there are {known}")
            return str(self.variables[name])

        return _VARIABLE.sub(value, self.text)


def _labelled(kind: str, name: str | None, block: ContentBlock) -> list[ContentBlock]:
    """Return a block with its name: text between tags, anything else after a line that names it."""
    attribute = "" if name is None else f' name="{name.replace(chr(34), chr(39))}"'
    text = block.text if isinstance(block, (TextContent, EmbeddedResource)) else None
    if text is not None:
        return [TextContent(text=f"<{kind}{attribute}>\n{text}\n</{kind}>")]
    return [TextContent(text=f"<{kind}{attribute}/>"), block]


Part: TypeAlias = str | ContentBlock | Message | PromptMessageLike | Mapping[str, Any]
Sendable: TypeAlias = Prompt | PromptMessages | Part | Sequence[Part]
"""The types that `Agent.send` takes.

A mapping is a message as other libraries write them: `{"role": "user" or "assistant", "content": ...}`, whose content
is a text or a list of texts, blocks and mappings such as `{"type": "text", "text": ...}`.
"""


def messages_of(sent: Sendable) -> tuple[Message, ...]:
    """Convert a sendable value to messages; texts and blocks in a sequence are joined into user messages.

    Raises:
        TypeError: The value is of no type that can be sent.
        ValueError: A prompt lacks a variable, or there is nothing to answer.
    """
    if isinstance(sent, Prompt):
        return sent.messages()
    said = getattr(sent, "messages", None)
    if isinstance(said, Sequence):  # a prompt of a server
        sent = cast("Sequence[Part]", said)
    single = isinstance(sent, str) or not isinstance(sent, Sequence)
    items: Iterable[Any] = (sent,) if single else cast("Sequence[Any]", sent)
    messages: list[Message] = []
    blocks: list[ContentBlock] = []
    for given in items:
        item = _message(given) if isinstance(given, Mapping) or _is_prompt_message(given) else given
        if isinstance(item, (UserMessage, AssistantMessage, ToolMessage)):
            if blocks:
                messages.append(UserMessage(content=tuple(blocks)))
                blocks = []
            messages.append(item)
        elif isinstance(item, (str, *_BLOCKS)):
            blocks.append(TextContent(text=item) if isinstance(item, str) else cast("ContentBlock", item))
        else:
            kind = type(cast("object", item)).__name__
            raise TypeError(f"an agent is sent texts, blocks, a Prompt or messages, not {kind}")
    if blocks:
        messages.append(UserMessage(content=tuple(blocks)))
    return _named(messages)


def _named(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with the names of the tools in results that name their calls alone.

    Raises:
        TypeError: The messages have no call of that id.
    """
    names: dict[str, str] = {}
    found: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            names |= {call.id: call.name for call in message.tool_calls}
        elif isinstance(message, ToolMessage):
            message = ToolMessage(outcomes=tuple(_named_outcome(one, names) for one in message.outcomes))
        found.append(message)
    return tuple(found)


def _named_outcome(outcome: ToolOutcome, names: Mapping[str, str]) -> ToolOutcome:
    if outcome.name:
        return outcome
    name = names.get(outcome.call_id)
    if name is None:
        raise TypeError(
            f"the messages have no call {outcome.call_id!r} that this result is of; a result alone is sent as a "
            "ToolMessage, which names the tool"
        )
    return replace(outcome, name=name)


_BLOCKS: tuple[type, ...] = ContentBlock.__args__  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def _is_prompt_message(item: Any) -> bool:
    return isinstance(getattr(item, "role", None), str) and hasattr(item, "content")


def _message(item: Any) -> Message:
    """Return a message that is a mapping, or an object of this shape.

    Raises:
        TypeError: It is none, or one that an agent is not sent.
    """
    plain = isinstance(item, Mapping)
    members = cast("Mapping[str, Any]", item) if plain else {"role": item.role, "content": item.content}
    role, content = members.get("role"), members.get("content")
    if role in ("system", "developer"):
        raise TypeError("an agent is sent no system message; give it to the agent: Agent(..., system=...)")
    if role not in ("user", "assistant", "tool"):
        raise TypeError(f"a message's role is 'user', 'assistant' or 'tool', not {role!r}")
    if role == "tool":
        return _outcome(members)
    if role == "assistant" and members.get("tool_calls"):
        return _with_calls(content, members["tool_calls"])
    parts: Sequence[Any] = cast("Sequence[Any]", content) if isinstance(content, (list, tuple)) else [content]
    return _spoken(role, tuple(map(_block, parts)))


def _with_calls(content: object, calls: object) -> AssistantMessage:
    """Return an answer with calls of tools, in the form of OpenAI's chat API.

    Raises:
        TypeError: A call is malformed.
    """
    parts: list[AssistantPart] = []
    if content:
        blocks: Sequence[Any] = cast("Sequence[Any]", content) if isinstance(content, (list, tuple)) else [content]
        parts += (TextPart(text=_block(part).render()) for part in blocks)
    for call in cast("Sequence[Any]", calls) if isinstance(calls, (list, tuple)) else [calls]:
        members = as_object(call) or {}
        function = as_object(members.get("function")) or {}
        key, name = as_text(members.get("id")), as_text(function.get("name"))
        if key is None or name is None or "arguments" not in function:
            raise TypeError(
                "a tool call is {'id': ..., 'function': {'name': ..., 'arguments': ...}}, or a part of an "
                "AssistantMessage"
            )
        parts.append(_call(key, name, function["arguments"]))
    return AssistantMessage(parts=tuple(parts))


def _call(key: str, name: str, arguments: object) -> ToolCallPart:
    """Return a call; arguments that are not a JSON object are kept as the text that they are."""
    if isinstance(arguments, Mapping):
        return ToolCallPart(id=key, name=name, arguments=dict(cast("Mapping[str, Any]", arguments)))
    try:
        decoded: object = decode_json(str(arguments) or "{}")
    except ValueError:
        decoded = None
    if isinstance(decoded, dict):
        return ToolCallPart(id=key, name=name, arguments=cast("dict[str, Any]", decoded))
    return ToolCallPart(id=key, name=name, malformed=str(arguments))


def _outcome(members: Mapping[str, Any]) -> ToolMessage:
    """Return the result of one call, in the form of OpenAI's chat API.

    Raises:
        TypeError: It names no call, or has no readable content.
    """
    key, content = members.get("tool_call_id"), members.get("content")
    if not isinstance(key, str):
        raise TypeError("a message of a tool names its call: {'role': 'tool', 'tool_call_id': ..., 'content': ...}")
    parts: Sequence[Any] = cast("Sequence[Any]", content) if isinstance(content, (list, tuple)) else [content]
    result = ToolResult(content=tuple(map(_block, parts)))
    return ToolMessage(outcomes=(ToolOutcome(call_id=key, name="", result=result),))


def _spoken(role: str, blocks: tuple[ContentBlock, ...]) -> Message:
    if role != "assistant":
        return UserMessage(content=blocks)
    return AssistantMessage(parts=tuple(TextPart(text=block.render()) for block in blocks))


def _block(part: Any) -> ContentBlock:
    if isinstance(part, str):
        return TextContent(text=part)
    if isinstance(part, _BLOCKS):
        return cast("ContentBlock", part)
    members: Mapping[str, Any] = cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else dict[str, Any]()
    match members:
        case {"type": "text" | "input_text", "text": str(text)}:
            return TextContent(text=text)
        case {"type": "image", "data": str(data)}:
            return ImageContent(data=data, mime_type=str(members.get("mimeType", "image/png")))
        case {"type": "image_url", "image_url": {"url": str(url)}} if match := _DATA_URL.match(url):
            return ImageContent(data=url[match.end() :], mime_type=match.group(1))
        case _:
            what = (
                f"a part of type {members.get('type')!r}"
                if members
                else f"content of {type(cast('object', part)).__name__}"
            )
            raise TypeError(f"a message's content is a text, blocks, or parts of type 'text' or 'image', not {what}")
