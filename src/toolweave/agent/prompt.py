"""What is sent to an agent: a text with variables, files, context, and messages of an MCP prompt; as messages.

Knows no connection: what a server answered is read by its shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, cast

from toolweave.models.messages import AssistantMessage, Message, TextPart, ToolMessage, UserMessage
from toolweave.tools.media import File
from toolweave.tools.result import ContentBlock, EmbeddedResource, TextContent, ToolResult

__all__ = ["Prompt", "PromptMessages", "Sendable", "messages_of"]

_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}")


class _PromptMessage(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def content(self) -> ContentBlock: ...


class PromptMessages(Protocol):
    """A filled-in prompt of a server, as `get_prompt` returns it."""

    @property
    def messages(self) -> Sequence[_PromptMessage]:
        """Its messages, oldest first."""
        ...


class Prompt:
    """What is sent: first the messages of an MCP prompt, then one message of context, files and text.

    Args:
        text: The text; `{{name}}` stands for a variable.
        variables: Their values. What they contain is not looked at for variables again.
        output_type: What the answer has to be, in the place of the agent's (see `Agent`).
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

    @classmethod
    def from_mcp(cls, prompt: PromptMessages, text: str = "", **options: Any) -> Self:
        """Return a prompt of what `get_prompt` returned (requirement F2); `text` comes after its messages."""
        made = cls(text, **options)
        for message in prompt.messages:
            if message.role == "assistant":
                made._messages.append(AssistantMessage(parts=(TextPart(text=message.content.render()),)))
            else:
                made._messages.append(UserMessage(content=(message.content,)))
        return made

    def add_file(
        self, content: str | Path | bytes | File | ContentBlock | Sequence[EmbeddedResource], *, name: str | None = None
    ) -> Self:
        """Add a file and return the prompt (requirement F1).

        Args:
            content: What `read_resource` returned, a block, a `File`, a file's path, its bytes, or a text as it is.
            name: What the model knows it by; its URI or its file name by default.

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
        """Add what the model should know, and return the prompt."""
        self._context += _labelled("context", name, TextContent(text=text))
        return self

    def messages(self) -> tuple[Message, ...]:
        """Return the messages that are sent.

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


Sendable: TypeAlias = str | ContentBlock | Prompt | Message | Sequence[str | ContentBlock | Message]
"""What can be sent to an agent."""


def messages_of(sent: Sendable) -> tuple[Message, ...]:
    """Return what is sent as messages; texts and blocks in a sequence join to messages of the user's.

    Raises:
        TypeError: It is nothing that can be sent.
        ValueError: A prompt lacks a variable, or there is nothing to answer.
    """
    if isinstance(sent, Prompt):
        return sent.messages()
    single = isinstance(sent, str) or not isinstance(sent, Sequence)
    items: Iterable[Any] = (sent,) if single else cast("Sequence[Any]", sent)
    messages: list[Message] = []
    blocks: list[ContentBlock] = []
    for item in items:
        if isinstance(item, (UserMessage, AssistantMessage, ToolMessage)):
            if blocks:
                messages.append(UserMessage(content=tuple(blocks)))
                blocks = []
            messages.append(item)
        elif isinstance(item, (str, *_BLOCKS)):
            blocks.append(TextContent(text=item) if isinstance(item, str) else cast("ContentBlock", item))
        else:
            raise TypeError(f"an agent is sent texts, blocks, a Prompt or messages, not {type(item).__name__}")
    if blocks:
        messages.append(UserMessage(content=tuple(blocks)))
    return tuple(messages)


_BLOCKS: tuple[type, ...] = ContentBlock.__args__  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
