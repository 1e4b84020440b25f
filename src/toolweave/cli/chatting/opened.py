"""From the options of a conversation to an agent that is open: its model, its servers, its store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from toolweave.agent import Agent, Approval
from toolweave.agent.approval import is_destructive
from toolweave.cli.chatting.choice import choose_model
from toolweave.cli.chatting.options import AGENT, ChatOptions, Confirm
from toolweave.cli.chatting.places import opened_store
from toolweave.cli.fleet import Fleet, open_fleet
from toolweave.cli.screen import note
from toolweave.cli.targets import names_in, select
from toolweave.config import LoadedConfig, default_config
from toolweave.models import Model, ToolCallPart
from toolweave.state import Store
from toolweave.tools import ToolSpec
from toolweave.work import WorkBackend

__all__ = ["Opened", "opened", "servers_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a conversation needs.

    Attributes:
        fleet: The servers, or None when there are none.
    """

    agent: Agent
    fleet: Fleet | None
    store: Store


@asynccontextmanager
async def opened(
    options: ChatOptions, *, attended: bool = True, backend: WorkBackend | None = None
) -> AsyncGenerator[Opened]:
    """Open what the options ask for; a server that fails is told and left out.

    Where a run is not `attended`, calls that a person would be asked about are refused at once. With an open `backend`
    it is that agent's, and its store is used.

    Raises:
        CommandError: No model is named, or the options contradict each other.
        ConfigError: The model's name or a config is wrong.
    """
    selection = await servers_of(options)
    model = await choose_model(options.model)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_closed, model)
        store = backend.store if backend else await stack.enter_async_context(opened_store(options.store))
        kept: dict[str, Any] = {"backend": backend} if backend else {"store": store}
        fleet = None
        if selection is not None:
            fleet = await stack.enter_async_context(open_fleet(selection))
            fleet.show_failures()
        agent = Agent(
            model,
            name=AGENT,
            system=options.system,
            tools=[] if fleet is None else [fleet.hub],
            confirm=options.confirm.value if attended else _refusing(options.confirm),
            **kept,
        )
        yield Opened(agent=await stack.enter_async_context(agent), fleet=fleet, store=store)


async def servers_of(options: ChatOptions) -> LoadedConfig | None:
    """Return the servers that are asked for; None when none are, and there is no config either.

    Raises:
        CommandError: The options contradict each other, or a file is not trusted.
        ConfigError: A config is wrong.
    """
    named = options.config or options.server or options.ad_hoc or options.header or options.bearer_env
    if not named and not names_in(default_config()):
        note("no servers: there is no config")
        return None
    return await select(options)


def _refusing(confirm: Confirm) -> Callable[[ToolCallPart, ToolSpec], Approval]:
    def decide(_: ToolCallPart, tool: ToolSpec) -> Approval:
        asked = confirm is Confirm.ALWAYS or (confirm is Confirm.DESTRUCTIVE and is_destructive(tool))
        return Approval(approved=not asked, reason="there is nobody here who could be asked" if asked else None)

    return decide


async def _closed(model: Model) -> None:
    close = getattr(model, "aclose", None)  # only those that hold connections have it
    if close is not None:
        await close()
