"""`toolweave gateway`: a config of servers as one endpoint that follows the config, and commands for one that runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from toolweave.cli._command import Command, CommandGroup, Option, Positional, Remainder
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import JsonOption, VerboseOption
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, note, show
from toolweave.cli._serve.listen import LOOPBACK, listening, secret_in, state_keys_in, token_auth

if TYPE_CHECKING:
    from toolweave.cli._serve.workers import WorkerSettings
    from toolweave.gateway import GatewayAdmin, GatewayManager, UpstreamStatus

__all__ = ["COMMAND", "AdminTarget", "add", "list_servers", "reload", "remove", "run_gateway", "status"]

HTTP_END_SECONDS = 30.0
"""Seconds that calls have to finish when a gateway ends."""

_HELP = """Serve a config as one gateway that follows it while it runs.

`toolweave gateway --config FILE` runs one, as `toolweave gateway run` does; the other commands are for one that runs.
"""
_EXAMPLES = {
    "run": """
toolweave gateway --config mcp.json --http 8000
toolweave gateway --config mcp.json --http 0.0.0.0:8000 --token-env TOKEN --allow-host tools.example --metrics
toolweave gateway --config mcp.json
""",
    "add": """
toolweave gateway add time --url http://127.0.0.1:8000 -- uvx mcp-server-time
toolweave gateway add github --url http://127.0.0.1:8000 --server-url https://mcp.example/github
toolweave gateway add notes --url https://tools.example --admin-token-env ADMIN --entry '{"command": "notes-server"}'
""",
    "remove": """
toolweave gateway remove time --url http://127.0.0.1:8000
""",
    "list": """
toolweave gateway list --url http://127.0.0.1:8000
""",
    "status": """
toolweave gateway status --url http://127.0.0.1:8000 --json
""",
    "reload": """
toolweave gateway reload --url http://127.0.0.1:8000
""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRunOptions:
    """The options of `toolweave gateway run`; each attribute is an option."""

    config: Annotated[
        tuple[Path, ...],
        Option("--config", "-c", metavar="FILE", help="The config of its servers; may be repeated."),
    ] = ()
    server: Annotated[
        tuple[str, ...], Option("--server", "-s", metavar="NAME", help="Only this server of it; may be repeated.")
    ] = ()
    wait: Annotated[
        float | None,
        Option(
            "--wait",
            metavar="SECONDS",
            minimum=0,
            help="How long the start waits at most for slow servers; by default, for those that show life.",
        ),
    ] = None
    http: Annotated[str | None, Option("--http", metavar="[HOST:]PORT", help="Serve over HTTP; port 0: any.")] = None
    stateless: Annotated[
        bool, Option("--stateless", help="No sessions for older clients, for replicas behind a balancer.")
    ] = False
    token_env: Annotated[
        str | None,
        Option("--token-env", metavar="VAR", help="The variable with the bearer token that requests must bring."),
    ] = None
    admin_token_env: Annotated[
        str | None,
        Option(
            "--admin-token-env",
            metavar="VAR",
            help="The variable with the token of the admin API; on loopback there is one without.",
        ),
    ] = None
    state_keys_env: Annotated[
        str | None,
        Option("--state-keys-env", metavar="VAR", help="The variable with the keys that replicas share."),
    ] = None
    workers: Annotated[
        int, Option("--workers", metavar="NUMBER", minimum=1, help="How many processes serve the port.")
    ] = 1
    redis_env: Annotated[
        str | None,
        Option("--redis-env", metavar="VAR", help="The variable with the URL of the Redis that replicas share."),
    ] = None
    as_worker: Annotated[bool, Option("--as-worker", hidden=True)] = False
    allow_host: Annotated[
        tuple[str, ...],
        Option("--allow-host", metavar="HOST", help="A name the gateway is reached by; may be repeated."),
    ] = ()
    name: Annotated[str | None, Option("--name", metavar="NAME", help="Its name; else that in the config.")] = None
    rest: Annotated[bool, Option("--rest", help="Offer each tool at POST /tools/NAME too, with /openapi.json.")] = False
    metrics: Annotated[bool, Option("--metrics", help="Count and measure for Prometheus, at /metrics.")] = False
    trace: Annotated[bool, Option("--trace", help="Make OpenTelemetry spans, by the provider that is configured.")] = (
        False
    )
    drain: Annotated[
        float,
        Option("--drain", metavar="SECONDS", minimum=0, help="How long requests are still taken after SIGTERM."),
    ] = 2.0
    no_watch: Annotated[
        bool, Option("--no-watch", help="Read the config again on SIGHUP only, not when it changes.")
    ] = False
    as_json: JsonOption = False
    verbose: VerboseOption = False


