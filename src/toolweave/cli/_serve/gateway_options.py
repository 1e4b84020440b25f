"""The options of `toolweave gateway run`, and which of them contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from toolweave.cli._command import Option
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._install.clients import InstallClient
from toolweave.cli._options import VerboseOption
from toolweave.cli._serve.listen_options import (
    EventStoreOption,
    ForceOption,
    HttpOption,
    PrintOption,
    RetryOption,
    ServerOfConfigOption,
    ServingJsonOption,
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
            help="How long the start waits for slow servers. Default: while they show activity.",
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
            help="The variable with the token of the admin API. On loopback, a token is generated if you give none.",
            needs=["--http"],
        ),
    ] = None
    state_keys_env: Annotated[
        str | None,
        Option(
            "--state-keys-env", metavar="VAR", help="The variable with the keys that replicas share.", needs=["--http"]
        ),
    ] = None
    workers: Annotated[
        int,
        Option("--workers", metavar="NUMBER", minimum=1, help="How many processes serve the port.", needs=["--http"]),
    ] = 1
    redis_env: Annotated[
        str | None,
        Option(
            "--redis-env",
            metavar="VAR",
            help="The variable with the URL of the Redis that replicas share.",
            needs={"--http": "", "--state-keys-env": "replicas that share a Redis need the same state keys"},
        ),
    ] = None
    as_worker: Annotated[bool, Option("--as-worker", hidden=True, needs=["--http"])] = False
    allow_host: Annotated[
        tuple[str, ...],
        Option(
            "--allow-host",
            metavar="HOST",
            help="A host name by which clients reach it; may be repeated.",
            needs=["--http"],
        ),
    ] = ()
    trusted_proxy: TrustedProxyOption = ()
    name: Annotated[
        str | None, Option("--name", metavar="NAME", help="The name of the gateway; by default that of the config.")
    ] = None
    rest: Annotated[
        bool, Option("--rest", help="Also offer each tool at POST /tools/NAME, with /openapi.json.", needs=["--http"])
    ] = False
    ui: Annotated[
        bool,
        Option(
            "--ui",
            help="Serve the console at /ui. On loopback it is on by default. Elsewhere, pass --admin-token-env.",
            needs=["--http"],
            excludes={"--no-ui": "", "--workers": "a console shows one process"},
        ),
    ] = False
    no_ui: Annotated[bool, Option("--no-ui", help="Serve no console.", needs=["--http"])] = False
    runs: Annotated[
        str | None,
        Option(
            "--runs",
            metavar="URL",
            help="The store of agents' runs that the console shows and answers: a file, or a URL such as redis://.",
            needs=["--http"],
            excludes={"--workers": "a console shows one process"},
        ),
    ] = None
    metrics: Annotated[
        bool, Option("--metrics", help="Serve metrics for Prometheus at /metrics.", needs=["--http"])
    ] = False
    trace: Annotated[bool, Option("--trace", help="Create OpenTelemetry spans with the configured provider.")] = False
    drain: Annotated[
        float,
        Option("--drain", metavar="SECONDS", minimum=0, help="How long requests are still accepted after SIGTERM."),
    ] = 2.0
    no_watch: Annotated[
        bool, Option("--no-watch", help="Read the config again on SIGHUP only, not when it changes.")
    ] = False
    install: Annotated[
        InstallClient | None,
        Option(
            "--install",
            help="Let this client start the gateway, instead of serving now.",
            excludes={"--http": "the client starts the gateway, over stdio"},
        ),
    ] = None
    show: PrintOption = False
    force: ForceOption = False
    as_json: ServingJsonOption = False
    verbose: VerboseOption = False


def check_options(options: GatewayRunOptions) -> None:
    """Check the config, and the event store against several processes.

    Raises:
        CommandError: No config was found, or an event store of one process in several.
    """
    if not options.config:
        raise CommandError("a config is expected: toolweave gateway --config mcp.json --http 8000")
    if options.event_store is not None and (options.workers > 1 or options.redis_env is not None):
        raise CommandError("--event-store is for one process: workers and replicas keep events in their shared store")
