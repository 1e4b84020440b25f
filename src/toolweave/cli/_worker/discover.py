"""Import and opening of the agents and servers of a worker, as for `toolweave serve`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from toolweave.cli._chat.stores import BACKEND
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._screen import note
from toolweave.cli._serve.kinds import ObjectPath
from toolweave.cli._serve.locate import load, named_objects, parse_place
from toolweave.state.startup import opened_when_reached

if TYPE_CHECKING:
    from toolweave.compose import Agent
    from toolweave.durability import DurableAgent
    from toolweave.jobs import Handler, WorkBackend
    from toolweave.serve import McpServer
    from toolweave.state import Store

    WorkedAgent: TypeAlias = Agent | DurableAgent[Any]

_PROBES = "worker-probes"
_PROBE_SECONDS = 60.0
_WHERE = f"backend=Backend.from_environment(), which is what --backend and {BACKEND} name"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTargets:
    """The imported agents and servers, each once.

    Attributes:
        agents: Agents whose runs are executed, those of other frameworks that were made durable among them.
        servers: Servers with tasks and a backend, whose tasks are executed.
    """

    agents: tuple[WorkedAgent, ...] = ()
    servers: tuple[McpServer, ...] = ()


def find_all(targets: Sequence[str]) -> WorkerTargets:
    """Import all targets and return their agents and servers.

    Raises:
        CommandError: A target cannot be imported or is neither an agent nor a server, two have one name, or none of
            them has any jobs, which is known before any backend is opened.
    """
    from toolweave.serve import McpServer  # --help imports this module

    found: dict[int, Any] = {id(one): one for target in targets for one in _objects(parse_place(target))}
    servers = tuple(one for one in found.values() if isinstance(one, McpServer))
    agents: tuple[WorkedAgent, ...] = tuple(one for one in found.values() if not isinstance(one, McpServer))
    _check_names("agents", agents)
    _check_names("servers", servers)
    working = tuple(one for one in servers if one.handlers())
    for server in servers:
        if server not in working:
            note(f"warning: server {server.name!r} has no work for workers: it needs tasks= and backend=")
    if not agents and not working:
        raise CommandError("there is nothing to work on", hint="a server needs tasks= and backend= for that")
    return WorkerTargets(agents=agents, servers=working)


def _objects(place: ObjectPath) -> list[Any]:
    """Return the agents and servers of one target: the named object, or all of the module."""
    from toolweave.compose import Agent  # as above
    from toolweave.durability import DurableAgent
    from toolweave.serve import McpServer

    kinds = (Agent, DurableAgent, McpServer)
    if place.path:
        found = named_objects(place)
    else:
        found = vars(load(place)).values()
    named: list[Any] = [one for one in found if isinstance(one, kinds)]
    if not named or (place.path and len(named) < len(found)):
        raise CommandError(f"{place}: a worker works for agents and servers, and this is neither", hint=_WHAT)
    return named


def _check_names(kind: str, found: Iterable[WorkedAgent | McpServer]) -> None:
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CommandError(f"two {kind} are named {twice!r}", hint="work is given by name: give each another name")


_WHAT = (
    "name an Agent, a durable agent of another framework or a server: FILE.py:object or MODULE:OBJECT; FILE.py alone "
    "stands for all that are in it"
)


async def open_all(found: WorkerTargets, backend: WorkBackend, stack: AsyncExitStack) -> dict[str, Handler]:
    """Open these agents and servers until the stack is closed; return the handlers of the servers' tasks, by topic.

    Raises:
        CommandError: One of them uses another store.
        StoreError: A backend cannot be reached.
    """
    for agent in found.agents:
        if agent.durable is not None:
            if agent.durable.queue is None:
                raise CommandError(f"agent {agent.name!r} has a store and no queue of work", hint=_WHERE)
            await _enter(agent.durable.store, stack)
            await _enter(agent.durable.queue, stack)
            await _check_place(f"agent {agent.name!r}", agent.durable.store, backend)
        await stack.enter_async_context(agent)
    handlers: dict[str, Handler] = {}
    for server in found.servers:
        assert server.backend is not None  # see `find_all`
        await stack.enter_async_context(opened_when_reached(server.backend))
        await _check_place(f"server {server.name!r}", server.backend.store, backend)
        await stack.enter_async_context(server.running())
        handlers |= server.handlers()
    return handlers


async def _enter(kept: Any, stack: AsyncExitStack) -> None:  # a store or a queue; not each has to be opened
    if isinstance(kept, AbstractAsyncContextManager):
        await stack.enter_async_context(opened_when_reached(kept))  # pyright: ignore[reportUnknownArgumentType]


async def _check_place(what: str, store: Store, backend: WorkBackend) -> None:
    """Raise if two stores differ: the worker would look for jobs in the wrong one."""
    probe = uuid.uuid4().hex
    await backend.store.put(_PROBES, probe, True, ttl=_PROBE_SECONDS)
    seen = await store.get(_PROBES, probe) is not None
    await backend.store.delete(_PROBES, probe)
    if not seen:
        raise CommandError(f"{what} keeps its work elsewhere than this worker looks for it", hint=_WHERE)