def run_gateway(options: GatewayRunOptions) -> ExitCode:
    """Serve the servers of a config as one, and follow the config while it runs.

    Over stdio, unless --http is given. A change of the config is taken over at once: what is new is started, what is
    gone ends with its requests, and all others keep their connections; a file with a mistake changes nothing. SIGHUP
    reads it again, too. Over HTTP there are virtual servers at /mcp/NAME, /healthz and /readyz; SIGTERM ends it without
    losing a request.
    """
    _check(options)
    from toolweave.cli._log import log_to_screen  # imports are late: --help imports this module

    with log_to_screen(verbose=options.verbose, failures=True):
        if options.as_worker:
            from toolweave.cli._serve.workers import take_settings

            settings = take_settings()
            _serve_http(_manager(options, settings), options, str(options.http), settings)
            return ExitCode.OK
        if options.workers > 1:
            return _serve_with_workers(options, str(options.http))
        manager = _manager(options)
        if options.http is None:
            from toolweave.serve._runners import run_blocking

            run_blocking(manager.serve_stdio, name="run_stdio", instead="serve_stdio")
        else:
            _serve_http(manager, options, options.http)
    return ExitCode.OK


def _check(options: GatewayRunOptions) -> None:
    """Reject options that contradict each other."""
    over_http = options.http is not None
    only_http = {
        "--stateless": options.stateless,
        "--token-env": options.token_env is not None,
        "--admin-token-env": options.admin_token_env is not None,
        "--state-keys-env": options.state_keys_env is not None,
        "--redis-env": options.redis_env is not None,
        "--workers": options.workers > 1,
        "--as-worker": options.as_worker,
        "--allow-host": bool(options.allow_host),
        "--rest": options.rest,
        "--metrics": options.metrics,
    }
    if not options.config:
        raise CommandError("a config is expected: toolweave gateway --config mcp.json --http 8000")
    for name, given in only_http.items():
        if given and not over_http:
            raise CommandError(f"{name} goes with --http")
    if options.redis_env is not None and options.state_keys_env is None:
        raise CommandError("replicas that share a Redis need the same state keys: --state-keys-env VAR")
    if options.as_json and not over_http:
        raise CommandError("over stdio, standard output carries the protocol; --json goes with --http")


def _replicas(options: GatewayRunOptions, keys: tuple[str, ...] | None, worker: WorkerSettings | None) -> Any:
    """Return what this process shares with others; None where that is nothing, or what the config names."""
    if keys is None or (worker is None and options.redis_env is None):
        return None
    from toolweave.cli._serve.gateway_workers import replicas_of  # late, as above

    redis = None if options.redis_env is None else secret_in(options.redis_env, "--redis-env")
    return replicas_of(keys, redis=redis, worker=worker, config=options.config)


def _manager(options: GatewayRunOptions, worker: WorkerSettings | None = None) -> GatewayManager:
    from toolweave.gateway import GatewayManager, GatewayOptions  # late, as above

    keys = None if options.state_keys_env is None else tuple(state_keys_in(options.state_keys_env))
    if worker is not None:
        keys = tuple(worker.state_keys)
    manager = GatewayManager(
        options.config,
        GatewayOptions(
            names=options.server,
            name=options.name,
            wait=options.wait,
            metrics=options.metrics,
            tracing=options.trace,
            watch=not options.no_watch,
            state_keys=keys,
            replicas=_replicas(options, keys, worker),
        ),
    )
    loaded = manager.config.servers
    if not loaded.servers and not loaded.errors and options.http is None:
        raise CommandError(f"{', '.join(map(str, options.config))}: no server to serve")
    return manager


