"""Prompts for an agent: text with variables, files, context, and messages of an MCP prompt, converted to messages.

Knows no connection: a server's prompt is recognized by its structure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, cast

from toolweave._json_types import Json, JsonObject
from toolweave.agent._messages.content import UnknownForm
from toolweave.agent._messages.content_messages import read_content
from toolweave.agent._messages.forms import ReadMessages, as_members, read_message, spoken
from toolweave.agent._messages.framework_messages import read_framework
from toolweave.agent._messages.parted_messages import read_parts, with_ids
from toolweave.errors import shortened
from toolweave.models import AssistantMessage, Message, ToolMessage, ToolOutcome, UserMessage
from toolweave.protocol.content import ContentBlock, EmbeddedResource, TextContent
from toolweave.tools import File, ToolResult

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
        variables: JsonObject | None = None,
        output_type: Any = None,  # any type, or a JSON Schema
    ) -> None:
        self.text = text
        self.variables: Json = dict(variables or {})
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
            made._messages.append(spoken(message.role, (message.content,)))
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
            is_numbered = name is not None and len(several) > 1
            for number, one in enumerate(several, 1):
                self.add_file(one, name=f"{name} ({number})" if is_numbered else name)
            return self
        single = cast("str | Path | bytes | File | ContentBlock", content)
        if isinstance(single, Path):
            name = name or single.name
            single = File(single)
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
        messages = list(self._messages)
        if blocks:
            messages.append(UserMessage(content=tuple(blocks)))
        # Most APIs refuse such a conversation, or continue the last answer as if it were unfinished.
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

        # In one pass, so that a value that contains `{{name}}` is not expanded: values may come from users.
        return _VARIABLE.sub(value, self.text)


def _labelled(kind: str, name: str | None, block: ContentBlock) -> list[ContentBlock]:
    """Return a block with its name: text between tags, anything else after a line that names it."""
    # A quotation mark would end the attribute, and a file's name could add others.
    attribute = "" if name is None else f' name="{name.replace(chr(34), chr(39))}"'
    if isinstance(block, (TextContent, EmbeddedResource)) and block.text is not None:
        return [TextContent(text=f"<{kind}{attribute}>\n{block.text}\n</{kind}>")]
    return [TextContent(text=f"<{kind}{attribute}/>"), block]


Part: TypeAlias = str | ContentBlock | Message | PromptMessageLike | JsonObject
Sendable: TypeAlias = Prompt | PromptMessages | Part | Sequence[Part]
"""The types that `Agent.send` takes.

A mapping is a message in the form of the chat API or the Messages API, such as `{"role": "user", "content": ...}`, or
an item of the Responses API. Objects are messages of LangChain, Pydantic AI, or the packages of OpenAI and Anthropic.
"""


def messages_of(sent: Sendable) -> tuple[Message, ...]:
    """Convert a sendable value to messages; texts and blocks in a sequence are joined into user messages.

    Raises:
        TypeError: The value, or an entry of it, is of no type that can be sent.
        ValueError: A prompt lacks a variable, or there is nothing to answer.
    """
    if isinstance(sent, Prompt):
        return sent.messages()
    held = getattr(sent, "messages", None)
    if isinstance(held, Sequence):  # a prompt of a server
        sent = cast("Sequence[Part]", held)
    history = _History()
    if isinstance(sent, str) or not isinstance(sent, Sequence):
        history.add(sent, "the message")
    else:
        for index, item in enumerate(cast("Sequence[Any]", sent)):
            history.add(item, f"messages[{index}]")
    return _named(history.finish())


class _History:
    """Messages that are put together from the entries of a history.

    The Responses API has a turn of the model as several items, and each result of a tool as an entry. They become one
    message, as those of our own runs are.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._blocks: list[ContentBlock] = []
        self._after_item = False

    def add(self, item: Any, place: str) -> None:
        """Add an entry.

        Raises:
            TypeError: It is of no type that can be sent; the text begins with its place.
        """
        if isinstance(item, str):
            self._blocks.append(TextContent(text=item))
        elif isinstance(item, _BLOCKS):
            self._blocks.append(cast("ContentBlock", item))
        elif isinstance(item, (UserMessage, AssistantMessage, ToolMessage)):
            self._end_blocks()
            self._messages.append(item)
            self._after_item = False
        else:
            self._end_blocks()
            self._read(item, place)

    def finish(self) -> list[Message]:
        """Return the messages."""
        self._end_blocks()
        return self._messages

    def _end_blocks(self) -> None:
        if self._blocks:
            self._messages.append(UserMessage(content=tuple(self._blocks)))
            self._blocks = []
            self._after_item = False

    def _read(self, item: Any, place: str) -> None:
        members = as_members(item)
        if members is None:
            kind = type(item).__name__
            raise TypeError(f"{place}: an agent is sent texts, content blocks, a Prompt or messages, not {kind}")
        try:
            read = _read_form(members)
        except UnknownForm as exc:
            raise TypeError(f"{place}: {exc}") from None
        continues = read.continues or (read.is_item and self._after_item)
        for message in read.messages:
            self._append(message, continues=continues)
        self._after_item = read.is_item

    def _append(self, message: Message, *, continues: bool) -> None:
        last = self._messages[-1] if self._messages else None
        if isinstance(last, ToolMessage) and isinstance(message, ToolMessage):
            self._messages[-1] = ToolMessage(outcomes=(*last.outcomes, *message.outcomes))
        elif continues and isinstance(last, AssistantMessage) and isinstance(message, AssistantMessage):
            self._messages[-1] = AssistantMessage(parts=(*last.parts, *message.parts))
        else:
            self._messages.append(message)


def _read_form(members: Mapping[str, Any]) -> ReadMessages:
    # In this order: Haystack and Converse share parts with text alone, and only Haystack's others differ. The
    # last one reads the forms that differ by single members, and names those that fit if none does.
    return read_parts(members) or read_framework(members) or read_content(members) or read_message(members)


def _named(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with the names of the tools in results that name their calls alone.

    Raises:
        TypeError: The messages have no call of that id.
    """
    names: dict[str, str] = {}
    found: list[Message] = []
    for message in with_ids(messages):
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
            f"the messages have no call {outcome.call_id!r} that this result is of. Send the message with the call "
            "before it, or the result as a ToolMessage, which names the tool."
        )
    return replace(outcome, name=name)


_BLOCKS: tuple[type, ...] = ContentBlock.__args__  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
