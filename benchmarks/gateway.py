"""A config of three stdio servers, served as one over HTTP: what a call through it costs, beside a bare pass-through.

The upstreams are the lean echo server and the clients the raw one, of either era, for all. Calls of ordinary clients
have a `_meta` key, a progress token or a bearer token beside name and arguments: each has a row, and so have upstreams
over HTTP that answer with JSON or with a stream. All rows have one baseline, a pass-through to upstreams over stdio: an
ASGI app that reads the envelope of a request, renumbers it and hands the bytes of the result on, without sessions or
checks.
Each contender is a process of its own; ours are `python -m benchmarks.gateway CONTENDER PORT CONFIG`. Two peers know no
revision after 2025-11-25: their upstreams are of that, and they are called as their own documentation says, each server
at a path of its own, by MCP (mcp-proxy) or as REST (mcpo). Envoy starts no processes: its upstreams are the raw server
over HTTP, one process each.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from benchmarks.clients import CLIENTS
from benchmarks.crew import ROOT, http_url, server_command
from benchmarks.measure import Figure, Sample, callers_named, compare
from benchmarks.peers import GATEWAYS, python_in
from benchmarks.raw import RawHttp, RawStdio
from benchmarks.raw_server import Message, answer_post
from benchmarks.served import TOKEN
from benchmarks.serving import KINDS, Served, ask_as
from benchmarks.settings import Settings

__all__ = ["gateway"]

UPSTREAMS = ("a", "b", "c")
CALLERS = (1, 16, 64, 256)
PEER_CALLERS = 64
"""Some peers answer a few calls a second: more callers would wait for minutes."""
PEER_ROUNDS = 3
LAYERS = 5
START_SECONDS = 60.0


class Calls(Protocol):
    """A client of a gateway."""

    async def start(self) -> None:
        """Shake hands."""
        ...

    async def payload(self, upstream: str, size: int) -> str:
        """Return the text that an upstream's tool returns."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class OneEndpoint(RawHttp):
    """A client of all upstreams behind one endpoint."""

    between = "_"
    """What stands there between the name of an upstream and that of its tool."""

    async def payload(self, upstream: str, size: int) -> str:
        """Call the tool by its name there."""
        result = await self.call_tool(f"{upstream}{self.between}payload", {"size": size})
        return result.content[0].text


class OneEnvoy(OneEndpoint):
    """A client of Envoy, which has no session where its upstreams have none."""

    between = "__"

    async def start(self) -> None:
        """Shake hands, and forget the session that was made up for others."""
        await super().start()
        self.session = b""


class OneEach:
    """A client of gateways that have a path for each upstream.

    Args:
        url: What the path of an upstream makes of this one.
        rest: Whether calls are plain JSON instead of MCP.
    """

    def __init__(self, url: Callable[[str], str], *, rest: bool = False) -> None:
        self.clients = {name: RawHttp(url(name), modern=False) for name in UPSTREAMS}
        self.rest = rest

    async def start(self) -> None:
        """Shake hands, where that is needed."""
        if not self.rest:
            for client in self.clients.values():
                await client.start()

    async def payload(self, upstream: str, size: int) -> str:
        """Call the tool."""
        client = self.clients[upstream]
        if self.rest:
            return msgspec.json.decode(await client.post("", "", {"size": size}), type=str)
        result = await client.call_tool("payload", {"size": size})
        return result.content[0].text

    async def close(self) -> None:
        """Close the connections."""
        for client in self.clients.values():
            await client.close()


