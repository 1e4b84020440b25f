"""Which model is talked to: the one that is named, or the one that the environment has a key for. Asks no model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from toolweave.cli.asking import ask_line
from toolweave.cli.exits import CommandError
from toolweave.cli.screen import note
from toolweave.cli.stdin import can_ask

if TYPE_CHECKING:
    from toolweave.models import Model

__all__ = ["OFFLINE", "VARIABLE", "choose_model", "named_model"]

VARIABLE = "TOOLWEAVE_MODEL"
OFFLINE = "command"
_KEYS = (("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-4-5"), ("OPENAI_API_KEY", "openai:gpt-5.1"))
"""What is asked when only a key says whom."""


async def choose_model(option: str | None) -> Model:
    """Return the model to talk to; where none is named a person is offered the one that needs none.

    Raises:
        CommandError: No model is named, and nobody could be asked or somebody said no.
        ConfigError: The name is wrong, or its key is missing.
    """
    from toolweave.models import model_from  # --help imports this module

    name = named_model(option)
    if name is None and can_ask():
        note(f"no model: {VARIABLE} is not set, and neither is a key of a provider")
        answer = await ask_line("use the offline command model, which runs tools by name? [Y/n] ")
        if answer is not None and answer.strip().lower() in ("", "y", "yes"):
            name = OFFLINE
    if name is None:
        keys = ", ".join(variable for variable, _ in _KEYS)
        hint = f"--model NAME, or set {VARIABLE}, {keys}; --model {OFFLINE} runs tools by name, offline"
        raise CommandError("no model is named", hint=hint)
    return model_from(name)


def named_model(option: str | None) -> str | None:
    """Return the name of the model: of the option, of `TOOLWEAVE_MODEL`, or of the first provider with a key."""
    given = option or os.environ.get(VARIABLE, "").strip()
    return given or next((name for variable, name in _KEYS if os.environ.get(variable, "").strip()), None)
