"""A gateway served by several processes: their shared state, and the parent that keeps them running."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from toolweave._json_types import JsonObject
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._serve.listen import cannot_listen, listening
from toolweave.cli._serve.processes import own_command
from toolweave.cli._serve.workers import METRICS_VARIABLE, WorkerPool, WorkerSettings, check_platform, shared_folder
from toolweave.errors import StoreError
from toolweave.gateway import Replicas, load_gateway_config, shared_redis
from toolweave.serve._http.http_server import bind
from toolweave.state import SqliteStore


def replicas_of(
    keys: Sequence[str], *, redis: str | None, worker: WorkerSettings | None, config: Sequence[Path]
) -> Replicas | None:
    """Return the state that a process shares with others; None if the config names it.

    Args:
        keys: The secrets that all of them have.
        redis: The URL of a Redis, or None.
        worker: The settings of this worker from its parent; None for a process that is not a worker.
        config: The config files.

    Raises:
        CommandError: The URL of the Redis is not understood.
    """
    group = "" if worker is None else worker.group
    try:
        if redis is not None:
            return Replicas(shared_redis(redis), keys, group=group)
        if worker is None:
            return None
        if worker.store is not None:
            return Replicas(SqliteStore(worker.store), keys, group=group)
        named = load_gateway_config(config).redis
        if named is None:
            return None
        return Replicas(shared_redis(named.reveal()), keys, group=group)
    except StoreError as error:
        raise CommandError(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedByWorkers:
    """A gateway that several processes serve on one port.

    Attributes:
        config: The config files.
        names: Only these servers of them.
        where: The address, as `--http` has it.
        workers: The number of processes.
        state_keys: The secrets that all replicas share; None makes one for these processes.
        redis: The URL of the Redis that replicas share, or None.
        admin_token: The token of the admin API, or None for none.
        metrics: Whether they measure.
        end_seconds: Seconds that they may take to end.
    """

    config: Sequence[Path]
    names: Sequence[str]
    where: str
    workers: int
    state_keys: Sequence[str] | None = field(repr=False)
    redis: str | None = field(repr=False)
    admin_token: str | None = field(repr=False)
    metrics: bool
    end_seconds: float

    def run(
        self,
        *,
        keep: Callable[[int, str], AbstractContextManager[None]] | None,
        announce: Callable[[JsonObject], None],
    ) -> ExitCode:
        """Serve until a signal.

        Args:
            keep: Keeps the admin token for commands of this machine, by port.
            announce: Called with the facts of a gateway once all workers are ready.

        Raises:
            ConfigError: The config is wrong.
            CommandError: The port cannot be bound, or replicas lack keys.
        """
        check_platform()
        config = load_gateway_config(self.config, names=self.names)  # an error is reported once
        shared = self.redis is not None or config.redis is not None
        if shared and self.state_keys is None:
            raise CommandError("replicas that share a Redis need the same state keys: --state-keys-env VAR")
        host, port = listening(self.where)
        with ExitStack() as stack:
            try:
                # Never listens: port 0 becomes one port for all workers, which stays reserved while they start.
                reserved = stack.enter_context(bind(host, port, reuse_port=True))
            except OSError as error:
                raise cannot_listen(self.where, error) from None
            port = reserved.getsockname()[1]
            folder = stack.enter_context(shared_folder())
            if keep is not None and self.admin_token is not None:
                stack.enter_context(keep(port, self.admin_token))
            figures = folder / "metrics"
            figures.mkdir()
            pool = WorkerPool(
                own_command([*sys.argv[1:], "--as-worker"]),
                WorkerSettings(
                    port=port,
                    group=secrets.token_hex(8),
                    state_keys=[secrets.token_urlsafe(32)] if self.state_keys is None else list(self.state_keys),
                    folder=str(folder),
                    store=None if shared else str(folder / "store.db"),
                    admin_token=self.admin_token,
                ),
                count=self.workers,
                env={**os.environ, **({METRICS_VARIABLE: str(figures)} if self.metrics else {})},
                end_seconds=self.end_seconds,
                on_ready=announce,
                on_gone=lambda process: _forget(figures, process) if self.metrics else None,
            )
            return anyio.run(pool.run)


def _forget(figures: Path, process: int) -> None:
    """Drop the figures that only a living worker has."""
    from prometheus_client import multiprocess  # an extra

    untyped: Any = multiprocess
    untyped.mark_process_dead(process, str(figures))
