"""The parts that a gateway shares with those of its callers, and the view that a virtual server has of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from toolweave.gateway._relay.connections import AskingConnections
from toolweave.gateway._relay.handshake_connections import HandshakeConnections
from toolweave.gateway._relay.page_visits import PageVisits
from toolweave.gateway._relay.parked_calls import ParkedCalls
from toolweave.gateway._relay.parking import Parking
from toolweave.gateway._relay.sealed_state import StateCipher
from toolweave.gateway._replicas.replicas import Replicas
from toolweave.gateway._replicas.shared_sessions import SealedSessions
from toolweave.gateway._tasks.names import TaskNames
from toolweave.gateway._tasks.slow_tasks import SlowTasks
from toolweave.jobs.retention import TASK_SECONDS
from toolweave.serve._changes import Changes
from toolweave.serve._logs import Logs
from toolweave.serve._request_context import HandlerRunner
from toolweave.serve._task_spawner import ServingGroups
from toolweave.state import Store
from toolweave.tools import Toolset


class CallerView(NamedTuple):
    """The part of the servers that are called as their callers which a virtual server shows.

    Attributes:
        tools: Returns the tools that are shown of those of a hub.
        serves: Whether anything of a server is shown, by its name.
        prefix: Put before the names of tools.
    """

    tools: Callable[[Toolset], Toolset]
    serves: Callable[[str], bool]
    prefix: str = ""


class GatewaySecrets(NamedTuple):
    """The keys of a gateway, by purpose.

    Attributes:
        cipher: Seals the state of rounds of input.
        tasks: Signs the ids of tasks.
        sessions: Makes the sessions of legacy clients known to all replicas; None keeps them in this process.
    """

    cipher: StateCipher
    tasks: TaskNames
    sessions: SealedSessions | None = None


class SlowCallParts(NamedTuple):
    """The parts that turn calls which take long into tasks.

    Attributes:
        seconds: Seconds after which a call becomes one.
        tasks: The tasks.
    """

    seconds: float
    tasks: SlowTasks


class GatewayParts(NamedTuple):
    """The parts that a gateway shares with those of its callers.

    Attributes:
        secrets: The keys.
        connections: The connections to legacy upstreams that may ask.
        handshakes: The connections in the handshake era to upstreams that speak both.
        visits: The pages that callers have to visit.
        parked: The calls that wait for their callers.
        groups: The task groups in which it is served.
        logs: The log levels of callers.
        changes: The change notifications and their subscribers.
        replicas: The connection to other replicas, or None.
        slow: Turns calls that take long into tasks; None leaves them.
        task_seconds: Seconds for which results of tasks are kept.
    """

    secrets: GatewaySecrets
    connections: AskingConnections
    handshakes: HandshakeConnections
    visits: PageVisits
    parked: ParkedCalls
    groups: ServingGroups
    logs: Logs
    changes: Changes
    replicas: Replicas | None = None
    slow: SlowCallParts | None = None
    task_seconds: float = TASK_SECONDS

    @classmethod
    def made(
        cls, secrets: GatewaySecrets, connections: AskingConnections, replicas: Replicas | None = None
    ) -> GatewayParts:
        """Return the parts of a new gateway."""
        groups = ServingGroups("calls to upstreams run")
        changes = Changes()
        handshakes = HandshakeConnections()
        visits = PageVisits(changes)
        connections.on_notification = handshakes.on_notification = visits.note_notification
        return cls(
            secrets=secrets,
            connections=connections,
            handshakes=handshakes,
            visits=visits,
            parked=ParkedCalls(Parking(seconds=secrets.cipher.ttl), groups, replicas),
            groups=groups,
            logs=Logs(enabled=True),
            changes=changes,
            replicas=replicas,
        )

    def with_slow_calls(self, seconds: float, store: Store | None) -> GatewayParts:
        """Return the parts with those for slow calls."""
        runner = HandlerRunner(logs=self.logs)
        tasks = SlowTasks(
            runner=runner, changes=self.changes, store=store, replicas=self.replicas, seconds=self.task_seconds
        )
        return self._replace(slow=SlowCallParts(seconds, tasks))