def _serve_http(
    manager: GatewayManager, options: GatewayRunOptions, where: str, worker: WorkerSettings | None = None
) -> None:
    from toolweave.serve._http.uvicorn_server import serve_http  # late, as above
    from toolweave.serve._runners import run_blocking

    host, port = listening(where)
    own = worker is None and options.admin_token_env is None and host in LOOPBACK
    token = _admin_token(options, host) if worker is None else worker.admin_token
    port = port if worker is None else worker.port
    app = manager.asgi_app(host=host, admin_token=token, **_http_settings(manager, options, host))
    with ExitStack() as stack:

        def started(base: str) -> None:
            if own and token is not None:
                stack.enter_context(_kept(int(base.rpartition(":")[2]), token))
            facts = _facts(manager, base)
            if worker is None:
                _tell(facts, as_json=options.as_json)
            else:
                from toolweave.cli._serve.workers import say_ready

                say_ready(facts)

        async def serve() -> None:
            await serve_http(app, host=host, port=port, on_started=started, reuse_port=worker is not None)

        try:
            run_blocking(serve, name="run_http", instead="serve_http")
        except OSError as error:
            raise CommandError(f"cannot listen on {where}: {error.strerror or error}") from None


def _http_settings(manager: GatewayManager, options: GatewayRunOptions, host: str) -> dict[str, Any]:
    """Return the options of the app."""
    from toolweave.serve import HttpLimits  # late, as above

    settings: dict[str, Any] = {
        "stateless": options.stateless,
        "allowed_hosts": list(options.allow_host),
        "limits": HttpLimits(drain_seconds=options.drain),
    }
    if options.rest:
        settings["rest"] = True
    if options.token_env is not None:
        if manager.auth is not None:
            raise CommandError("the config has 'gateway.auth', which says who may call; leave --token-env out")
        settings["auth"] = token_auth(options.token_env)
    elif host not in LOOPBACK and manager.auth is None:
        note("warning: whoever reaches this port can call the tools; --token-env VAR or 'gateway.auth' sees to that")
    return settings


def _admin_token(options: GatewayRunOptions, host: str) -> str | None:
    """Return the token of the admin API: that of the variable, a new one on loopback, else none."""
    from toolweave.gateway import new_token  # late, as above

    if options.admin_token_env is not None:
        return secret_in(options.admin_token_env, "--admin-token-env")
    return new_token() if host in LOOPBACK else None


def _facts(manager: GatewayManager, base: str) -> dict[str, Any]:
    """Return what is told of a gateway that has started."""
    paths = {one.name: base + one.path for one in manager.status().virtual}
    tools = len(manager.hub.snapshot())
    return {"url": f"{base}/mcp", "base": base, "name": manager.name, "tools": tools, "virtual": paths}


def _tell(facts: Mapping[str, Any], *, as_json: bool, workers: int = 1) -> None:
    from toolweave.cli._screen import announce  # late, as above

    if as_json:
        from toolweave.cli._render.text import safe_json

        answer(safe_json(facts, indent=None))
        return
    tools, paths = facts["tools"], [url.removeprefix(facts["base"]) for url in facts["virtual"].values()]
    counted = f"{tools} tool{'s' * (tools != 1)}"
    views = (f"virtual servers: {', '.join(paths)}",) if paths else ()
    several = (f"{workers} workers",) if workers > 1 else ()
    announce(facts["name"], facts["url"], counted, *views, *several, "Ctrl-C stops it")


