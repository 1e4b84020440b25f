"""From targets to the agents and servers a worker works for; found as `toolweave serve` finds them. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolweave.cli.exits import CommandError
from toolweave.cli.serving.finding import Place, find, load, parse_place

if TYPE_CHECKING:
    from toolweave.agent import Agent
    from toolweave.serve import McpServer

__all__ = ["Found", "find_all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found, each once.

    Attributes:
        agents: Whose runs are done.
        servers: Whose tasks are done.
    """

    agents: tuple[Agent, ...] = ()
    servers: tuple[McpServer, ...] = ()


def find_all(targets: Sequence[str]) -> Found:
    """Load the code of all targets and return what a worker works for.

    Raises:
        CommandError: A target cannot be loaded or is no agent and no server, or two have one name.
    """
    from toolweave.agent import Agent  # --help imports this module
    from toolweave.serve import McpServer

    found = {id(one): one for target in targets for one in _objects(parse_place(target))}
    agents = tuple(one for one in found.values() if isinstance(one, Agent))
    servers = tuple(one for one in found.values() if isinstance(one, McpServer))
    _check_names("agents", agents)
    _check_names("servers", servers)
    return Found(agents=agents, servers=servers)


def _objects(place: Place) -> list[Any]:
    """Return the agents and servers of one place: what it names, or all that the module has."""
    from toolweave.agent import Agent  # as above
    from toolweave.serve import McpServer

    if place.path:
        found = find(place)
        named = [found.server] if found.server is not None else [*found.agents, *found.tools]
    else:
        named = [value for value in vars(load(place)).values() if isinstance(value, (Agent, McpServer))]
    if not named or not all(isinstance(one, (Agent, McpServer)) for one in named):
        raise CommandError(f"{place}: a worker works for agents and servers, and this is neither", hint=_HINT)
    return named


def _check_names(kind: str, found: Iterable[Agent | McpServer]) -> None:
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CommandError(f"two {kind} are named {twice!r}", hint="work is given by name: give each a name of its own")


_HINT = "name an Agent or a server: FILE.py:object or MODULE:OBJECT; FILE.py alone stands for all that are in it"
