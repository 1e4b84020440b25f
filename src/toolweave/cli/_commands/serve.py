"""`toolweave serve`: functions, applications, APIs, folders or whole configs as one MCP server, over stdio or HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from toolweave._json_types import Json
from toolweave._text import counted
from toolweave.cli._command import Command, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._install.clients import InstallClient
from toolweave.cli._options import BaseUrlOption, VerboseOption
from toolweave.cli._serve.listen import (
    LOOPBACK,
    cannot_listen,
    keep_started_objects,
    listening,
    state_keys_in,
    token_auth,
)
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
    event_settings,
)
from toolweave.cli._slips import repeated_option

if TYPE_CHECKING:
    from toolweave.config import LoadedConfig, ServerConfig
    from toolweave.serve import McpServer
    from toolweave.serve._runners import ServerRunners

_EXAMPLES = """
toolweave serve notes.py
toolweave serve notes.py:server --http 8000
toolweave serve ./notes --reload
toolweave serve mysite.asgi --http 8000
toolweave serve https://api.example.com/openapi.json --auth-env TOKEN
toolweave serve mypackage.tools:registry --http 0.0.0.0:8000 --token-env TOKEN --allow-host tools.example
toolweave serve --config mcp.json --server github --server files
toolweave serve notes.py --skills ./skills
toolweave serve notes.py --reload
toolweave serve notes.py --install claude
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `toolweave serve`; each attribute is an option."""

    target: Annotated[
        str | None,
        Positional(
            "TARGET", help="FILE.py[:OBJECT], MODULE[:OBJECT], a folder, or the file or URL of an OpenAPI document."
        ),
    ] = None
    config: Annotated[
        tuple[Path, ...],
        Option("--config", "-c", metavar="FILE", help="Serve the servers of this config; may be repeated."),
    ] = ()
    server: ServerOfConfigOption = ()
    openapi: Annotated[
        str | None, Option("--openapi", metavar="URL_OR_FILE", help="Serve the API of this OpenAPI document.")
    ] = None
    base_url: BaseUrlOption = None
    auth_env: Annotated[
        str | None,
        Option(
            "--auth-env",
            metavar="VAR",
            help="The variable with a token for that API, or a JSON object of credentials by security scheme.",
            needs=["--openapi"],
        ),
    ] = None
    headers_env: Annotated[
        str | None,
        Option(
            "--headers-env",
            metavar="VAR",
            help="The variable with headers for that API, as a JSON object.",
            needs=["--openapi"],
        ),
    ] = None
    no_repair: Annotated[
        bool, Option("--no-repair", help="Refuse arguments that only nearly fit that API.", needs=["--openapi"])
    ] = False
    skills: Annotated[
        tuple[Path, ...],
        Option(
            "--skills",
            metavar="DIR",
            help="Also serve the skills below this folder; may be repeated.",
            excludes={"--config": "those are its servers'", "--reload": "changes of skills show at once"},
        ),
    ] = ()
    wait: Annotated[
        float | None,
        Option(
            "--wait",
            metavar="SECONDS",
            minimum=0,
            help="How long clients wait for its slow servers. Default: while they show activity.",
            needs=["--config"],
        ),
    ] = None
    http: HttpOption = None
    path: Annotated[
        str, Option("--path", metavar="PATH", help="The path of the endpoint, over HTTP.", needs=["--http"])
    ] = "/mcp"
    stateless: StatelessOption = False
    event_store: EventStoreOption = None
    retry_seconds: RetryOption = None
    token_env: TokenEnvOption = None
    state_keys_env: Annotated[
        str | None,
        Option(
            "--state-keys-env",
            metavar="VAR",
            help="The variable with the keys that replicas share, for questions to clients.",
            needs=["--http"],
        ),
    ] = None
    allow_host: Annotated[
        tuple[str, ...],
        Option(
            "--allow-host",
            metavar="HOST",
            help="A host name by which clients reach the server; may be repeated.",
            needs=["--http"],
        ),
    ] = ()
    trusted_proxy: TrustedProxyOption = ()
    name: Annotated[str | None, Option("--name", metavar="NAME", help="The server's name.")] = None
    reload: Annotated[bool, Option("--reload", help="Restart when the source changes.", excludes=["--openapi"])] = False
    install: Annotated[
        InstallClient | None,
        Option(
            "--install",
            help="Let this client start the server, instead of serving now.",
            excludes={"--http": "the client starts the server, over stdio", "--reload": ""},
        ),
    ] = None
    show: PrintOption = False
    force: ForceOption = False
    as_json: ServingJsonOption = False
    verbose: VerboseOption = False


def serve(options: ServeOptions) -> ExitCode:
    """Serve functions, apps, APIs, a folder or a config as one server.

    Over stdio, unless --http is given. OBJECT is a server, an application of FastAPI, Starlette or Django, a server
    object of FastMCP or the official SDK, an agent, a function, or a list of these. Without OBJECT: the only server in
    the file or module, else the object named server, mcp, app or application, else its @tool functions, else the only
    such object, else its public functions. A folder is served as the functions of its Python files, prompts/*.md, the
    files in resources/, and skills/. With --config, all its servers are served as one. If a server fails, the others
    still work, and slow servers are added when they are ready. `"tool_prefix": ""` keeps a server's own names.
    """
    options = _with_document(options)
    _check(options)
    if options.install is not None:
        return _install(options, options.install)
    if options.reload:
        from toolweave.cli._serve.reload import supervise  # imports are late: --help imports this module

        if options.http is None:
            address = None
        else:
            address = listening(options.http)
        return supervise(options.target, options.config, address=address, verbose=options.verbose)
    from toolweave.cli._log import log_to_screen

    with log_to_screen(verbose=options.verbose, failures=True):
        server = _server(options)
        if options.http is None:
            server.run_stdio()
        else:
            _run_http(server, options, options.http)
    return ExitCode.OK


def _with_document(options: ServeOptions) -> ServeOptions:
    """Return the options with an OpenAPI document that is given as the target where --openapi gives it."""
    from toolweave.cli._serve.api import is_document  # imports are late: --help imports this module

    target = options.target
    if target is None or options.openapi is not None or not is_document(target):
        return options
    return replace(options, target=None, openapi=target)


def _check(options: ServeOptions) -> None:
    """Check that there is one thing to serve, beside skills."""
    sources = (options.target is not None, options.openapi is not None, bool(options.config))
    if sum(sources) > 1 or not (any(sources) or options.skills):
        raise CommandError(
            "one thing to serve is expected, a TARGET or --config: toolweave serve FILE.py, or --config mcp.json"
        )


def _server(options: ServeOptions) -> ServerRunners:
    from toolweave.cli._serve.build import hub_server, only_protocol_on_stdout, server_of, skill_server
    from toolweave.cli._serve.locate import find, parse_place  # late, as above

    if options.state_keys_env is None:
        keys = None
    else:
        keys = state_keys_in(options.state_keys_env)
    with only_protocol_on_stdout():
        if options.target is None and options.config:
            return hub_server(_selection(options), name=options.name, wait=options.wait, state_keys=keys)
        if options.openapi is not None:
            server = _api(options, options.openapi, keys)
        elif options.target is None:
            return skill_server(options.skills, name=options.name, state_keys=keys)
        else:
            server = server_of(find(parse_place(options.target)), name=options.name, state_keys=keys)
        return skill_server(options.skills, server, name=options.name)


def _api(options: ServeOptions, source: str, keys: list[str] | None) -> McpServer:
    from toolweave.cli._serve.api import api_server  # late, as above

    return api_server(
        source,
        base_url=options.base_url,
        auth_env=options.auth_env,
        headers_env=options.headers_env,
        repair=not options.no_repair,
        name=options.name,
        state_keys=keys,
    )


def _selection(options: ServeOptions) -> LoadedConfig:
    from toolweave.cli._screen import note  # late, as above
    from toolweave.config import load_config, merge_loaded

    loaded = merge_loaded(map(load_config, options.config))
    if loaded.gateway_sections:
        raise CommandError(
            f"{' and '.join(loaded.gateway_sections)}: 'toolweave serve' does not apply the section 'gateway', which "
            "says who may call what",
            hint=f"toolweave gateway {' '.join(f'--config {path}' for path in options.config)}",
        )
    for name, config in loaded.servers.items():
        if any(mode != "never" for mode in config.confirm.values()):
            note(f"warning: server {name!r}: its 'confirm' is for agents, and asks nobody about calls of clients")
    if options.server:
        return loaded.select(options.server)
    if not loaded.servers and not loaded.errors:
        raise CommandError(
            f"{', '.join(map(str, options.config))}: no server to serve", hint="write one below 'mcpServers'"
        )
    return loaded


def _run_http(server: ServerRunners, options: ServeOptions, where: str) -> None:
    from toolweave.cli._screen import note  # late, as above

    host, port = listening(where)
    settings: Json = {
        **event_settings(options.event_store, options.retry_seconds),
        "path": options.path,
        "stateless": options.stateless,
        "allowed_hosts": list(options.allow_host),
        "trusted_proxies": list(options.trusted_proxy),
    }
    if options.token_env is not None:
        settings["auth"] = token_auth(options.token_env)
    elif server.auth is None and host not in LOOPBACK:
        note("warning: anyone who reaches this port can call the tools; --token-env VAR asks for a token")

    if options.stateless and options.state_keys_env is None:
        note(
            "warning: a replica knows only its own questions to clients, unless all have the same keys: "
            "--state-keys-env VAR, or request_state_keys in code"
        )

    def started(base: str) -> None:
        keep_started_objects()
        _announce(server, base + options.path, as_json=options.as_json)

    try:
        server.run_http(host, port, on_started=started, **settings)
    except OSError as error:
        raise cannot_listen(where, error) from None


def _announce(server: ServerRunners, url: str, *, as_json: bool) -> None:
    from toolweave.cli._screen import announce, answer  # late, as above

    tools = len(server.tools.snapshot())
    if as_json:
        from toolweave.cli._render.text import safe_json

        answer(safe_json({"url": url, "name": server.name, "tools": tools}, indent=None))
    else:
        announce(server.name, url, counted(tools, "tool"), "Ctrl-C stops it")


def _install(options: ServeOptions, client: InstallClient) -> ExitCode:
    from toolweave.cli._serve.install import install_command  # late, as above

    server = _server(options)  # raises now, and not in the client, if it cannot be served
    name = options.name or server.name
    words = ["serve", *_arguments(options)]
    environment = _environment(options)
    return install_command(
        client,
        name,
        words,
        environment,
        servers=_started(options),
        only_show=options.show,
        force=options.force,
        as_json=options.as_json,
    )


def _started(options: ServeOptions) -> list[ServerConfig]:
    """Return the servers of the configs that would be served."""
    from toolweave.config import load_config, merge_loaded  # late, as above

    servers = merge_loaded(map(load_config, options.config)).servers
    return [config for name, config in servers.items() if name in (options.server or servers)]


def _arguments(options: ServeOptions) -> list[str]:
    """Return the arguments of the entry; all paths are absolute, as an editor may start it in any directory."""
    if options.name and options.target is None:
        named = ["--name", options.name]
    else:
        named = []
    skills = repeated_option("--skills", _absolute(options.skills))
    if options.openapi is not None:
        return [*_api_arguments(options, options.openapi), *skills, *named]
    if options.target is None:
        configs = repeated_option("--config", _absolute(options.config))
        return [*configs, *repeated_option("--server", options.server), *skills, *named]
    from toolweave.cli._serve.locate import parse_place  # late, as above

    return [str(parse_place(options.target)), *skills]


def _absolute(paths: Iterable[Path]) -> list[str]:
    return [str(path.resolve()) for path in paths]


def _api_arguments(options: ServeOptions, source: str) -> list[str]:
    if not source.startswith(("http://", "https://")):
        source = str(Path(source).resolve())
    words = ["--openapi", source]
    given = {"--base-url": options.base_url, "--auth-env": options.auth_env, "--headers-env": options.headers_env}
    for name, value in given.items():
        if value is not None:
            words += [name, value]
    if options.no_repair:
        words.append("--no-repair")
    return words


def _environment(options: ServeOptions) -> dict[str, str]:
    """Return the environment of the entry, with `PYTHONPATH` for a module of this directory."""
    from importlib.util import find_spec  # late, as above

    from toolweave.cli._serve.locate import parse_place

    if options.target is not None:
        place = parse_place(options.target)
    else:
        place = None
    if place is None or place.file is not None or place.folder is not None:
        return {}
    spec = find_spec(place.module)
    local = spec is not None and spec.origin is not None and Path(spec.origin).is_relative_to(Path.cwd())
    if local:
        return {"PYTHONPATH": str(Path.cwd())}
    return {}


COMMAND = Command(serve, examples=_EXAMPLES)
