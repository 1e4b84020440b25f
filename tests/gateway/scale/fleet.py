"""Three replicas of a gateway as processes, a Redis, upstreams of both eras, and clients that go from one to the next.

The clients do what the rules allow: they go to another replica when one cannot be reached, and send a call again only
if its tool says that this does no harm. Judges nothing but their own answers.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from tests.gateway.running import RunningGateway, gateway, write_gateway_config
from tests.gateway.scale.replicas import Json, OldClient, message
from tests.programs import free_port
from tests.serve.exchanges import Answer, call_body, events, exchange, modern_headers

__all__ = ["API_KEYS", "ERAS", "Client", "Fleet", "Load", "Outcome", "as_principal", "fleet_of"]

ERAS = ("2025-11-25", "2026-07-28")
SERVER = Path(__file__).parents[2] / "soak" / "server.py"
KEY = "fleet-" + "k" * 32
API_KEYS = {"steady": "steady-" + "s" * 32, "leaving": "leaving-" + "l" * 32}
REPLICAS = 3


def as_principal(name: str) -> dict[str, str]:
    """Return the headers of one of those who have an API key."""
    return {"Authorization": f"Bearer {API_KEYS[name]}"}


class Upstream:
    """A server over HTTP that logs every execution, and can be started again on its port."""

    def __init__(self, folder: Path, era: str) -> None:
        self.era = era
        self.log = folder / f"{era}.log"
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def entry(self) -> Json:
        """Its entry in a config."""
        return {"type": "http", "url": f"http://127.0.0.1:{self.port}/mcp"}

    def start(self) -> None:
        """Start it, on the port that it had."""
        options = ["--name", self.era, "--log", str(self.log), "--era", self.era, "--http", "--port", str(self.port)]
        command = [sys.executable, "-S", "-E", str(SERVER), *options]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        self.port, self._process = int(process.stdout.readline()), process

    def kill(self) -> None:
        """End it as `kill -9` does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def executed(self) -> Counter[str]:
        """Return how often each id was executed."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return Counter(line.split()[1] for line in lines if line.split()[0] in ("once", "again", "work"))


class Fleet:
    """The whole of it.

    Attributes:
        redis_url: The address of the Redis that the replicas share.
        upstreams: The servers behind them.
        replicas: The replicas; None for one that does not run.
        drain_seconds: How long a replica that ends accepts requests.
        options: More options of every replica.
        draining: The replicas that a balancer does not send to, since they say that they are not ready.
        urls: The URLs of all replicas, whether they run or not.
    """

    def __init__(
        self,
        folder: Path,
        redis_url: str,
        upstreams: Sequence[Upstream],
        *,
        replicas: int = REPLICAS,
        drain: float = 1,
        options: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.redis_url = redis_url
        self.upstreams = upstreams
        self.drain_seconds = drain
        self.options = options
        self.config = folder / "gateway.json"
        self.ports = [free_port() for _ in range(replicas)]
        self.urls = [f"http://127.0.0.1:{port}/mcp" for port in self.ports]
        self.replicas: list[RunningGateway | None] = [None] * replicas
        self.draining: set[int] = set()
        self._lives = [ExitStack() for _ in range(replicas)]

    def configure(
        self,
        more: Json | None = None,
        *,
        callers: Collection[str] = tuple(API_KEYS),
        keys: Mapping[str, Any] | None = None,
        middleware: Sequence[Json] = (),
    ) -> None:
        """Write the config that all replicas follow: the upstreams and more, who may call them, and middleware."""
        servers = {one.era: one.entry for one in self.upstreams}
        section: Json = {"auth": {"api_keys": {**{name: API_KEYS[name] for name in callers}, **(keys or {})}}}
        if middleware:
            section["middleware"] = list(middleware)
        write_gateway_config(self.folder, {**servers, **(more or {})}, section)

    def start(self, number: int) -> None:
        """Start a replica."""
        args = ("--redis-env", "FLEET_REDIS", "--state-keys-env", "FLEET_KEYS", "--wait", "20", *self.options)
        folder = self.folder / f"replica-{number}"
        folder.mkdir(exist_ok=True)
        env = {"FLEET_REDIS": self.redis_url, "FLEET_KEYS": KEY}
        address = f"127.0.0.1:{self.ports[number]}"
        life = gateway(folder, self.config, *args, env=env, address=address, drain=self.drain_seconds)
        self.replicas[number] = self._lives[number].enter_context(life)
        self.draining.discard(number)

    def kill(self, number: int) -> None:
        """End a replica as `kill -9` does."""
        replica, self.replicas[number] = self.replicas[number], None
        if replica is not None:
            replica.process.kill()
        self._lives[number].close()

    def drain(self, number: int) -> int:
        """Ask a replica to end; return its exit code."""
        replica, self.replicas[number] = self.replicas[number], None
        assert replica is not None
        replica.terminate()
        self.draining.add(number)
        code = replica.process.wait(60)
        self._lives[number].close()
        return code

    def close(self) -> None:
        """End all replicas."""
        for life in self._lives:
            life.close()

    def executed(self) -> Counter[str]:
        """Return how often each id was executed, by all upstreams."""
        return sum((one.executed() for one in self.upstreams), Counter[str]())


@contextmanager
def fleet_of(
    folder: Path,
    redis_url: str,
    *,
    replicas: int = REPLICAS,
    drain: float = 1,
    options: Sequence[str] = (),
    keys: Mapping[str, Any] | None = None,
    more: Json | None = None,
) -> Generator[Fleet]:
    """Run replicas and their upstreams for the block, each with more options, API keys and servers."""
    upstreams = [Upstream(folder, era) for era in ("legacy", "modern")]
    with ExitStack() as stack:
        for one in upstreams:
            one.start()
            stack.callback(one.kill)
        fleet = Fleet(folder, redis_url, upstreams, replicas=replicas, drain=drain, options=options)
        fleet.configure(more, keys=keys)
        stack.callback(fleet.close)
        with ThreadPoolExecutor() as together:
            list(together.map(fleet.start, range(replicas)))
        yield fleet


@dataclass
class Outcome:
    """The outcome of one call.

    Attributes:
        tool: The tool, without its server.
        answer: The text of its result, or None.
        error: The text of an error that was answered, or None.
        lost: Whether the connection broke after the call was sent, and it must not be sent again.
    """

    tool: str
    answer: str | None = None
    error: str | None = None
    lost: bool = False


@dataclass
class Load:
    """The calls that were made, by id."""

    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])

    @property
    def errors(self) -> set[str]:
        """The texts of all errors."""
        return {one.error for one in self.outcomes.values() if one.error is not None}

    @property
    def lost(self) -> list[str]:
        """The calls whose outcome nobody knows."""
        return [name for name, one in self.outcomes.items() if one.lost]

    def count(self) -> int:
        """Return the number of calls that were answered."""
        return sum(one.answer is not None for one in self.outcomes.values())


class Client:
    """One client of an era that goes from replica to replica.

    Args:
        fleet: The replicas.
        era: The revision.
        principal: The name of its API key.
    """

    _names = itertools.count(1)

    def __init__(self, fleet: Fleet, era: str, principal: str = "steady") -> None:
        self.era = era
        self.fleet = fleet
        self._more = as_principal(principal)
        self._old = OldClient(self._more)
        self._turn = itertools.cycle(range(len(fleet.urls)))

    async def begin(self) -> None:
        """Shake hands with the first replica that answers, where the era wants that."""
        if self.era != "2026-07-28":
            await self._old.begin(self.fleet.urls[0])

    async def work(self, load: Load, stop: anyio.Event) -> None:
        """Call one tool after another until it is told to stop."""
        tools = itertools.cycle([(server, tool) for tool in ("once", "again") for server in ("legacy", "modern")])
        while not stop.is_set():
            server, tool = next(tools)
            name = f"{self.era}-{next(self._names)}"
            load.outcomes[name] = await self.called(server, tool, name)
            await anyio.sleep(0.002)

    async def called(self, server: str, tool: str, name: str, *, at: int | None = None) -> Outcome:
        """Call a tool at the next replica; at others while none was reached, or the tool may be called again.

        Args:
            server: The upstream.
            tool: Its name there.
            name: The id of the call.
            at: The one replica to call it at.
        """
        for _ in range(40):
            number = next(self._turn) if at is None else at
            if number in self.fleet.draining:
                continue
            url = self.fleet.urls[number]
            try:
                answer = await self._sent(url, f"{server}_{tool}", name)
            except (OSError, EOFError, anyio.EndOfStream) as broken:
                if isinstance(broken.__cause__, ConnectionRefusedError) or tool == "again":
                    await anyio.sleep(0.02)
                    continue
                return Outcome(tool, lost=True)
            if answer.status == 503:
                continue
            return _outcome(tool, answer)
        return Outcome(tool, error="no replica answered")

    async def _sent(self, url: str, tool: str, name: str) -> Answer:
        if self.era == "2026-07-28":
            return await exchange(
                url, headers={**modern_headers(tool), **self._more}, body=call_body(tool, {"id": name})
            )
        return await self._old.post(url, message("tools/call", name, name=tool, arguments={"id": name}))


def _outcome(tool: str, answer: Answer) -> Outcome:
    if answer.status == 401 or (answer.status != 200 and not answer.body.startswith(b"{")):
        return Outcome(tool, error=f"HTTP {answer.status}: {answer.body.decode()}")
    said: Any = events(answer.body)[-1]
    if "error" in said:
        return Outcome(tool, error=f"{said['error']['code']}: {said['error']['message']}")
    text = said["result"]["content"][0]["text"]
    return Outcome(tool, error=text) if said["result"].get("isError") else Outcome(tool, answer=text)