class Through(Served):
    """One gateway, and a client that calls its upstreams in turn."""

    def __init__(self, caller: Calls, pid: int, upstreams: Sequence[str] = UPSTREAMS) -> None:
        self.caller = caller
        self.pid = pid
        self.upstreams = upstreams
        self.called = 0

    async def exchange(self) -> None:
        """Call the tool of the next upstream."""
        self.called += 1
        answer = await self.caller.payload(self.upstreams[self.called % len(self.upstreams)], 100)
        if answer != "x" * 100:
            raise ValueError(f"a wrong answer: {answer[:100]!r}")

    async def turn(self, callers: int) -> Sample:
        """Call for a while, and note the memory afterwards."""
        sample = await super().turn(callers)
        return replace(sample, memory=self.resident())

    def resident(self) -> int:
        """Return the resident bytes of the gateway's process."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


class PassThrough:
    """The baseline: an ASGI app over raw clients of the upstreams."""

    def __init__(self, commands: dict[str, list[str]]) -> None:
        self.commands = commands
        self.upstreams: dict[str, RawStdio] = {}
        self.decode = msgspec.json.Decoder(Message).decode

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Start with the lifespan; answer POSTs, wherever they go."""
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        await answer_post(self.answer, receive, send)

    async def live(self, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
        """Start the upstreams, and end them."""
        await receive()
        for name, command in self.commands.items():
            self.upstreams[name] = RawStdio(modern=True)
            await self.upstreams[name].start(command)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for upstream in self.upstreams.values():
            await upstream.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def answer(self, body: bytes) -> bytes:
        """Hand a call on; anything else is answered with what a client needs to begin."""
        message = self.decode(body)
        ident = msgspec.json.encode(message.id)
        if message.method != "tools/call" or message.params is None:
            found = b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
            return b'{"jsonrpc":"2.0","id":' + ident + b',"result":' + found + b'"ttlMs":0,"cacheScope":"private"}}'
        upstream, _, name = message.params.name.partition("_")
        arguments: Any = message.params.arguments
        result = await self.upstreams[upstream].request("tools/call", {"name": name, "arguments": arguments})
        return b'{"jsonrpc":"2.0","id":' + ident + b',"result":' + bytes(result) + b"}"


def raw(port: int, config: Path) -> None:
    """Serve the baseline."""
    entries = json.loads(config.read_text())["mcpServers"]
    app = PassThrough({name: [entry["command"], *entry["args"]] for name, entry in entries.items()})
    uvicorn: Any = importlib.import_module("uvicorn")
    options = {"http": "httptools", "loop": "uvloop", "log_level": "error", "access_log": False}
    uvicorn.run(app, host="127.0.0.1", port=port, **options)


def toolweave(port: int, config: Path) -> None:
    """Serve the config as the command does, with its default settings."""
    command = ["-m", "toolweave", "gateway", "--config", str(config), "--http", f"127.0.0.1:{port}"]
    os.execv(sys.executable, [sys.executable, *command])


def serve_behind(port: int, config: Path, middleware: Sequence[Any]) -> None:
    """Serve the config behind middleware, as the command does otherwise."""
    from toolweave.cli._serve.listen import keep_started_objects
    from toolweave.gateway import GatewayManager, GatewayOptions
    from toolweave.serve._http.http_server import serve_http
    from toolweave.serve._runners import run_blocking

    def kept(base: str) -> None:
        keep_started_objects()

    manager = GatewayManager(config, GatewayOptions(middleware=tuple(middleware)))
    app = manager.asgi_app()
    run_blocking(lambda: serve_http(app, port=port, on_started=kept), name="layers", instead="serve_http")


def layers(port: int, config: Path) -> None:
    """Serve the config behind middleware that passes everything on."""

    async def passing(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        return await call_next(request)

    serve_behind(port, config, (passing,) * LAYERS)


def rules(port: int, config: Path) -> None:
    """Serve the config behind an audit log, rules with an expression, a rate, a cache and redaction."""
    from toolweave.middleware import AccessRule, AccessRules, AuditLog, RateLimit, Redaction, ResponseCache

    condition = "!has(args.size) || args.size < 1000000"
    middleware = (
        AuditLog(path=str(config.with_name(f"audit-{port}.jsonl"))),
        AccessRules(rules=[AccessRule(effect="allow", kinds=["tools"], when=condition)]),
        RateLimit(calls=1_000_000),
        ResponseCache(tools_seconds=60),
        Redaction(patterns={"email": "", "github_token": "", "aws_key": ""}),
    )
    serve_behind(port, config, middleware)


CONTENDERS: dict[str, Callable[[int, Path], None]] = {
    "raw": raw,
    "toolweave": toolweave,
    "toolweave,layers": layers,
    "toolweave,rules": rules,
}
FASTMCP = """
import json, sys
from fastmcp.server import create_proxy
proxy = create_proxy(json.load(open(sys.argv[2])), name="bench")
proxy.run("http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="error")
"""
MCPO = "from mcpo import app; app()"
ERAS = {"": True, ", handshake-era clients": False}
UPSTREAM_KINDS = ("stdio", "HTTP", "HTTP with streams")
ORDINARY_CALLERS = (16, 64)
"""How many callers the rows have whose calls or upstreams are not the plainest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A gateway of a contender that is measured: it runs as one process for all cases that it serves.

    Attributes:
        upstreams: One of `UPSTREAM_KINDS`.
        protected: Whether callers need a token.
    """

    upstreams: str = "stdio"
    protected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Calls through a gateway.

    Attributes:
        callers: How many call at once.
        modern: Whether they speak the modern era.
        kind: What their calls have beside name and arguments, one of `KINDS`.
        upstreams: How the servers behind the gateway are reached, one of `UPSTREAM_KINDS`.
    """

    callers: int
    modern: bool = True
    kind: str = ""
    upstreams: str = "stdio"

    @property
    def title(self) -> str:
        """The case's name."""
        parts = [f"config served, 100 B, {callers_named(self.callers)}"]
        if self.upstreams != "stdio":
            parts.append(f"upstreams over {self.upstreams}")
        if self.kind:
            parts.append(self.kind)
        if not self.modern:
            parts.append("handshake-era clients")
        return ", ".join(parts)

    @property
    def is_plain(self) -> bool:
        """Whether everybody is measured in it; the other cases are for ours and the baseline."""
        return not self.kind and self.upstreams == "stdio"

    def place(self, name: str) -> Place:
        """Return where a contender serves it; the baseline's place is always the same."""
        if name == "raw":
            return Place()
        return Place(upstreams=self.upstreams, protected=self.kind == "a bearer token")


CASES = (
    *(Case(callers=callers, modern=modern) for modern in ERAS.values() for callers in CALLERS),
    *(Case(callers=callers, kind=kind) for kind in KINDS if kind for callers in ORDINARY_CALLERS),
    *(Case(callers=callers, upstreams=one) for one in UPSTREAM_KINDS[1:] for callers in ORDINARY_CALLERS),
    *(Case(callers=callers, upstreams="HTTP", kind="a progress token") for callers in ORDINARY_CALLERS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A gateway of others: how it is started, and how it is called.

    Attributes:
        requirement: What its environment has.
        command: The arguments of Python there, for a port and a config.
        modern: Whether it knows the modern era.
        config: Writes its config for a port and the ports of its upstreams, where it takes them over HTTP only.
        caller: Makes a client from its base URL and an era.
    """

    requirement: str
    command: Callable[[int, Path], list[str]]
    modern: bool = False
    config: Callable[[Path, int, dict[str, int]], Path] | None = None
    caller: Callable[[str, bool], Calls]


def of_one_endpoint(base: str, modern: bool) -> Calls:
    """Return a client of a gateway with one endpoint."""
    return OneEndpoint(f"{base}/mcp", modern=modern)


def envoy_type(name: str, **values: Any) -> dict[str, Any]:
    """Return a typed config of Envoy."""
    return {"@type": f"type.googleapis.com/envoy.extensions.filters.{name}", **values}


def envoy_address(port: int) -> dict[str, Any]:
    """Return an address of loopback as Envoy has it."""
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def envoy_config(folder: Path, port: int, upstreams: dict[str, int]) -> Path:
    """Write a config of Envoy: one listener with its filters for MCP, one cluster for each upstream."""
    servers = [{"name": name, "mcp_cluster": {"cluster": name, "path": "/mcp"}} for name in upstreams]
    http_filters = [
        {"name": "envoy.filters.http.mcp", "typed_config": envoy_type("http.mcp.v3.Mcp")},
        {
            "name": "envoy.filters.http.mcp_router",
            "typed_config": envoy_type("http.mcp_router.v3.McpRouter", servers=servers),
        },
    ]
    everything = {"match": {"prefix": "/"}, "direct_response": {"status": 404}}
    manager = envoy_type(
        "network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="bench",
        http_filters=http_filters,
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [everything]}]},
    )
    network = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    listener = {"name": "mcp", "address": envoy_address(port), "filter_chains": [{"filters": [network]}]}
    clusters = [
        {
            "name": name,
            "type": "STATIC",
            "load_assignment": {
                "cluster_name": name,
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": envoy_address(upstream)}}]}],
            },
        }
        for name, upstream in upstreams.items()
    ]
    config = folder / "envoy.json"
    config.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": clusters}}))
    return config


@asynccontextmanager
async def http_upstreams() -> AsyncGenerator[dict[str, int], None]:
    """Start the raw server over HTTP for each upstream; return their ports."""
    ports: dict[str, int] = {}
    async with AsyncExitStack() as stack:
        for name in UPSTREAMS:
            server = await started_process(
                [sys.executable, "-m", "benchmarks.served", "raw", "http"], stdout=subprocess.PIPE
            )
            stack.push_async_callback(ended, server)
            assert server.stdout is not None
            ports[name] = int(await asyncio.wait_for(server.stdout.readline(), START_SECONDS))
        yield ports


PEERS: dict[str, Peer] = {
    "fastmcp": Peer(
        requirement=str(CLIENTS["fastmcp"].peer),
        command=lambda port, config: ["-c", FASTMCP, str(port), str(config)],
        modern=True,
        caller=of_one_endpoint,
    ),
    "mcp-proxy": Peer(
        requirement=GATEWAYS[0],
        command=lambda port, config: ["-m", "mcp_proxy", "--port", str(port), "--named-server-config", str(config)],
        caller=lambda base, modern: OneEach(lambda name: f"{base}/servers/{name}/mcp"),
    ),
    "mcpo": Peer(
        requirement=GATEWAYS[1],
        command=lambda port, config: ["-c", MCPO, "--port", str(port), "--config", str(config)],
        caller=lambda base, modern: OneEach(lambda name: f"{base}/{name}/payload", rest=True),
    ),
    "envoy": Peer(
        requirement=GATEWAYS[2],
        # one thread, as all others have
        command=lambda port, config: ["-m", "envoy._main", "--concurrency", "1", "--config-path", str(config)],
        config=envoy_config,
        caller=lambda base, modern: OneEnvoy(f"{base}/mcp", modern=modern),
    ),
}


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@asynccontextmanager
async def started(name: str, place: Place, folder: Path) -> AsyncGenerator[Callable[[Case], Through | None], None]:
    """Start a gateway, wait until all upstreams answer, and end it; yields what gives a client for a case.

    It gives None for cases of an era that the gateway does not know.
    """
    peer, port = PEERS.get(name), free_port()
    modern = peer is None or peer.modern
    async with AsyncExitStack() as stack:
        if peer is not None and peer.config is not None:
            config = peer.config(folder, port, await stack.enter_async_context(http_upstreams()))
        else:
            config = written(folder, place, modern=modern, stack=stack)
        command = [sys.executable, "-m", "benchmarks.gateway", name, str(port), str(config)]
        if peer is not None:
            command = [str(python_in(peer.requirement)), *peer.command(port, config)]
        process = await started_process(command)
        stack.push_async_callback(ended, process)
        base = f"http://127.0.0.1:{port}"
        clients: dict[tuple[bool, str], Calls] = {}
        for era in ERAS.values():
            for kind in KINDS:
                if (kind == "a bearer token") == place.protected and (modern or not era):
                    clients[era, kind] = caller_of(peer, base, era, kind)
        async with asyncio.timeout(START_SECONDS):
            for client in clients.values():
                await until_it_answers(client)

        def through(case: Case) -> Through | None:
            kind = case.kind if name != "raw" or case.kind != "a bearer token" else ""
            client = clients.get((case.modern, kind))
            return None if client is None else Through(client, process.pid)

        yield through
        for client in clients.values():
            await client.close()


def caller_of(peer: Peer | None, base: str, era: bool, kind: str) -> Calls:
    """Return a client of a gateway whose calls have what those of this kind have."""
    if peer is not None:
        return peer.caller(base, era)
    client = OneEndpoint(f"{base}/mcp", modern=era, token=TOKEN if kind == "a bearer token" else "")
    ask_as(client, kind)
    return client


async def started_process(command: Sequence[str], *, stdout: int = subprocess.DEVNULL) -> asyncio.subprocess.Process:
    """Start a program that says nothing here, with a group of its own."""
    return await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stdout=stdout, stderr=subprocess.DEVNULL, start_new_session=True
    )


async def ended(process: asyncio.subprocess.Process, *, seconds: float = 10) -> None:
    """End a gateway and its upstreams; kill what is there after some seconds."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def until_it_answers(client: Calls, upstreams: Sequence[str] = UPSTREAMS) -> None:
    """Wait until all upstreams answer."""
    while True:
        try:
            await client.start()
            for upstream in upstreams:
                await client.payload(upstream, 1)
        except (OSError, ValueError, IndexError, msgspec.MsgspecError):  # no port yet, or no upstream
            await asyncio.sleep(0.1)
        else:
            return


def written(folder: Path, place: Place, *, modern: bool, stack: AsyncExitStack) -> Path:
    """Write a config of upstreams of an era; those over HTTP are started, and end with the stack."""
    options = ["--era", "modern" if modern else "legacy"]
    servers: dict[str, Any] = {}
    for name in UPSTREAMS:
        if place.upstreams == "stdio":
            command, *arguments = server_command(*options)
            servers[name] = {"command": command, "args": arguments}
        else:
            events = ["--events"] if place.upstreams == "HTTP with streams" else []
            servers[name] = {"url": stack.enter_context(http_url(*options, *events))}
    content: dict[str, Any] = {"mcpServers": servers}
    if place.protected:
        content["gateway"] = {"auth": {"api_keys": {"bench": TOKEN}}}
    config = folder / f"{place.upstreams}-{place.protected}-{modern}.json".replace(" ", "-")
    config.write_text(json.dumps(content))
    return config


async def measure(names: list[str], rounds: int, cases: Sequence[Case]) -> dict[str, dict[str, list[Sample]]]:
    """Let the gateways work in turn; one that does not start is left out."""
    samples: dict[str, dict[str, list[Sample]]] = {case.title: {} for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            running: dict[tuple[str, Place], Callable[[Case], Through | None]] = {}
            for name, place in places(names, cases):
                try:
                    running[name, place] = await stack.enter_async_context(started(name, place, Path(folder)))
                except TimeoutError:
                    sys.stderr.write(f"{name} serves no config here ({place}), its rows are left out\n")
            for case in cases:
                for turn in range(rounds):
                    for name in contenders(names, case):
                        spared = name in PEERS and (case.callers > PEER_CALLERS or turn >= PEER_ROUNDS)
                        through = running.get((name, case.place(name)))
                        client = None if spared or through is None else through(case)
                        if client is None:
                            continue
                        try:
                            samples[case.title].setdefault(name, []).append(await client.turn(case.callers))
                        except Exception as exc:
                            if name not in PEERS:
                                raise
                            sys.stderr.write(f"{name} is left out from here on, {case.title}: {reason(exc)}\n")
                            del running[name, case.place(name)]
    return samples


def contenders(names: Sequence[str], case: Case) -> list[str]:
    """Return those that are measured in a case."""
    if case.is_plain:
        return list(names)
    if case.kind:
        return [name for name in names if name in ("raw", "toolweave")]
    return [name for name in names if name in ("raw", "toolweave", "toolweave,rules")]


def places(names: Sequence[str], cases: Sequence[Case]) -> list[tuple[str, Place]]:
    """Return each process that the cases need, once."""
    return list(dict.fromkeys((name, case.place(name)) for case in cases for name in contenders(names, case)))


def reason(exc: BaseException) -> str:
    """Return why calls failed, the first of several."""
    first: Any = exc
    while isinstance(first, BaseExceptionGroup):
        first = cast("Any", first).exceptions[0]
    return f"{type(first).__name__}: {first}"


def gateway(settings: Settings) -> list[Figure]:
    """Measure every contender that is installed."""
    names = [*CONTENDERS, *(name for name, peer in PEERS.items() if python_in(peer.requirement) is not None)]
    if settings.clients:
        names = [name for name in names if name in ("raw", *settings.clients)]
    cases = [case for case in CASES if settings.wants(case.title)]
    if not cases:
        return []
    samples = asyncio.run(measure(names, min(settings.rounds, 7), cases))
    return [figure for case, rows in samples.items() for figure in compare("gateway", case, rows)]


if __name__ == "__main__":
    CONTENDERS[sys.argv[1]](int(sys.argv[2]), Path(sys.argv[3]))
