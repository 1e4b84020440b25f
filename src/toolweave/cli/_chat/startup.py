"""Opening an agent from the options of a conversation: its model, its servers, its store."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from toolweave._json_types import Json
from toolweave.agent.approval import Attended
from toolweave.cli._chat.options import AGENT, ChatOptions
from toolweave.cli._chat.stores import opened_store
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._questions import ask_line
from toolweave.cli._screen import note
from toolweave.cli._servers import OpenServers, open_fleet
from toolweave.cli._stdin import can_ask
from toolweave.cli._targets import names_in, select
from toolweave.compose import Agent
from toolweave.config import LoadedConfig, default_config
from toolweave.connect import Callbacks, ask_caller
from toolweave.jobs import WorkBackend
from toolweave.models import Model, model_from
from toolweave.state import Store

VARIABLE = "TOOLWEAVE_MODEL"
OFFLINE = "command"
_KEYS = (("ANTHROPIC_API_KEY", "anthropic:claude-sonnet-4-5"), ("OPENAI_API_KEY", "openai:gpt-5.1"))
"""Environment variables of API keys, and the default model of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedAgent:
    """The open resources of a conversation.

    Attributes:
        fleet: The servers, or None without servers.
    """

    agent: Agent
    fleet: OpenServers | None
    store: Store


@asynccontextmanager
async def opened(
    options: ChatOptions, *, attended: Attended = True, backend: WorkBackend | None = None
) -> AsyncGenerator[OpenedAgent]:
    """Open the agent for these options; a server that fails is reported and left out.

    With `attended="later"` questions of servers wait in the store, as they do for workers. An open `backend` becomes
    the agent's, and its store is used.

    Raises:
        CommandError: No model is named, or the options contradict each other.
        ConfigError: The model's name or a config is wrong.
    """
    selection = await servers_of(options)
    model = await choose_model(options.model)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_closed, model)
        # The order of closing is the reverse: the agent first, then its servers, the store and the model.
        if backend is None:
            store = await stack.enter_async_context(opened_store(options.store))
            kept: Json = {"store": store}
        else:
            store = backend.store
            kept = {"backend": backend}
        fleet = None
        if selection is not None:
            waits = backend is not None or attended == "later"
            callbacks = Callbacks(elicitation=ask_caller) if waits else None
            fleet = await stack.enter_async_context(open_fleet(selection, callbacks=callbacks))
            fleet.show_failures()
        agent = Agent(
            model,
            name=AGENT,
            system=options.system,
            tools=[] if fleet is None else [fleet.hub],
            confirm=options.confirm.value,
            **kept,
        )
        yield OpenedAgent(agent=await stack.enter_async_context(agent), fleet=fleet, store=store)


async def servers_of(options: ChatOptions) -> LoadedConfig | None:
    """Return the requested servers; None if none are requested and no config was found.

    Raises:
        CommandError: The options contradict each other, or a file is not trusted.
        ConfigError: A config is wrong.
    """
    named = (options.config, options.server, options.ad_hoc, options.header, options.bearer_env)
    if not any(named) and not names_in(default_config()):
        note("no servers: no config was found")
        return None
    return await select(options)


async def _closed(model: Model) -> None:
    close = getattr(model, "aclose", None)  # only those that hold connections have it
    if close is not None:
        await close()


async def choose_model(option: str | None) -> Model:
    """Return the model for the conversation; if none is named, offer the person the offline model.

    Raises:
        CommandError: No model is named, and the person declined or cannot be asked.
        ConfigError: The name is wrong, or its key is missing.
    """
    name = named_model(option)
    if name is None and can_ask():
        note(f"no model: {VARIABLE} is not set, and neither is a key of a provider")
        answer = await ask_line("use the offline command model, which runs tools by name? [Y/n] ")
        is_yes = answer is not None and answer.strip().lower() in ("", "y", "yes")
        name = OFFLINE if is_yes else None
    if name is None:
        keys = ", ".join(variable for variable, _ in _KEYS)
        hint = f"--model NAME, or set {VARIABLE}, {keys}; --model {OFFLINE} runs tools by name, offline"
        raise CommandError("no model is named", hint=hint)
    return model_from(name)


def named_model(option: str | None) -> str | None:
    """Return the model's name: that of the option, of `TOOLWEAVE_MODEL`, or of the first provider with a key."""
    given = option or os.environ.get(VARIABLE, "").strip()
    if given:
        return given
    for variable, name in _KEYS:
        if os.environ.get(variable, "").strip():
            return name
    return None
