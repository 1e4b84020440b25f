"""Stored conversations: list, name and copy them. Knows the store's conversations, no run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from toolweave.agent._stored.durable import StoreConversations
from toolweave.agent._stored.records import CONVERSATIONS, conversation_key
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._render.text import clip
from toolweave.models import AssistantMessage, Message, UserMessage
from toolweave.state import Store, iter_documents

_SHOWN = 60
_LAST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedConversation:
    """A stored conversation.

    Attributes:
        session: Its name.
        messages: Number of its messages.
        began: Its first words.
    """

    session: str
    messages: int
    began: str


class SavedConversations:
    """The conversations of an agent in a store."""

    def __init__(self, store: Store, agent: str) -> None:
        self._store = store
        self._agent = agent
        self._conversations = StoreConversations(store, agent)

    def new_name(self) -> str:
        """Return a new name from the present time."""
        return time.strftime("%Y-%m-%d-%H%M%S")

    async def all(self) -> list[SavedConversation]:
        """Return the stored conversations."""
        prefix = conversation_key(self._agent, "")
        names = [found.key.removeprefix(prefix) async for found in iter_documents(self._store, CONVERSATIONS, prefix)]
        return [_described(name, await self._conversations.load(name)) for name in names]

    async def copy(self, session: str, name: str) -> None:
        """Copy a conversation to another name.

        Raises:
            CommandError: It has no messages, or the name is taken.
        """
        messages = await self._conversations.load(session)
        if not messages:
            raise CommandError("there is nothing to keep yet")
        if name != session and await self._conversations.load(name):
            raise CommandError(f"there is a conversation {name!r} already", hint="choose another name")
        await self._conversations.save(name, messages)

    async def last_words(self, name: str) -> str:
        """Return the last text of a conversation.

        Raises:
            CommandError: No conversation has this name.
        """
        messages = await self._conversations.load(name)
        if not messages:
            raise CommandError(f"unknown conversation {name!r}", hint="/resume without a name lists them")
        return clip(_text(messages[-1]), _LAST)


def _described(name: str, messages: Sequence[Message]) -> SavedConversation:
    began = clip(_text(messages[0]), _SHOWN) if messages else ""
    return SavedConversation(session=name, messages=len(messages), began=began)


def _text(message: Message) -> str:
    match message:
        case UserMessage() | AssistantMessage():
            return message.text
        case _:
            return ""