def _serve_with_workers(options: GatewayRunOptions, where: str) -> ExitCode:
    """Serve a port with several processes."""
    from toolweave.cli._serve.gateway_workers import ServedByWorkers  # late, as above

    host, _ = listening(where)
    served = ServedByWorkers(
        config=options.config,
        names=options.server,
        where=where,
        workers=options.workers,
        state_keys=None if options.state_keys_env is None else state_keys_in(options.state_keys_env),
        redis=None if options.redis_env is None else secret_in(options.redis_env, "--redis-env"),
        admin_token=_admin_token(options, host),
        metrics=options.metrics,
        end_seconds=options.drain + HTTP_END_SECONDS,
    )
    own = options.admin_token_env is None and served.admin_token is not None
    return served.run(
        keep=_kept if own else None,
        tell=lambda facts: _tell(facts, as_json=options.as_json, workers=options.workers),
    )


@contextmanager
def _kept(port: int, token: str) -> Generator[None]:
    """Keep the admin token for commands of this machine, where that is possible."""
    from toolweave.gateway import keep_token  # late, as above

    with ExitStack() as stack:
        try:
            stack.enter_context(keep_token(port, token))
        except OSError as error:
            note(f"warning: the admin token cannot be kept for commands of this machine: {error}")
        yield


# commands for a gateway that runs


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTarget:
    """The gateway that a command is for; each attribute is an option."""

    url: Annotated[
        str, Option("--url", metavar="URL", help="The address of the gateway, such as http://127.0.0.1:8000.")
    ] = "http://127.0.0.1:8000"
    admin_token_env: Annotated[
        str | None,
        Option(
            "--admin-token-env",
            metavar="VAR",
            help="The variable with its admin token; not needed for a gateway of this user on this machine.",
        ),
    ] = None
    as_json: JsonOption = False
    verbose: VerboseOption = False


def add(
    target: AdminTarget,
    name: Annotated[str, Positional("NAME", help="The name of the server.")],
    server_url: Annotated[str | None, Option("--server-url", metavar="URL", help="The URL of an HTTP server.")] = None,
    entry: Annotated[
        str | None, Option("--entry", metavar="JSON", help="The entry of the server, as in a config file.")
    ] = None,
    command: Annotated[tuple[str, ...], Remainder("COMMAND ARGS...")] = (),
) -> ExitCode:
    """Add a server to a gateway that runs; its tools are there at once.

    It stays until it is removed or the gateway ends: what is to last belongs into the config.
    """
    config = _entry(server_url, entry, command)

    async def body(admin: GatewayAdmin) -> ExitCode:
        found = await admin.add(name, config)
        if target.as_json:
            answer_json(_json(found))
        else:
            answer(f"server {found.name!r} is {found.state}, with {found.tools} tool{'s' * (found.tools != 1)}")
        return ExitCode.OK

    return _with_admin(target, body)


