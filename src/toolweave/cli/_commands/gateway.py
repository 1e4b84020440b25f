"""`toolweave gateway`: a config of servers as one endpoint that follows the config, and commands for one that runs."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolweave._json_types import Json, JsonObject
from toolweave._text import counted
from toolweave.cli._command import Command, CommandGroup
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._install.clients import InstallClient
from toolweave.cli._screen import answer, note
from toolweave.cli._serve.gateway_admin import add, console, keys, list_servers, reload, remove, revoke, status
from toolweave.cli._serve.gateway_check import check
from toolweave.cli._serve.gateway_init import init
from toolweave.cli._serve.gateway_options import GatewayRunOptions, check_options
from toolweave.cli._serve.listen import (
    LOOPBACK,
    cannot_listen,
    keep_started_objects,
    listening,
    secret_in,
    state_keys_in,
    token_auth,
)
from toolweave.cli._serve.listen_options import event_settings

if TYPE_CHECKING:
    from toolweave.cli._serve.workers import WorkerSettings
    from toolweave.gateway import GatewayManager

HTTP_END_SECONDS = 30.0
"""Seconds that calls have to finish when a gateway ends."""

_HELP = """Serve a config as one gateway that follows it while it runs.

`toolweave gateway --config FILE` runs one, as `toolweave gateway run` does. `init` writes the config and `check` tries
it; the other commands are for a running gateway.
"""
_EXAMPLES = {
    "init": """
toolweave gateway init
toolweave gateway init team.json --add 'time=uvx mcp-server-time' --add github=https://mcp.example/github
toolweave gateway init team.json --add 'time=uvx mcp-server-time' --key ada --key bob --rate 60 --audit audit.jsonl
toolweave gateway init team.json --add 'notes=notes-server' --key ada --read-only --allow ada=notes --editor cursor
""",
    "check": """
toolweave gateway check team.json
toolweave gateway check team.json --path /usr/bin:/bin
toolweave gateway check team.json --user toolweave --json
""",
    "run": """
toolweave gateway --config mcp.json --http 8000
toolweave gateway --config mcp.json --http 0.0.0.0:8000 --token-env TOKEN --allow-host tools.example --metrics
toolweave gateway --config mcp.json
toolweave gateway --config mcp.json --install claude
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
toolweave gateway reload --url http://127.0.0.1:8000 --yes
""",
    "keys": """
toolweave gateway keys --url http://127.0.0.1:8000
""",
    "revoke": """
toolweave gateway revoke ada --url http://127.0.0.1:8000
""",
    "console": """
