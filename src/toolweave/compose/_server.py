"""`hub_server`: a hub's servers as one MCP server.

Translates between the interfaces of `hub` and `gateway`, and holds no behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toolweave.gateway import Gateway, create_gateway
from toolweave.hub import Hub
from toolweave.tools import Toolset, filtered


def hub_server(
    hub: Hub,
    *,
    name: str,
    version: str,
    tools: Toolset | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    request_state_keys: Sequence[str | bytes] | None = None,
    **options: Any,
) -> Gateway:
    """Return one server of a hub's many: their tools, resources and prompts (`options`: of `create_gateway`).

    Serving it opens the hub. Clients are notified of changes at the servers, late starts and restarts included. Tools
    and prompts are named `server_name`, or by the server's `tool_prefix`; resources keep their URIs, unless two servers
    have the same one: the later one gets its server's name before the scheme, such as `notes+file:///a`. A name or URI
    stays with the server that had it first, as long as the hub lives, and `hub.warnings` lists the conflicts.

    Args:
        hub: The hub.
        name: The server's name, for programs.
        version: Its own version.
        tools: A view of the hub's tools, where not all are offered, or under other names.
        include: Offers only these tools, by their own names; it wins over `exclude`.
        exclude: Leaves these tools out.
        request_state_keys: `state_keys` of `create_gateway`.
        **options: The other options of `create_gateway`.
    """
    included = _names(include)
    excluded = _names(exclude)
    offered = hub if tools is None else tools
    if included or excluded:
        chosen = filtered(offered, included, excluded)
    else:
        chosen = offered
    return create_gateway(hub, name=name, version=version, tools=chosen, state_keys=request_state_keys, **options)


def _names(given: str | Iterable[str]) -> frozenset[str]:
    if isinstance(given, str):
        return frozenset([given])
    return frozenset(given)
