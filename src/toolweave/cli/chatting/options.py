"""The options of a conversation: the servers', and those of the model and of what is kept. Only reads them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from toolweave.cli.options import TARGET_DEFAULTS, Target

__all__ = ["AGENT", "CHAT_DEFAULTS", "ChatOptions", "Confirm", "StoreOption"]

AGENT = "chat"
"""The agent's name: conversations and runs are kept under it."""


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE|URL",
        help="Where runs and conversations are kept; else TOOLWEAVE_BACKEND, else your data folder.",
    ),
]


class Confirm(StrEnum):
    """Which tool calls a person has to allow."""

    ALWAYS = "always"
    DESTRUCTIVE = "destructive"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions(Target):
    """What a conversation was asked for.

    Attributes:
        model: The model's name, or None for that of the environment.
        system: What it is told first.
        confirm: Which calls a person has to allow.
        resume: The conversation to go on with.
        store: The file or the URL where it is kept.
    """

    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The model; by default what TOOLWEAVE_MODEL says.")
    ]
    system: Annotated[str | None, typer.Option("--system", metavar="TEXT", help="What it is told first.")]
    confirm: Annotated[Confirm, typer.Option("--confirm", help="Which calls you are asked about.", show_default=True)]
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="NAME", help="Go on with a conversation, or begin one of this name."),
    ]
    store: StoreOption


CHAT_DEFAULTS: dict[str, Any] = {  # what each option is when it is not given
    **TARGET_DEFAULTS,
    "model": None,
    "system": None,
    "confirm": Confirm.DESTRUCTIVE,
    "resume": None,
    "store": None,
}
