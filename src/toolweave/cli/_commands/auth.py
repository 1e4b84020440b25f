"""`toolweave auth`: sign in to servers, list the sign-ins, and sign out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from toolweave._json_types import Json, without_none
from toolweave.cli._command import Command, CommandGroup, Option, Positional
from toolweave.cli._exit_codes import CommandError, ExitCode
from toolweave.cli._options import ConfigOption, JsonOption, Target, VerboseOption, complete_servers
from toolweave.cli._runner import run
from toolweave.cli._screen import answer, answer_json, note, show

if TYPE_CHECKING:
    from toolweave.config import ServerConfig
    from toolweave.oauth import OAuth, SignedOut, TokenRecord

_HELP = "Sign in to servers, list the sign-ins, and sign out."
_EXAMPLES = {
    "login": """
toolweave auth login github
toolweave auth login --url https://example.org/mcp --scope notes:write
toolweave auth login github --device
toolweave auth login github --no-browser --principal ann
""",
    "list": """
toolweave auth list
toolweave auth list --json
""",
    "logout": """
toolweave auth logout github
toolweave auth logout --all
""",
}
_LOGIN_HINT = "toolweave auth login SERVER, or toolweave auth login --url URL"

PrincipalOption = Annotated[
    str | None, Option("--principal", metavar="NAME", help="On behalf of this user; their tokens are kept apart.")
]
UrlOption = Annotated[
    str | None,
    Option("--url", metavar="URL", help="The URL of one HTTP server instead of SERVER, as in other commands."),
]
TrustOption = Annotated[bool, Option("--trust", help="Use this folder's config files without asking, this once.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInOptions:
    """The way to sign in; each attribute is an option."""

    scope: Annotated[
        tuple[str, ...],
        Option(
            "--scope",
            "--scopes",
            metavar="SCOPE",
            help="Also request this scope; may be repeated, or be several words.",
        ),
    ] = ()
    device: Annotated[bool, Option("--device", help="Show a code to type on another device.")] = False
    no_browser: Annotated[bool, Option("--no-browser", help="Open no browser: show the address.")] = False
    principal: PrincipalOption = None
    url: UrlOption = None
    timeout: Annotated[
        float | None, Option("--timeout", metavar="SECONDS", minimum=1, help="How long you have; 300 by default.")
    ] = None
    config: ConfigOption = ()
    trust: TrustOption = False
    verbose: VerboseOption = False


def login(
    options: SignInOptions,
    server: Annotated[
        str | None, Positional("SERVER", help="A server of the config, or the URL of one.", complete=complete_servers)
    ] = None,
    as_json: JsonOption = False,
) -> ExitCode:
    """Sign in to a server, in the browser or with a code.

    The token is kept in the keyring of this machine, else in a file that only you can read, and renewed when it is
    used. It is never shown.

    If a server requires no token, nothing is done, and that is not an error.

    If no browser can be opened, the command prints the address to open. Set TOOLWEAVE_NO_BROWSER to open none.
    """

    async def body() -> ExitCode:
        from toolweave.cli._sign_in import lasting, needs_no_sign_in, not_needed_json, record_json, server_named
        from toolweave.errors import AuthRequiredError  # imports are late: --help imports this module

        target = Target(config=options.config, trust=options.trust)
        named = _named(server, options.url)
        if named is None:
            raise CommandError("name a server of the config, or give its URL", hint=_LOGIN_HINT)
        config = await server_named(named, target)
        settings = _settings(config, options)
        try:
            record = await _record(config, settings, options)
        except AuthRequiredError:
            if not await needs_no_sign_in(config, settings):
                raise
            if as_json:
                answer_json({"server": config.name, **not_needed_json(config)})
            else:
                answer(f"server {config.name!r} asks for no token: no sign-in is needed")
            return ExitCode.OK
        row = {"server": config.name, **record_json(record)}
        if as_json:
            answer_json(row)
        else:
            answer(f"server {config.name!r}: {lasting(row)}\n{_details(row)}")
        if config.auth is None or config.auth.oauth is None:
            note(f'to use it in a config, add this to the entry of {config.name!r}: "auth": "oauth"')
        return ExitCode.OK

    return run(body, verbose=options.verbose)


async def _record(config: ServerConfig, settings: OAuth, options: SignInOptions) -> TokenRecord:
    """Sign in, and return the record that is kept.

    Raises:
        AuthRequiredError: The sign-in is refused or not possible.
    """
    from toolweave.cli._sign_in import TerminalUserAgent, store_of  # late, as above
    from toolweave.oauth import sign_in

    browser = False if options.no_browser else None
    return await sign_in(
        settings,
        config.url,
        server=config.name,
        store=store_of(settings),
        user_agent=settings.user_agent or TerminalUserAgent(browser=browser),
        scopes=[scope for words in options.scope for scope in words.replace(",", " ").split()],
        revision=config.protocol,
    )


def _named(server: str | None, url: str | None) -> str | None:
    """Return the server that a command is for: a name of the config, or a URL."""
    if url is None:
        return server
    if server is not None:
        raise CommandError("SERVER and --url exclude each other")
    if "://" not in url:
        raise CommandError("the value of --url is not a URL", hint="give it whole, such as https://example.org/mcp")
    return url


def _settings(config: Any, options: SignInOptions) -> OAuth:  # a ServerConfig, imported late
    from toolweave.cli._sign_in import settings_of  # late, as above

    given = {
        "grant": "device_code" if options.device else None,
        "principal": options.principal,
        "timeout": options.timeout,
    }
    changes = without_none(given)
    return settings_of(config).replace(**changes)


def _details(row: Json) -> str:
    lines = [("resource", row["resource"]), ("issuer", row["issuer"]), ("principal", row["principal"])]
    lines.append(("scopes", " ".join(row["scopes"])))
    return "\n".join(f"  {name}: {text}" for name, text in lines if text)


def list_sign_ins(
    principal: PrincipalOption = None, config: ConfigOption = (), as_json: JsonOption = False
) -> ExitCode:
    """List the stored sign-ins: server, principal and expiry.

    No token is shown, and none is renewed.
    """

    async def body() -> ExitCode:
        from toolweave.cli._render.views import table  # late, as above
        from toolweave.cli._sign_in import configured_names, lasting, record_json
        from toolweave.oauth import default_token_store

        names = configured_names(_loaded(config))
        rows: list[Json] = [
            {"servers": names.get(record.key.resource, []), **record_json(record)}
            for record in await default_token_store().records(principal=principal)
        ]
        if as_json:
            answer_json({"sign_ins": rows})
        elif not rows:
            answer("there are no sign-ins at any server")
        else:
            cells = [
                (
                    ", ".join(row["servers"]) or row["resource"],
                    lasting(row),
                    row["principal"],
                    " ".join(row["scopes"]),
                    row["issuer"],
                )
                for row in rows
            ]
            show(table(["server", "state", "principal", "scopes", "issuer"], cells))
        return ExitCode.OK

    return run(body)


def logout(
    server: Annotated[
        str | None, Positional("SERVER", help="A server of the config, or the URL of one.", complete=complete_servers)
    ] = None,
    everything: Annotated[bool, Option("--all", help="Sign out of every server.")] = False,
    principal: PrincipalOption = None,
    url: UrlOption = None,
    config: ConfigOption = (),
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> ExitCode:
    """Sign out of a server: revoke its tokens if the issuer supports that, and delete them in any case."""

    async def body() -> ExitCode:
        named = _named(server, url)
        if (named is None) != everything:
            raise CommandError("name one server, or say --all")
        done: list[SignedOut] = []
        for settings, at, name in await _signed_in(named, principal, Target(config=config, trust=trust)):
            from toolweave.cli._sign_in import store_of  # late, as above
            from toolweave.oauth import sign_out

            done += await sign_out(settings, at, server=name, store=store_of(settings))
        if as_json:
            answer_json({"signed_out": list(map(_signed_out_json, done))})
        else:
            answer("\n".join(map(_signed_out_text, done)) or "there were no sign-ins")
        return ExitCode.OK

    return run(body)


async def _signed_in(server: str | None, principal: str | None, target: Target) -> list[tuple[OAuth, str, str]]:
    """Return the settings, the URL and the name of each server to sign out of."""
    from toolweave.cli._sign_in import server_named, settings_of  # late, as above
    from toolweave.oauth import OAuth, default_token_store

    if server is not None:
        config = await server_named(server, target)
        settings = settings_of(config)
        return [(settings if principal is None else settings.replace(principal=principal), config.url, config.name)]
    records = await default_token_store().records(principal=principal)
    kept = dict.fromkeys((record.key.resource, record.key.principal) for record in records)
    return [(OAuth(principal=whose), resource, resource) for resource, whose in kept]


def _loaded(config: ConfigOption) -> Any:  # a LoadedConfig, or None: names are of use, not needed
    from toolweave.config import default_config, load_config, merge_loaded  # late, as above
    from toolweave.errors import ConfigError

    if config:
        return merge_loaded(map(load_config, config))
    try:
        return default_config()
    except ConfigError:
        return None


def _signed_out_json(done: SignedOut) -> Json:
    key = done.key
    return {
        "resource": key.resource,
        "issuer": key.issuer,
        "principal": key.principal,
        "revoked": done.revoked,
        "problem": done.problem or None,
    }


def _signed_out_text(done: SignedOut) -> str:
    if done.key.principal:
        whose = f" as {done.key.principal}"
    else:
        whose = ""
    if done.revoked:
        there = "revoked"
    else:
        there = "not revoked" + (f": {done.problem}" if done.problem else "")
    return f"signed out of {done.key.resource}{whose}; at {done.key.issuer} {there}"


COMMAND = CommandGroup(
    _HELP,
    {
        "login": Command(login, examples=_EXAMPLES["login"]),
        "list": Command(list_sign_ins, examples=_EXAMPLES["list"]),
        "logout": Command(logout, examples=_EXAMPLES["logout"]),
    },
)