toolweave gateway console --url http://127.0.0.1:8000
""",
}


def run_gateway(options: GatewayRunOptions) -> ExitCode:
    """Serve the servers of a config as one, and follow the config while it runs.

    Over stdio, unless --http is given. A change of the config is applied at once: new servers start, removed servers
    finish their requests, and unchanged servers keep their connections. A file with a mistake changes nothing. SIGHUP
    also reloads it. Over HTTP there are virtual servers at /mcp/NAME, /healthz and /readyz, and a console at /ui, whose
    link signs in once. SIGTERM ends the gateway without losing a request.
    """
    check_options(options)
    if options.install is not None:
        return _install(options, options.install)
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


def _install(options: GatewayRunOptions, client: InstallClient) -> ExitCode:
    from toolweave.cli._serve.install import install_command  # late, as above

    words = ["gateway", "run"]
    for path in options.config:
        words += ["--config", str(path.resolve())]
    for name in options.server:
        words += ["--server", name]
    if options.name is not None:
        words += ["--name", options.name]
    if options.wait is not None:
        words += ["--wait", f"{options.wait:g}"]
    words += [option for option, given in (("--trace", options.trace), ("--no-watch", options.no_watch)) if given]
    manager = _manager(options)  # and the config is one
    servers = manager.config.servers.servers.values()
    return install_command(
        client,
        manager.name,
        words,
        servers=servers,
        only_show=options.show,
        force=options.force,
        as_json=options.as_json,
    )


def _replicas(options: GatewayRunOptions, keys: tuple[str, ...] | None, worker: WorkerSettings | None) -> Any:
    """Return the state that this process shares with others; None for none, or for that of the config."""
    if keys is None or (worker is None and options.redis_env is None):
        return None
    from toolweave.cli._serve.gateway_workers import replicas_of  # late, as above

    if options.redis_env is None:
        redis = None
    else:
        redis = secret_in(options.redis_env, "--redis-env")
    return replicas_of(keys, redis=redis, worker=worker, config=options.config)


def _ui(options: GatewayRunOptions, worker: WorkerSettings | None) -> bool | None:
    """Return whether there is to be a console: none with workers, as it would show one of them."""
    if options.no_ui or worker is not None:
        return False
    if options.ui:
        return True
    return None


def _manager(options: GatewayRunOptions, worker: WorkerSettings | None = None) -> GatewayManager:
    from toolweave.gateway import GatewayManager, GatewayOptions  # late, as above

    if options.state_keys_env is None:
        keys = None
    else:
        keys = tuple(state_keys_in(options.state_keys_env))
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
            ui=_ui(options, worker),
            runs=options.runs,
        ),
    )
    loaded = manager.config.servers
    if not loaded.servers and not loaded.errors and options.http is None:
        raise CommandError(
            f"{', '.join(map(str, options.config))}: no server to serve", hint="write one below 'mcpServers'"
        )
    return manager


def _serve_http(
    manager: GatewayManager, options: GatewayRunOptions, where: str, worker: WorkerSettings | None = None
) -> None:
    from toolweave.serve._http.http_server import serve_http  # late, as above
    from toolweave.serve._runners import run_blocking

    host, port = listening(where)
    own = worker is None and options.admin_token_env is None and host in LOOPBACK
    if worker is None:
        token = _admin_token(options, host)
    else:
        token = worker.admin_token
    # The parent has chosen it, so that all workers listen on the same one.
    port = port if worker is None else worker.port
    app = manager.asgi_app(host=host, admin_token=token, **_http_settings(manager, options, host))
    with ExitStack() as stack:

        def started(base: str) -> None:
            keep_started_objects()
            if own and token is not None:
                stack.enter_context(_kept(int(base.rpartition(":")[2]), token))
            facts = _facts(manager, base)
            if worker is None:
                _announce(facts, as_json=options.as_json)
                if manager.has_console:
                    _announce_console(manager, base, as_json=options.as_json)
                elif own and not options.no_ui:
                    _offer_console(manager)
            else:
                from toolweave.cli._serve.workers import say_ready

                say_ready(facts)

        async def serve() -> None:
            await serve_http(app, host=host, port=port, on_started=started, reuse_port=worker is not None)

        try:
            run_blocking(serve, name="run_http", instead="serve_http")
        except OSError as error:
            raise cannot_listen(where, error) from None


def _http_settings(manager: GatewayManager, options: GatewayRunOptions, host: str) -> Json:
    """Return the options of the app."""
    from toolweave.serve import HttpLimits  # late, as above

    settings: Json = {
        "stateless": options.stateless,
        "allowed_hosts": list(options.allow_host),
        "trusted_proxies": list(options.trusted_proxy),
        "limits": HttpLimits(drain_seconds=options.drain),
    }
    if options.event_store is not None and manager.config.redis is not None:
        raise CommandError("--event-store is for one process: replicas keep events in the store of 'gateway.redis'")
    settings |= event_settings(options.event_store, options.retry_seconds)
    if options.rest:
        settings["rest"] = True
    if options.token_env is not None:
        if manager.auth is not None:
            raise CommandError("the config has 'gateway.auth', which says who may call; leave --token-env out")
        settings["auth"] = token_auth(options.token_env)
    elif host not in LOOPBACK and manager.auth is None:
        note("warning: anyone who reaches this port can call the tools; --token-env VAR or 'gateway.auth' sees to that")
    return settings


def _admin_token(options: GatewayRunOptions, host: str) -> str | None:
    """Return the token of the admin API: that of the variable, a new one on loopback, else none."""
    from toolweave.gateway import new_token  # late, as above

    if options.admin_token_env is not None:
        return secret_in(options.admin_token_env, "--admin-token-env")
    if host in LOOPBACK:
        return new_token()
    return None


def _facts(manager: GatewayManager, base: str) -> Json:
    """Return the facts to print about a gateway that has started."""
    paths = {one.name: base + one.path for one in manager.status().virtual}
    tools = len(manager.hub.snapshot())
    facts = {"url": f"{base}/mcp", "base": base, "name": manager.name, "tools": tools, "virtual": paths}
    return facts | ({"console": f"{base}/ui/"} if manager.has_console else {})


def _announce(facts: JsonObject, *, as_json: bool, workers: int = 1) -> None:
    from toolweave.cli._screen import announce  # late, as above

    if as_json:
        from toolweave.cli._render.text import safe_json

        answer(safe_json(facts, indent=None))
        return
    tools = facts["tools"]
    paths = [url.removeprefix(facts["base"]) for url in facts["virtual"].values()]
    tool_count = counted(tools, "tool")
    if paths:
        views = (f"virtual servers: {', '.join(paths)}",)
    else:
        views = ()
    several = (f"{workers} workers",) if workers > 1 else ()
    announce(facts["name"], facts["url"], tool_count, *views, *several, "Ctrl-C stops it")


def _announce_console(manager: GatewayManager, base: str, *, as_json: bool) -> None:
    """Print the address of the console; a link only where it does not end in a log, which others may read."""
    from toolweave.cli._streams import is_terminal  # late, as above

    if as_json:
        return
    if is_terminal(sys.stderr):
        note(f"console: {base}{manager.console_link()}")
    else:
        note(f"console: {base}/ui/; toolweave gateway console --url {base} makes a link that signs in")


def _offer_console(manager: GatewayManager) -> None:
    """Print how to get the console, if only its package is missing."""
    if manager.config.ui is False:
        return
    if find_spec("jinja2") is None:
        note("no console: pip install 'toolweave[console]' adds it")


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
        announce=lambda facts: _announce(facts, as_json=options.as_json, workers=options.workers),
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


COMMAND = CommandGroup(
    _HELP,
    {
        "run": Command(run_gateway, examples=_EXAMPLES["run"]),
        "init": Command(init, examples=_EXAMPLES["init"]),
        "check": Command(check, examples=_EXAMPLES["check"]),
        "add": Command(add, examples=_EXAMPLES["add"]),
        "remove": Command(remove, examples=_EXAMPLES["remove"]),
        "list": Command(list_servers, examples=_EXAMPLES["list"]),
        "status": Command(status, examples=_EXAMPLES["status"]),
        "reload": Command(reload, examples=_EXAMPLES["reload"]),
        "keys": Command(keys, examples=_EXAMPLES["keys"]),
        "revoke": Command(revoke, examples=_EXAMPLES["revoke"]),
        "console": Command(console, examples=_EXAMPLES["console"]),
    },
    default="run",
)
