"""The pages' content of several replicas as one: rows of servers, of the replicas, of calls, tasks and keys.

Pure functions. A page is the same at every replica, because rows are ordered by what they show and by the replicas'
names, and never by the replica that makes the page. A reply that another version of the gateway made and that cannot be
read counts as none: its replica is shown as silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from toolweave.connect import ConnectionState
from toolweave.gateway._admin.status import GatewayStatus, UpstreamStatus
from toolweave.gateway._replicas.fleet import FleetReplies, Peer

PER_CALLER = "per caller"
"""The state of a server that is called as its callers, and so lacks nothing."""

_GOOD = frozenset({ConnectionState.READY.value, PER_CALLER})
_BAD = frozenset({one.value for one in ConnectionState if one.value not in ("ready", "idle", "connecting", "degraded")})
_ABSENT = "absent"
_WORST = ("bad", "busy", "good")

ContentT = TypeVar("ContentT")
RowT = TypeVar("RowT")


class ServerHere(msgspec.Struct, frozen=True, kw_only=True):
    """A server at one replica.

    Attributes:
        status: Its state.
        pid: Its process, or None.
        since: When it got into this state, in seconds since the epoch, or None.
    """

    status: UpstreamStatus
    pid: int | None = None
    since: float | None = None


class ServersHere(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of one replica, and its own state.

    Attributes:
        gateway: The state of the gateway, without its servers.
        servers: Its servers.
    """

    gateway: GatewayStatus
    servers: tuple[ServerHere, ...]


class ServerPlace(NamedTuple):
    """The state of a server at one replica, where it is not the same at all.

    Attributes:
        replica: The replica.
        state: The state.
        tone: How the page marks it.
    """

    replica: Peer
    state: str
    tone: str


class ServerRow(NamedTuple):
    """A server of the gateway.

    Attributes:
        one: Its state where it is worst.
        tone: How the page marks it.
        pid: Its process, where there is one replica.
        since: When it got into this state, or None.
        places: Its state at each replica, where they differ.
    """

    one: UpstreamStatus
    tone: str
    pid: int | None
    since: float | None
    places: Sequence[ServerPlace]


def read_replies(replies: FleetReplies, kind: type[ContentT]) -> tuple[Mapping[Peer, ContentT], Mapping[Peer, str]]:
    """Return the content of each replica, and the replicas without any, each with the reason."""
    found: dict[Peer, ContentT] = {}
    silent = dict(replies.silent)
    for peer, body in replies.found.items():
        try:
            found[peer] = msgspec.convert(body, kind)
        except msgspec.ValidationError:
            silent[peer] = "it has another version"
    return found, silent


def places_of(found: Mapping[Peer, Sequence[RowT]]) -> list[tuple[RowT, Sequence[str]]]:
    """Return the rows of all replicas, each once with the names of the replicas that have it, if not all do."""
    places: dict[RowT, list[str]] = {}
    for peer, rows in found.items():
        for one in rows:
            places.setdefault(one, []).append(peer.name)
    for names in places.values():
        if len(names) == len(found):
            names.clear()
    return list(places.items())


def tone_of(one: UpstreamStatus) -> str:
    """Return how the page marks the state of a server."""
    if one.state in _GOOD:
        return "good"
    # Each new attempt of a server that failed begins with this state. Marked as one that starts for the first time, it
    # would leave the servers that are not ready and return to them every few seconds.
    again = one.state == ConnectionState.CONNECTING.value and one.error is not None
    if one.state in _BAD or again:
        return "bad"
    return "busy"


def server_rows(found: Mapping[Peer, ServersHere]) -> Sequence[ServerRow]:
    """Return the servers of all replicas, each once."""
    states: dict[str, dict[Peer, ServerHere]] = {}
    for peer, content in found.items():
        for state in content.servers:
            states.setdefault(state.status.name, {})[peer] = state
    return [_server_row(there, tuple(found)) for there in states.values()]


def _server_row(there: Mapping[Peer, ServerHere], peers: Sequence[Peer]) -> ServerRow:
    places: list[ServerPlace] = []
    for peer in peers:
        if peer in there:
            one = there[peer].status
            places.append(ServerPlace(peer, one.state, tone_of(one)))
        else:
            places.append(ServerPlace(peer, _ABSENT, "bad"))
    worst = min((there[peer] for peer in there), key=lambda one: _WORST.index(tone_of(one.status)))
    restarts = sum(one.status.restarts for one in there.values())
    same = len({one.state for one in places}) == 1
    return ServerRow(
        one=msgspec.structs.replace(worst.status, restarts=restarts),
        tone=min((one.tone for one in places), key=_WORST.index),
        pid=worst.pid if len(peers) == 1 else None,
        since=worst.since,
        places=() if same else places,
    )


def summary_of_servers(rows: Sequence[ServerRow], replicas: int) -> str:
    """Return the servers in one line."""
    ready = sum(row.tone == "good" for row in rows)
    bad = [row.one.name for row in rows if row.tone == "bad"]
    noun = "server" if len(rows) == 1 else "servers"
    summary = f"{ready} of {len(rows)} {noun} ready"
    if replicas > 1:
        summary += f" at all {replicas} replicas"
    if bad:
        summary += f"; not ready: {', '.join(bad)}"
    return summary


def newest_rows(rows: Sequence[tuple[float, Peer, Any]], most: int) -> Sequence[tuple[Peer, Any]]:
    """Return the newest rows of all replicas.

    Args:
        rows: The time, the replica and the content of each.
        most: The maximum of rows.
    """
    newest = sorted(rows, key=lambda row: (-row[0], row[1]))
    return [(peer, one) for _, peer, one in newest[:most]]
