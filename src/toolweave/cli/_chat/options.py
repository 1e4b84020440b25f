"""The options of a conversation: those of the servers, the model and the store. Only declares them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated

from toolweave.cli._command import Option
from toolweave.cli._options import Target

AGENT = "chat"
"""The agent's name: conversations and runs are kept under it."""


StoreOption = Annotated[
    str | None,
    Option(
        "--store",
        metavar="FILE|URL",
        help="Where runs and conversations are kept; else TOOLWEAVE_BACKEND, else your data folder.",
    ),
]


DeleteOption = Annotated[bool, Option("--yes", "-y", help="Delete without asking: it cannot be undone.")]


class ConfirmChoice(StrEnum):
    """Tool calls that need a person's approval."""

    ALWAYS = "always"
    DESTRUCTIVE = "destructive"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTarget(Target):
    """The options of the terminal's agent: those of its servers and of its model."""

    model: Annotated[
        str | None, Option("--model", metavar="NAME", help="The model; by default that of TOOLWEAVE_MODEL.")
    ] = None
    system: Annotated[str | None, Option("--system", metavar="TEXT", help="The system prompt.")] = None
    confirm: Annotated[
        ConfirmChoice,
        Option("--confirm", help="Which calls you are asked about. If no one can be asked, they are refused."),
    ] = ConfirmChoice.DESTRUCTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions(AgentTarget):
    """The options of a conversation."""

    resume: Annotated[
        str | None, Option("--resume", metavar="NAME", help="Continue a conversation, or begin one of this name.")
    ] = None
    store: StoreOption = None


def chat_options(options: AgentTarget, *, store: str | None = None) -> ChatOptions:
    """Return the options of the terminal's agent as those of a conversation."""
    return ChatOptions(**{one.name: getattr(options, one.name) for one in fields(AgentTarget)}, store=store)
