"""Agents and servers, opened for as long as a worker works: their tools, and where they keep things. Runs nothing."""

from __future__ import annotations

import uuid
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from toolweave.cli.chatting.places import BACKEND
from toolweave.cli.exits import CommandError
from toolweave.cli.screen import note

if TYPE_CHECKING:
    from toolweave.cli.working.objects import Found
    from toolweave.state import Store
    from toolweave.work import Handler, WorkBackend

__all__ = ["open_all"]

_PROBES = "worker-probes"
_PROBE_SECONDS = 60.0
_HINT = f"backend=Backend.from_environment(), which is what --backend and {BACKEND} name"


async def open_all(found: Found, backend: WorkBackend, stack: AsyncExitStack) -> dict[str, Handler]:
    """Open what was found until the stack is closed; return what is done of the servers' tasks, by topic.

    Raises:
        CommandError: One of them keeps things elsewhere, or there is nothing to do for any of them.
        StoreError: A backend cannot be reached.
    """
    for agent in found.agents:
        if agent.durable is not None:
            if agent.durable.queue is None:
                raise CommandError(f"agent {agent.name!r} has a store and no queue of work", hint=_HINT)
            await _enter(agent.durable.store, stack)
            await _enter(agent.durable.queue, stack)
            await _check_place(f"agent {agent.name!r}", agent.durable.store, backend)
        await stack.enter_async_context(agent)
    handlers: dict[str, Handler] = {}
    for server in found.servers:
        tasks = server.handlers()
        if server.backend is None or not tasks:
            note(f"warning: server {server.name!r} has no work for workers: it needs tasks= and backend=")
            continue
        await stack.enter_async_context(server.backend)
        await _check_place(f"server {server.name!r}", server.backend.store, backend)
        await stack.enter_async_context(server.running())
        handlers |= tasks
    if not found.agents and not handlers:
        raise CommandError("there is nothing to work on", hint="a server needs tasks= and backend= for that")
    return handlers


async def _enter(kept: Any, stack: AsyncExitStack) -> None:  # a store or a queue; not each has to be opened
    if isinstance(kept, AbstractAsyncContextManager):
        await stack.enter_async_context(kept)  # pyright: ignore[reportUnknownArgumentType]


async def _check_place(what: str, store: Store, backend: WorkBackend) -> None:
    """Check that two stores are one: jobs of the one place would be looked for at the other."""
    probe = uuid.uuid4().hex
    await backend.store.put(_PROBES, probe, True, ttl=_PROBE_SECONDS)
    seen = await store.get(_PROBES, probe) is not None
    await backend.store.delete(_PROBES, probe)
    if not seen:
        raise CommandError(f"{what} keeps its work elsewhere than this worker looks for it", hint=_HINT)
