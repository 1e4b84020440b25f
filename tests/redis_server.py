"""A real `redis-server` for tests: one per session with a database per test, or one of a test's own to kill.

Knows how the program is started; nothing of what is kept in it.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.leftovers import OF_THE_SESSION
from tests.programs import free_port

__all__ = ["NO_SERVER", "RedisServer", "free_port", "redis_cluster", "redis_server", "redis_url"]

NO_SERVER = "no redis-server on PATH (Debian: apt-get install redis-server)"
DATABASES = 10_000
"""So that every test of a session has one of its own; an unused one costs a few bytes."""
_databases = itertools.count(1)


class RedisServer:
    """One `redis-server` on a free port of this machine; started when entered, killed when left.

    Args:
        folder: Where it keeps its files.
        durable: Write every command to the disk before it is answered, so that a restart finds all of it.
        options: More of its settings, by name: `{"maxmemory": "2mb"}`; words are apart by spaces.
    """

    def __init__(self, folder: Path, *, durable: bool = False, options: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.port = 0
        self._options = {
            "bind": "127.0.0.1",
            "dir": str(folder),
            "databases": str(DATABASES),
            "save": "",
            "appendonly": "yes" if durable else "no",
            "appendfsync": "always",
            "daemonize": "no",
        }
        self._more = [part for name, value in (options or {}).items() for part in (f"--{name}", *value.split())]
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Its address, database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self._process is not None, "it does not run"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it takes connections: on a free port, later on the same one again."""
        said: list[str] = []
        for _ in range(1 if self.port else 10):  # somebody may take a port that was free a moment ago
            port = self.port or free_port()
            settings = [part for name, value in self._options.items() for part in (f"--{name}", value)]
            command = ["redis-server", "--port", str(port), *settings, *self._more]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert process.stdout is not None
            said.clear()
            for line in process.stdout:
                if "Ready to accept connections" in line:
                    self.port, self._process = port, process
                    return
                said.append(line)
            process.wait()
            process.stdout.close()
        pytest.fail("redis-server did not start:\n" + "".join(said))

    def kill(self) -> None:
        """End it as `kill -9` does; nothing happens when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def restart(self) -> None:
        """Kill it and start it on the same port; only a durable one remembers."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Let it answer nothing and refuse nobody, as a machine that hangs does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End a pause."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        if shutil.which("redis-server") is None:
            pytest.skip(NO_SERVER)
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()


@contextmanager
def redis_cluster(folder: Path) -> Generator[tuple[RedisServer, RedisServer]]:
    """Run a cluster of two nodes; the second has the keys of the prefix `toolweave`."""
    import redis  # of an extra, which the tests of the core do without

    ports = [str(free_port()), str(free_port())]
    with ExitStack() as stack:
        nodes: list[RedisServer] = []
        for number, port in enumerate(ports):
            place = folder / f"node-{number}"
            place.mkdir()
            options = {"cluster-enabled": "yes", "cluster-port": port}
            nodes.append(stack.enter_context(RedisServer(place, options=options)))
        kind: Any = redis.Redis
        first, second = [stack.enter_context(kind.from_url(one.url)) for one in nodes]
        first.execute_command("CLUSTER ADDSLOTSRANGE", 0, 4_095)
        second.execute_command("CLUSTER ADDSLOTSRANGE", 4_096, 16_383)
        second.execute_command("CLUSTER SET-CONFIG-EPOCH", 2)
        first.execute_command("CLUSTER MEET", "127.0.0.1", nodes[1].port, ports[1])
        deadline = time.monotonic() + 60
        while any(one.execute_command("CLUSTER INFO")["cluster_state"] != "ok" for one in (first, second)):
            assert time.monotonic() < deadline, "the cluster never was whole"
            time.sleep(0.05)
        yield nodes[0], nodes[1]


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer | None]:
    """The server of this session, None where there is no `redis-server`; no test may end or configure it."""
    if shutil.which("redis-server") is None:
        yield None
        return
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        OF_THE_SESSION.add(server.pid)
        yield server
    OF_THE_SESSION.clear()


@pytest.fixture
def redis_url(redis_server: RedisServer | None) -> str:
    """The address of an empty database of the test's own."""
    if redis_server is None:
        pytest.skip(NO_SERVER)
    return f"redis://127.0.0.1:{redis_server.port}/{next(_databases)}"
