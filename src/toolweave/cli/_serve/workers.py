"""Several processes that serve one port: a parent that starts, watches, restarts and ends them.

The parent serves nothing. What workers share that is secret goes to each through its standard input, which stays open:
when it ends, the parent has ended, and so does the worker. A worker reports once on standard output that it is ready.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.abc
import msgspec

from toolweave._json import decode_json
from toolweave._json_types import JsonObject
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._screen import note

METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which prometheus-client finds the figures of all workers."""
_MIN_PAUSE = 0.5
_MAX_PAUSE = 30.0
_STEADY_SECONDS = 30.0
_END_SECONDS = 10.0
_MAX_SETTINGS = 1_000_000


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a parent gives its workers.

    Attributes:
        port: The port of all of them.
        group: The name of the group of workers.
        state_keys: The secrets that they share.
        folder: The folder that they share.
        store: The file of the store that they share; None for a store elsewhere.
        admin_token: The token of the admin API; None without one.
    """

    port: int
    group: str
    state_keys: list[str]
    folder: str
    store: str | None
    admin_token: str | None

    def __repr__(self) -> str:
        return f"<WorkerSettings port={self.port}>"


# in a worker


def take_settings() -> WorkerSettings:
    """Read the settings from standard input, and end this process, as SIGTERM does, when that ends.

    Raises:
        CommandError: The process was not started by a parent.
    """
    data = b""
    while not data.endswith(b"\n"):
        chunk = os.read(0, 65_536)
        data += chunk
        if not chunk or len(data) > _MAX_SETTINGS:
            raise CommandError("--as-worker is for processes that --workers starts")
    settings = decode_json(data, WorkerSettings)
    threading.Thread(target=_end_with_parent, args=(settings.folder,), name="toolweave-parent", daemon=True).start()
    return settings


def _end_with_parent(folder: str) -> None:
    # Standard input ends with the parent in every case, also when it is killed. This is a thread and not a
    # task, since the worker has to end even if its event loop is blocked.
    while os.read(0, 4_096):
        pass
    # a parent that was killed did not
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)


def say_ready(facts: JsonObject) -> None:
    """Report to the parent that requests are accepted, with the facts that it may print."""
    sys.stdout.write(msgspec.json.encode(facts).decode() + "\n")
    sys.stdout.flush()


# in the parent


@contextmanager
def shared_folder() -> Generator[Path]:
    """Make a folder that only this user can read, on a memory file system if there is one, for the block."""
    places = [os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm"]  # noqa: S108  # the folder itself has a random name
    place = next((one for one in places if one and os.access(one, os.W_OK)), None)
    with TemporaryDirectory(prefix="toolweave-", dir=place, ignore_cleanup_errors=True) as name:
        yield Path(name)


class WorkerPool:
    """The workers of one command.

    Args:
        command: The command of a worker.
        settings: The settings of all of them.
        count: How many there are.
        env: Their environment.
        end_seconds: Seconds that they may take to end.
        on_ready: Called with the facts of the last of them when all are ready for the first time.
        on_gone: Called with the process id of each that has ended.
    """

    # One task for each worker starts it again and again; `_living` has the process of each that runs. Before all were
    # ready once, the end of one is the end of all: its config or its port is wrong, and others would fail the same way.
    # Later it is started again, after a pause that doubles while it ends early.

    def __init__(
        self,
        command: Sequence[str],
        settings: WorkerSettings,
        *,
        count: int,
        env: Mapping[str, str],
        end_seconds: float,
        on_ready: Callable[[JsonObject], object],
        on_gone: Callable[[int], object],
    ) -> None:
        self._command = command
        self._settings = settings
        self._count = count
        self._env = env
        self._end_seconds = end_seconds
        self._on_ready = on_ready
        self._on_gone = on_gone
        self._living: dict[int, anyio.abc.Process] = {}
        self._ready: set[int] = set()
        self._stopping = anyio.Event()
        self._code = ExitCode.OK

    async def run(self) -> ExitCode:
        """Keep the workers running until the parent is asked to end; they end first."""
        from toolweave.serve._signals import stop_signals  # imports are late: --help imports the commands

        own: dict[int, Callable[[], object]] = {int(signal.SIGINT): self._interrupt}
        if hasattr(signal, "SIGHUP"):
            own[int(signal.SIGHUP)] = self._hang_up
        with stop_signals(self._terminate, other=own):
            async with anyio.create_task_group() as tasks:
                for number in range(self._count):
                    tasks.start_soon(self._keep, number)
                tasks.start_soon(self._kill_in_time)
                # Cancelled last: a cancelled `_keep` kills its process, and the workers have requests to finish. They
                # end by the signal that was passed on, or by `_kill_in_time`.
                await self._stopping.wait()
                while self._living:
                    await anyio.sleep(0.02)
                tasks.cancel_scope.cancel()
        return self._code

    # signals

    def _terminate(self) -> None:
        self._end(signal.SIGTERM)

    def _interrupt(self) -> None:
        self._end(signal.SIGINT)

    def _hang_up(self) -> None:
        self._send(signal.SIGHUP)

    def _end(self, number: signal.Signals) -> None:
        self._stopping.set()
        self._send(number)

    def _send(self, number: signal.Signals) -> None:
        # A worker that has just ended by itself is still in the list until it was waited for.
        for process in self._living.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    # lives

    async def _keep(self, number: int) -> None:
        """Keep the worker of one number running: start another when it ends."""
        pause = 0.0
        while not self._stopping.is_set():
            since = anyio.current_time()
            code = await self._one(number)
            if self._stopping.is_set():
                return
            if len(self._ready) < self._count:
                is_failure = code in list(ExitCode) and code != ExitCode.OK
                self._code = ExitCode(code) if is_failure else ExitCode.UNREACHABLE
                self._terminate()
                return
            was_steady = anyio.current_time() - since > _STEADY_SECONDS
            pause = 0.0 if was_steady else min(_MAX_PAUSE, max(_MIN_PAUSE, 2 * pause))
            note(f"worker {number + 1} ended unexpectedly ({_ending(code)}); it is started again")
            with anyio.move_on_after(pause):
                await self._stopping.wait()

    async def _one(self, number: int) -> int:
        """Run one worker until it ends; return its exit code."""
        process = await anyio.open_process(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            env=self._env,
            start_new_session=True,  # the terminal's Ctrl-C comes from here, once
        )
        self._living[number] = process
        try:
            await self._talk(number, process)
            return await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await process.aclose()  # which kills one that runs
            del self._living[number]
            self._on_gone(process.pid)

    async def _talk(self, number: int, process: anyio.abc.Process) -> None:
        """Give a worker its settings, and wait until it is ready or has ended."""
        assert process.stdin is not None
        assert process.stdout is not None
        # By its standard input and not by variables or arguments, which other programs of the machine can read.
        facts = b""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await process.stdin.send(msgspec.json.encode(self._settings) + b"\n")
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while not facts.endswith(b"\n"):
                facts += await process.stdout.receive()
        if not facts.endswith(b"\n"):
            return
        is_first = number not in self._ready
        self._ready.add(number)
        if is_first and len(self._ready) == self._count:
            self._on_ready(decode_json(facts))

    async def _kill_in_time(self) -> None:
        await self._stopping.wait()
        await anyio.sleep(self._end_seconds + _END_SECONDS)
        self._send(signal.SIGKILL)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def check_platform() -> None:
    """Refuse where several processes cannot serve one port.

    Raises:
        CommandError: They cannot.
    """
    if sys.platform == "win32" or not hasattr(socket, "SO_REUSEPORT"):
        raise CommandError("--workers needs SO_REUSEPORT, which this system lacks")
