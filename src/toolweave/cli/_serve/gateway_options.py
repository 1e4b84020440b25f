"""The options of `toolweave gateway run`, and which of them contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from toolweave.cli._command import Option
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._install.clients import InstallClient
from toolweave.cli._options import JsonOption, VerboseOption
from toolweave.cli._serve.listen_options import (
    EventStoreOption,
    HttpOption,
    RetryOption,
    ServerOfConfigOption,
    StatelessOption,
    TokenEnvOption,
    TrustedProxyOption,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRunOptions:
    """The options of `toolweave gateway run`; each attribute is an option."""

    config: Annotated[
        tuple[Path, ...],
        Option("--config", "-c", metavar="FILE", help="The config of its servers; may be repeated."),
    ] = ()
    server: ServerOfConfigOption = ()
    wait: Annotated[
        float | None,
        Option(
            "--wait",
            metavar="SECONDS",
            minimum=0,
            help="How long the start waits at most for slow servers; by default, for those that show life.",
        ),
    ] = None
    http: HttpOption = None
    stateless: StatelessOption = False
    event_store: EventStoreOption = None
    retry_seconds: RetryOption = None
    token_env: TokenEnvOption = None
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
    trusted_proxy: TrustedProxyOption = ()
    name: Annotated[str | None, Option("--name", metavar="NAME", help="Its name; else that in the config.")] = None
    rest: Annotated[bool, Option("--rest", help="Offer each tool at POST /tools/NAME too, with /openapi.json.")] = False
    ui: Annotated[
        bool,
        Option(
            "--ui",
            help="Serve the console at /ui; on loopback it is there without, elsewhere it wants --admin-token-env.",
        ),
    ] = False
    no_ui: Annotated[bool, Option("--no-ui", help="Serve no console.")] = False
    runs: Annotated[
        str | None,
        Option(
            "--runs",
            metavar="URL",
            help="The store of agents' runs that the console shows and answers: a file, or a URL such as redis://.",
        ),
    ] = None
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
    install: Annotated[
        InstallClient | None, Option("--install", help="Let this client start the gateway, instead of serving now.")
    ] = None
    show: Annotated[bool, Option("--print", help="With --install: show the entry, write nothing.")] = False
    as_json: JsonOption = False
    verbose: VerboseOption = False


def check_options(options: GatewayRunOptions) -> None:
    """Reject options that contradict each other.

    Raises:
        CommandError: Two do, or there is no config.
    """
    over_http = options.http is not None
    only_http = {
        "--stateless": options.stateless,
        "--event-store": options.event_store is not None,
        "--retry-seconds": options.retry_seconds is not None,
        "--token-env": options.token_env is not None,
        "--admin-token-env": options.admin_token_env is not None,
        "--state-keys-env": options.state_keys_env is not None,
        "--redis-env": options.redis_env is not None,
        "--workers": options.workers > 1,
        "--as-worker": options.as_worker,
        "--allow-host": bool(options.allow_host),
        "--trusted-proxy": bool(options.trusted_proxy),
        "--rest": options.rest,
        "--metrics": options.metrics,
        "--ui": options.ui,
        "--no-ui": options.no_ui,
        "--runs": options.runs is not None,
    }
    if not options.config:
        raise CommandError("a config is expected: toolweave gateway --config mcp.json --http 8000")
    for name, given in only_http.items():
        if given and not over_http:
            raise CommandError(f"{name} goes with --http")
    _check_event_store(options)
    if options.redis_env is not None and options.state_keys_env is None:
        raise CommandError("replicas that share a Redis need the same state keys: --state-keys-env VAR")
    if options.ui and options.no_ui:
        raise CommandError("--ui and --no-ui contradict each other")
    if (options.ui or options.runs is not None) and options.workers > 1:
        raise CommandError(
            f"a console shows one process; {'--ui' if options.ui else '--runs'} does not go with --workers"
        )
    if options.install is not None and over_http:
        raise CommandError("--install is for stdio: the editor starts the gateway; --http does not go with it")
    if options.show and options.install is None:
        raise CommandError("--print goes with --install")
    if options.as_json and not over_http and options.install is None:
        raise CommandError("over stdio, standard output carries the protocol; --json goes with --http and --install")


def _check_event_store(options: GatewayRunOptions) -> None:
    if options.event_store is None:
        return
    if options.stateless:
        raise CommandError("--event-store does not go with --stateless: there are no sessions whose streams are kept")
    if options.workers > 1 or options.redis_env is not None:
        raise CommandError("--event-store is for one process: workers and replicas keep events in their shared store")