def _entry(server_url: str | None, entry: str | None, command: tuple[str, ...]) -> dict[str, Any]:
    """Return the entry of a new server."""
    if sum((server_url is not None, entry is not None, bool(command))) != 1:
        raise CommandError("one of --server-url URL, --entry JSON and -- COMMAND ARGS... is expected")
    if server_url is not None:
        return {"url": server_url}
    if entry is None:
        return {"command": command[0], "args": list(command[1:])}
    import json  # late, as above

    try:
        value: Any = json.loads(entry)
    except ValueError as error:
        raise CommandError(f"--entry is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise CommandError('--entry must be an object, such as \'{"command": "notes-server"}\'')
    return value  # pyright: ignore[reportUnknownVariableType]  # the gateway reads it


def remove(target: AdminTarget, name: Annotated[str, Positional("NAME", help="The name of the server.")]) -> ExitCode:
    """Remove a server from a gateway that runs: its tools are gone at once, its calls may finish.

    One of the config file comes back when that is read again and still has it.
    """

    async def body(admin: GatewayAdmin) -> ExitCode:
        await admin.remove(name)
        if target.as_json:
            answer_json({"removed": name})
        else:
            answer(f"server {name!r} was removed")
        return ExitCode.OK

    return _with_admin(target, body)


def list_servers(target: AdminTarget) -> ExitCode:
    """List the servers of a gateway that runs, with their states."""

    async def body(admin: GatewayAdmin) -> ExitCode:
        found = (await admin.status()).upstreams
        if target.as_json:
            answer_json({"servers": [_json(one) for one in found]})
        else:
            _show_servers(found)
        return ExitCode.OK

    return _with_admin(target, body)


def status(target: AdminTarget) -> ExitCode:
    """Show whether a gateway is ready, its servers, its virtual servers and what is wrong with its config.

    Exits with 3 while it is not ready.
    """

    async def body(admin: GatewayAdmin) -> ExitCode:
        found = await admin.status()
        if target.as_json:
            answer_json(_json(found))
        else:
            from toolweave.cli._render.views import heading  # late, as above

            state = "draining" if found.draining else "ready" if found.ready else "not ready"
            counted = f"{found.requests} request{'s' * (found.requests != 1)} under way"
            show(heading(found.name, state, f"config {found.generation}", counted))
            _show_servers(found.upstreams)
            for one in found.virtual:
                answer(f"{one.path}  {one.tools} tools{f'  {one.title}' if one.title else ''}")
            if found.problem is not None:
                note(f"the config was not changed: {found.problem}")
            for text in found.warnings:
                note(f"warning: {text}")
        return ExitCode.OK if found.ready else ExitCode.UNREACHABLE

    return _with_admin(target, body)


def reload(target: AdminTarget) -> ExitCode:
    """Let a gateway that runs read its config again; a config with a mistake changes nothing, and exits with 2."""

    async def body(admin: GatewayAdmin) -> ExitCode:
        change = await admin.reload()
        if target.as_json:
            answer_json(_json(change))
        elif change.error is None:
            for what, names in (("added", change.added), ("changed", change.changed), ("removed", change.removed)):
                if names:
                    answer(f"{what}: {', '.join(names)}")
            answer(f"unchanged: {len(change.unchanged)}")
            for text in change.failed.values():
                note(f"failed: {text}")
        if change.error is not None:
            note(f"error: the config was not changed: {change.error}")
            return ExitCode.USAGE
        return ExitCode.UNREACHABLE if change.failed else ExitCode.OK

    return _with_admin(target, body)


def _with_admin(target: AdminTarget, body: Callable[[GatewayAdmin], Awaitable[ExitCode]]) -> ExitCode:
    variable = target.admin_token_env
    token = None if variable is None else secret_in(variable, "--admin-token-env")

    async def opened() -> ExitCode:
        from toolweave.gateway import GatewayAdmin  # late, as above

        async with GatewayAdmin(target.url, token) as admin:
            return await body(admin)

    return run(opened, verbose=target.verbose)


def _show_servers(servers: tuple[UpstreamStatus, ...]) -> None:
    from toolweave.cli._render.views import table  # late, as above

    rows = [
        (
            one.name,
            one.state if one.pending is None else f"{one.state}, {one.pending}",
            one.protocol or "",
            str(one.tools),
            str(one.restarts),
            "added" if one.added else "",
            (one.error or "").partition("\n")[0],
        )
        for one in servers
    ]
    columns = ["server", "state", "protocol", "tools", "restarts", "from", "error"]
    show(table(columns, rows, right=("tools", "restarts")))


def _json(value: Any) -> Any:  # any Struct
    import msgspec  # late, as above

    return msgspec.to_builtins(value)


COMMAND = CommandGroup(
    _HELP,
    {
        "run": Command(run_gateway, examples=_EXAMPLES["run"]),
        "add": Command(add, examples=_EXAMPLES["add"]),
        "remove": Command(remove, examples=_EXAMPLES["remove"]),
        "list": Command(list_servers, examples=_EXAMPLES["list"]),
        "status": Command(status, examples=_EXAMPLES["status"]),
        "reload": Command(reload, examples=_EXAMPLES["reload"]),
    },
    default="run",
)
