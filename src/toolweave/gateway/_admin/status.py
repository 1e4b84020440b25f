"""The state of a gateway and its servers as values: for the admin API, the command and the checks of readiness.

Pure functions of a hub and a config. No value holds a secret; texts of servers are escaped where they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from toolweave.connect import ConnectionState
from toolweave.connect._hints import hint_of
from toolweave.gateway._admin.upstream_changes import UpstreamChanges
from toolweave.hub import Hub
from toolweave.hub._hub import caller_servers
from toolweave.hub._starting import STARTING

_READY = frozenset({ConnectionState.READY})


class UpstreamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one upstream.

    Attributes:
        name: Its name.
        state: Its state, as `ConnectionState` names them.
        transport: Its transport.
        endpoint: Its command line or URL, secrets masked.
        added: Whether it was added at run time, and is in no config file.
        required: Whether the gateway is not ready without it.
        tools: The number of its tools.
        protocol: Its protocol revision, or None.
        restarts: The number of its reconnections, those of connections that only some callers use included.
        error: Its last error, or None.
        hint: What to do about that error, or None if the error itself says so.
        pending: The operation in progress on it: `"starting"`, `"replacing"` by another config, or None.
        not_applied: The error of its new settings, which failed: the connection with the earlier ones is in use. None
            where its settings are in use.
        not_applied_hint: What to do about the error in `not_applied`, or None if the error itself says so.
        only_here: Whether it is in this worker alone, until the store that workers share is back.
    """

    name: str
    state: str
    transport: str
    endpoint: str
    added: bool
    required: bool
    tools: int
    protocol: str | None
    restarts: int
    error: str | None
    pending: str | None
    hint: str | None = None
    not_applied: str | None = None
    not_applied_hint: str | None = None
    only_here: bool = False


class VirtualStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A virtual server.

    Attributes:
        name: Its name.
        path: Its path.
        title: Its human-readable name, or None.
        tools: The number of its tools.
    """

    name: str
    path: str
    title: str | None
    tools: int


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a gateway is ready to be sent requests.

    Attributes:
        ready: Whether it is.
        draining: Whether it is about to end.
        config: `"loaded"`, `"kept"` when the last change of the file was refused, or `"partial"` when upstreams could
            not be connected with their new settings and keep the earlier ones.
        generation: The number of the config in use; it grows with each change.
        missing: The state of each required upstream that is not ready, and of each that is still starting for the first
            time since the gateway started.
        shared: `"ready"`, or `"away"` while the store of the replicas cannot be reached, without which calls and lists
            keep working; None where nothing is shared.
    """

    ready: bool
    draining: bool
    config: str
    generation: int
    missing: Mapping[str, str]
    shared: str | None = None


class GatewayStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a gateway.

    Attributes:
        name: Its name.
        ready: Whether it is ready.
        draining: Whether it is about to end.
        generation: The number of the config in use.
        problem: The reason why the last change of the config was refused, or None.
        needs_confirmation: Whether it was refused because it loses most of the servers, or the rules, in use.
        warnings: Remarks about the config, names that were taken and differences from the pins.
        requests: The number of requests under way.
        retiring: The number of removed upstreams that still answer requests.
        upstreams: The upstreams.
        virtual: The virtual servers.
    """

    name: str
    ready: bool
    draining: bool
    generation: int
    problem: str | None
    warnings: tuple[str, ...]
    requests: int
    retiring: int
    upstreams: tuple[UpstreamStatus, ...]
    virtual: tuple[VirtualStatus, ...]
    needs_confirmation: bool = False


def readiness(
    hub: Hub,
    required: tuple[str, ...],
    *,
    draining: bool,
    problem: str | None,
    not_applied: Mapping[str, object],
    generation: int,
    shared: str | None = None,
    starting: bool = False,
) -> Readiness:
    """Return whether a gateway is ready.

    Each required upstream has shaken hands and its tools are known, and while the gateway is `starting`, every other
    one has done so or has failed once: before that, requests for it would be answered as if it were down.
    """
    states = hub.states()
    missing = {
        name: states[name].value if name in states else "absent"
        for name in required
        if states.get(name) not in _READY and name not in caller_servers(hub).configs
    }
    if starting:
        missing |= {name: state.value for name, state in states.items() if state in STARTING and name not in hub.errors}
    if problem is not None:
        config = "kept"
    elif not_applied:
        config = "partial"
    else:
        config = "loaded"
    ready = not missing and not draining
    return Readiness(
        ready=ready, draining=draining, config=config, generation=generation, missing=missing, shared=shared
    )


def upstream_statuses(
    hub: Hub,
    *,
    added: frozenset[str],
    required: tuple[str, ...],
    changes: UpstreamChanges,
    restarts: Iterable[Callable[[str], int]] = (),
    only_here: frozenset[str] = frozenset(),
) -> tuple[UpstreamStatus, ...]:
    """Return the states of all upstreams, those that failed included.

    Args:
        hub: The upstreams.
        added: Those that were added at run time.
        required: Those without which the gateway is not ready.
        changes: The changes under way.
        restarts: Each returns the number of reconnections to an upstream on connections beside that of the hub.
        only_here: Those that are in this worker alone.
    """
    states = hub.states()
    as_callers = caller_servers(hub).configs
    counts = tuple(restarts)
    statuses: list[UpstreamStatus] = []
    for name in dict.fromkeys([*states, *changes.pending]):
        config = as_callers.get(name)
        error: Exception | None = hub.errors.get(name)
        tools = 0
        protocol = None
        reconnections = sum(count(name) for count in counts)
        client = hub.clients.get(name)
        if client is not None:
            config = client.config
            error = error or client.error
            tools = len(client.snapshot())
            protocol = client.protocol_version
            reconnections += client.restarts
        hint = None
        # A server that is called as its callers has no credentials until one of them calls: nothing has to be done.
        if error is not None and name not in as_callers:
            hint = hint_of(config, error, in_service=True)
        status = UpstreamStatus(
            name=name,
            state=states.get(name, ConnectionState.IDLE).value,
            transport="" if config is None else config.transport,
            endpoint="" if config is None else config.endpoint,
            added=name in added,
            required=name in required,
            tools=tools,
            protocol=protocol,
            restarts=reconnections,
            error=None if error is None else str(error),
            hint=hint,
            pending=changes.pending.get(name),
            only_here=name in only_here,
        )
        failed = changes.not_applied.get(name)
        if failed is not None:
            failed_hint = hint_of(failed.config, failed.error, in_service=True)
            status = replace(status, not_applied=str(failed.error), not_applied_hint=failed_hint)
        statuses.append(status)
    return tuple(statuses)
