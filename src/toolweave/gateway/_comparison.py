"""Compare a server seen directly with the same server through a gateway: features that a client loses, and limits.

Asks both for everything that they list and compares it as JSON; calls no tool.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import msgspec

from toolweave._json_types import object_entries, object_or_empty
from toolweave.config import LoadedConfig, ServerConfig, server_config
from toolweave.connect import McpConnection
from toolweave.errors import ToolweaveError
from toolweave.gateway._features.capabilities import declares
from toolweave.gateway._gateway import create_gateway
from toolweave.protocol import methods
from toolweave.protocol.meta import OF_EVERY_ERA, TASKS_EXTENSION
from toolweave.protocol.versions import (
    FORMS_VERSION,
    HANDSHAKE_VERSIONS,
    MODERN_VERSION,
    MODERN_VERSIONS,
    PAGES_VERSION,
    TASKS_VERSION,
)
from toolweave.serve.request import Json
from toolweave.tools import expose
from toolweave.tools.mcp import handshake_output_schema

LostKind: TypeAlias = Literal["capability", "instructions", "tool", "prompt", "resource", "template"]
_CLIENTS = (*HANDSHAKE_VERSIONS[1:], MODERN_VERSION)
_MAX_PAGES = 1_000
_LISTS: Mapping[LostKind, tuple[str, str, str, str]] = {
    "tool": (methods.TOOLS_LIST, "tools", "tools", "name"),
    "prompt": (methods.PROMPTS_LIST, "prompts", "prompts", "name"),
    "resource": (methods.RESOURCES_LIST, "resources", "resources", "uri"),
    "template": (methods.RESOURCES_TEMPLATES_LIST, "resources", "resourceTemplates", "uriTemplate"),
}
"""Kind -> the method, the capability, the member with the entries, and the one that names an entry."""


class LostFeature(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a client has at a server and not through the gateway, or not as it is there.

    Attributes:
        kind: Its kind.
        name: Its name, or URI, at the server.
        reason: The difference, in words.
    """

    kind: LostKind
    name: str
    reason: str


class ClientComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The server as a client of one revision has it through the gateway.

    Attributes:
        client: The revision of the client.
        server: The revision that is spoken with the server.
        lost: The differences that were found.
        limits: Features that cannot be translated between the two, for any server.
    """

    client: str
    server: str
    lost: tuple[LostFeature, ...]
    limits: tuple[str, ...]


class _Offers(msgspec.Struct, frozen=True):
    """Everything that a server says of itself and lists, definitions by kind and name."""

    capabilities: Mapping[str, Any]
    instructions: str | None
    definitions: Mapping[LostKind, Mapping[str, Json]]


async def compare_through(
    config: Any, *, gateway: Any = None, clients: Sequence[str] = _CLIENTS
) -> tuple[ClientComparison, ...]:
    """Compare a server with a client's view of it through a gateway, for each revision of a client.

    Args:
        config: The server; anything that `connect_mcp` accepts.
        gateway: A gateway that has the server, likewise; None makes one in this process for the server alone.
        clients: The revisions of the clients.

    Raises:
        ServerError: The server, or the gateway, did not answer.
        ConfigError: A config is wrong.
    """
    wanted = server_config(config)
    found: list[ClientComparison] = []
    async with McpConnection(wanted) as direct:
        version = direct.protocol_version or ""
        own = await _offers(direct)
        async with _gateway(wanted, gateway) as target:
            for client in clients:
                async with McpConnection(target.replace(protocol=client)) as caller:
                    through = await _offers(caller)
                lost = tuple(_lost(own, through, wanted, modern=client in MODERN_VERSIONS, alone=gateway is None))
                limits = tuple(_limits(direct, client))
                found.append(ClientComparison(client=client, server=version, lost=lost, limits=limits))
    return tuple(found)


@asynccontextmanager
async def _gateway(wanted: ServerConfig, gateway: Any) -> AsyncGenerator[ServerConfig]:
    """Yield the config of a gateway that has the server; one of this process runs for the block."""
    if gateway is not None:
        yield server_config(gateway)
        return
    made = create_gateway(LoadedConfig(servers={wanted.name: wanted.replace(tool_prefix="")}))
    failure: ToolweaveError | None = None
    async with made.running():  # so that the server is started once for all clients
        try:
            yield server_config({"server": made})
        except ToolweaveError as error:  # kept out of the task group, which would wrap it
            failure = error
    if failure is not None:
        raise failure


async def _offers(connection: McpConnection) -> _Offers:
    definitions: dict[LostKind, Mapping[str, Json]] = {}
    for kind, (method, capability, member, key) in _LISTS.items():
        definitions[kind] = {}
        if declares(connection, capability):
            entries = await _entries(connection, method, member)
            definitions[kind] = {str(entry.get(key)): entry for entry in entries}
    return _Offers(connection.capabilities, connection.instructions, definitions)


async def _entries(connection: McpConnection, method: str, member: str) -> Sequence[Json]:
    found: list[Json] = []
    params: Json = {}
    for _ in range(_MAX_PAGES):
        page = await connection.request(method, params)
        found += map(dict, object_entries(page.get(member)))
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or cursor == params.get("cursor"):
            break
        params = {"cursor": cursor}
    return found


# findings


def _lost(own: _Offers, through: _Offers, server: ServerConfig, *, modern: bool, alone: bool) -> list[LostFeature]:
    lost = _lost_capabilities(own.capabilities, through.capabilities, modern=modern)
    passed_on = through.instructions or ""
    lines = [line.strip() for line in (own.instructions or "").strip().splitlines()]
    if lines and not all(line in passed_on for line in lines):
        what = "other instructions" if passed_on else "no instructions"
        lost.append(LostFeature(kind="instructions", name=server.name, reason=f"the client is given {what}"))
    for kind, definitions in own.definitions.items():
        for name, definition in definitions.items():
            exposed = _exposed(kind, name, server, through.definitions[kind], alone=alone)
            if exposed is None:
                lost.append(LostFeature(kind=kind, name=name, reason="is not listed"))
            elif members := _differing(_in_form_of(definition, modern=modern), exposed, _LISTS[kind][3]):
                lost.append(LostFeature(kind=kind, name=name, reason=f"is listed with other {', '.join(members)}"))
    return lost


def _lost_capabilities(own: Mapping[str, Any], through: Mapping[str, Any], *, modern: bool) -> list[LostFeature]:
    lost: list[LostFeature] = []
    extensions = object_or_empty(through.get("extensions"))
    for name, value in own.items():
        members = object_or_empty(value)
        if name == "extensions":
            names = [one for one in members if (modern or one in OF_EVERY_ERA) and one not in extensions]
        elif name == "tasks":  # in the form of the client's revision
            if name in through or TASKS_EXTENSION in extensions:
                names = []
            else:
                names = [name]
        elif name not in through:
            names = [name]
        else:
            there = object_or_empty(through[name])
            names = [f"{name}.{one}" for one, on in members.items() if on is not False and one not in there]
        lost += [LostFeature(kind="capability", name=one, reason="is not declared") for one in names]
    return lost


def _exposed(
    kind: LostKind, name: str, server: ServerConfig, listed: Mapping[str, Json], *, alone: bool
) -> Json | None:
    """Return the definition of an offer of the server in the gateway's list, under any name it has there."""
    if kind in ("tool", "prompt"):
        if alone:
            names = (name,)
        else:
            names = (expose(server.name, name, server.tool_prefix), expose(server.name, name), name)
    else:
        names = (f"{server.name}+{name}", name)
    return next((listed[one] for one in names if one in listed), None)


def _in_form_of(definition: Json, *, modern: bool) -> Json:
    """Return a definition in the form of the client's era: before 2026-07-28, output schemas are those of objects."""
    output = definition.get("outputSchema")
    if modern or output is None:
        return definition
    return {**definition, "outputSchema": handshake_output_schema(output)}


def _differing(own: Json, through: Json, key: str) -> list[str]:
    """Return the members of a definition that differ in the other; members added there are no loss."""
    return [member for member, value in own.items() if member != key and through.get(member, ...) != value]


def _limits(direct: McpConnection, client: str) -> list[str]:
    """Return the limits of translation between a client and a server, by their revisions."""
    modern_client = client in MODERN_VERSIONS
    modern_server = direct.protocol_version in MODERN_VERSIONS
    tasks = "tasks" in direct.capabilities and direct.protocol_version == TASKS_VERSION
    declared = object_or_empty(direct.capabilities.get("extensions"))
    extensions = [name for name in declared if name != TASKS_EXTENSION and name not in OF_EVERY_ERA]
    rules = (
        (not modern_server, "what the server asks outside of any call is refused, because no caller could answer"),
        (not modern_server and "logging" in direct.capabilities, "log messages that belong to no call are dropped"),
        (client < FORMS_VERSION, f"forms for the user need a client of {FORMS_VERSION}"),
        (client < PAGES_VERSION, f"pages that the user has to visit need a client of {PAGES_VERSION}"),
        (tasks, "tasks of the server cannot ask, and cannot be listed"),
        (TASKS_EXTENSION in declared and client < TASKS_VERSION, "calls that become tasks are held until they end"),
        (bool(extensions) and not modern_client, f"extensions are not shown: {', '.join(extensions)}"),
        (bool(extensions) and modern_client, "methods that an extension adds are not forwarded"),
    )
    return [text for holds, text in rules if holds]
