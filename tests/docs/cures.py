"""Where the cure of each error is: for the modules whose messages it raises, what went wrong and the page to read.

`docs/messages.md` is made of this table and of the messages in the source; `scripts/docs` writes it.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CODES", "CURES", "Code", "Cure"]


class Cure(NamedTuple):
    """What messages of some modules have in common.

    Attributes:
        title: The heading of their table.
        text: What went wrong and where the cure is, as Markdown.
        modules: The modules that make the messages, by prefixes of their names.
    """

    title: str
    text: str
    modules: tuple[str, ...]


CURES = (
    Cure(
        "A server does not start",
        "The program of a server was not found, ended, or never answered. Run `toolweave doctor`, and see [Why does my "
        "server not start?](troubleshooting.md)",
        (
            "connect._stdio",
            "connect._diagnosis",
            "connect._hints",
            "connect._transports",
            "connect._restart",
            "connect._supervisor",
            "connect._connecting",
            "connect._report",
            "connect._open_files",
        ),
    ),
    Cure(
        "A server cannot be reached over HTTP",
        "The address, the proxy, TLS or the server's response is wrong. See [A server cannot be "
        "reached](troubleshooting.md#a-server-cannot-be-reached) and [HTTP](connections.md#http).",
        ("connect._wire", "connect._http_errors", "http"),
    ),
    Cure(
        "A request to a server fails",
        "The server refused the request, broke the connection, or sent something that is not MCP. See "
        "[Connections](connections.md) for what is sent again, [timeouts](connections.md#timeouts), and "
        "[Callbacks](callbacks.md) for requests of the server.",
        ("connect", "protocol"),
    ),
    Cure(
        "Config files and entries",
        "A file or an entry has a value that is not accepted. [Settings](settings.md) lists every setting, [Use my "
        "editor's config](configs.md) the files, and `toolweave config show` prints how each is read.",
        ("config", "_files", "_json", "_text", "_masking"),
    ),
    Cure(
        "Sign in to a server",
        "A sign-in is needed, or an authorization server refused it. See [When it fails](sign-in.md#when-it-fails) and "
        "[its settings](sign-in.md#settings).",
        ("oauth",),
    ),
    Cure(
        "Stored tokens",
        "The place where tokens are stored cannot be used. See [Where tokens are "
        "stored](sign-in.md#where-tokens-are-stored).",
        ("oauth._stores",),
    ),
    Cure(
        "Several servers at once",
        "No server offers this, or two offer the same. See [Use many servers](tutorial/2-many-servers.md) "
        "and [servers of a hub](connections.md#servers-of-a-hub-while-it-is-open).",
        ("hub",),
    ),
    Cure(
        "Skills",
        "A skill or one of its files is wrong. See [Skills](skills.md).",
        ("connect._skills", "hub._skill_tools", "gateway._features.skills", "serve._offers.skills"),
    ),
    Cure(
        "Tools, arguments and results",
        "A tool has no such name, its arguments do not fit, or its result cannot be used. See [A call "
        "fails](troubleshooting.md#a-call-fails), [what is repaired](forgiveness.md) and [Read results](results.md).",
        ("tools", "_repairs", "_value", "_option_checks"),
    ),
    Cure(
        "Schemas",
        "A JSON Schema cannot be made from a function, or cannot be used. See [Names and schemas](schemas.md).",
        ("schema", "providers._strict", "providers._lowering"),
    ),
    Cure(
        "Rename, hide and bind tools",
        "A rule for tools is wrong. See [Rename, hide and bind tools](shaping.md).",
        (
            "definitions._rules",
            "definitions._schema_rules",
            "definitions._argument_rules",
            "definitions._shaped_toolset",
        ),
    ),
    Cure(
        "Pins and scans",
        "A definition differs from its pin, or looks like an attack. See [Trust, pin and confine servers](trust.md).",
        ("definitions",),
    ),
    Cure(
        "Web APIs as tools",
        "An OpenAPI document, or a call of its API, cannot be used. See [Turn a web API into tools](openapi.md).",
        ("openapi",),
    ),
    Cure(
        "Published servers and bundles",
        "A registry, an entry of it or a bundle cannot be used. See [Find and install servers](registry.md).",
        ("install", "cli._install"),
    ),
    Cure(
        "Models",
        "A model has no key, or its provider refused the request. See [When a model cannot "
        "answer](models.md#when-a-model-cannot-answer) and [its settings](models.md#settings).",
        ("models", "providers"),
    ),
    Cure(
        "Agents and their runs",
        "An option of an agent is wrong, or a run cannot continue. See [Run an agent](agents.md) and [how a run "
        "ends](agents.md#how-a-run-ends).",
        ("agent", "compose", "sync"),
    ),
    Cure(
        "Submitted runs and workers",
        "A run cannot be submitted, found or continued by a worker. See [Run on many machines](scale.md).",
        (
            "jobs",
            "agent._workers.submit",
            "agent._workers.worker",
            "agent._stored.store_journal",
            "agent._stored.journal_writes",
            "agent._stored.session_queue",
            "agent._workers.spawn",
            "agent._stored.deletion",
            "agent._stored.durable",
            "cli._worker",
        ),
    ),
    Cure(
        "Stores",
        "A store cannot be opened, or cannot keep or read a document. See [Settings of the "
        "server](scale.md#settings-of-the-server) for Redis and [Runs that outlive their "
        "process](agents.md#runs-that-outlive-their-process) for files.",
        ("state",),
    ),
    Cure(
        "Agents of other frameworks",
        "A framework's agent or tools cannot be used in this way. See [In other frameworks](exports.md) and [Other "
        "frameworks' agents, durable](durability.md).",
        ("export", "durability"),
    ),
    Cure(
        "Your own server",
        "An option of your server is wrong, or a client's request was refused. See [Serve tools](serve.md).",
        ("serve",),
    ),
    Cure(
        "Your own server over HTTP",
        "A request has wrong headers, body or size, or its session is gone. See [Over HTTP](serve.md#over-http) and "
        "[its limits](settings.md#a-served-endpoint).",
        ("serve._http", "serve._duplex"),
    ),
    Cure(
        "Tokens that clients send",
        "A token was refused, or the authorization is not set up. See [Require tokens](protected-servers.md).",
        ("serve._auth", "serve._oauth_server"),
    ),
    Cure(
        "Tasks of a server",
        "A call became a task that is gone, full or not allowed. See [Tasks](serve.md#tasks).",
        ("serve._tasks",),
    ),
    Cure(
        "Folders as servers",
        "A file in a served folder cannot be used. See [Serve a folder](folders.md).",
        ("serve._folder",),
    ),
    Cure(
        "Rules, limits and audit log",
        "Middleware is set up wrongly, or refused a call. See [Rules, limits, audit log](middleware.md).",
        ("middleware",),
    ),
    Cure(
        "Gateways",
        "A gateway cannot start, or cannot answer for its servers. See [Run a gateway](gateway.md) and [when a server "
        "fails](gateway.md#when-a-server-fails).",
        ("gateway",),
    ),
    Cure(
        "Callers of a gateway and their sign-ins",
        "A caller is unknown, or has not signed in to the server that it calls. See [Who calls, and as "
        "whom](gateway.md#who-calls-and-as-whom).",
        ("gateway._callers", "gateway._relay.caller", "gateway._sign_in", "gateway._admin.token"),
    ),
    Cure(
        "The console",
        "A page or an action of the console was refused. See [The console](console.md).",
        ("gateway._admin.api", "gateway._console", "gateway._admin.managed"),
    ),
    Cure(
        "Replicas of a gateway",
        "Replicas do not share a store or a key, or one of them is gone. See [Replicas](scale.md#replicas).",
        (
            "gateway._replicas",
            "gateway._relay.rounds_elsewhere",
            "gateway._sign_in.pages_elsewhere",
            "gateway._tasks.places",
            "gateway._relay.sealed_state",
        ),
    ),
    Cure(
        "Components",
        "A component cannot be copied into the project, or merged. See [Copy components](components.md).",
        ("components",),
    ),
    Cure(
        "Tests and recorded sessions",
        "A test server, a fault or a recording is used wrongly. See [Test my agent against bad servers](testing.md).",
        ("testing",),
    ),
    Cure(
        "The command",
        "An option, an argument or a file of the command is wrong. See [All commands](cli.md), or add `--help`.",
        ("cli", "errors", "__main__", "_lazy"),
    ),
    Cure(
        "The command `toolweave chat`",
        "The chat cannot use this model or command. See [Talk to your tools](chat.md).",
        ("cli._chat",),
    ),
    Cure(
        "The commands `toolweave serve` and `toolweave gateway`",
        "What the command should serve, or where, is wrong. See [On the terminal](serve.md#on-the-terminal), [Give my "
        "editor these servers](editors.md) and [A gateway for my team](howto-team-gateway.md).",
        ("cli._serve",),
    ),
)


class Code(NamedTuple):
    """A code in an error: what it means and what to do, as Markdown."""

    meaning: str
    cure: str


CODES: dict[str, Code] = {
    "access_denied": Code("the person, or the provider, said no", "sign in again; ask for fewer `scopes`"),
    "authorization_pending": Code("nobody has entered the code yet", "open the page of the sign-in"),
    "expired_token": Code("the code of a device was not entered in time", "sign in again"),
    "insufficient_scope": Code("the token lacks a scope", "sign in with the scopes that the error names, by `--scope`"),
    "invalid_client": Code(
        "the server does not know the client, or its secret is wrong",
        "register a client at the provider; set `client_id` and `client_secret`",
    ),
    "invalid_grant": Code("the code or the refresh token is used up or revoked", "sign in again"),
    "invalid_request": Code("the authorization server cannot read the request", "check `metadata_url` and `issuer`"),
    "invalid_scope": Code("it does not have one of the scopes", "set `scopes` to those that the server lists"),
    "invalid_target": Code("it does not know the MCP server's address", "check the `url` of the entry"),
    "invalid_token": Code("the MCP server refuses the token", "sign in again; at your server, check the audience"),
    "server_error": Code("the authorization server failed", "try again later"),
    "slow_down": Code("it was asked too often", "wait; the interval is raised"),
    "temporarily_unavailable": Code("the authorization server is busy", "try again later"),
    "unauthorized_client": Code("the client may not use this grant", "set another `grant` or allow it there"),
    "unsupported_grant_type": Code("the server does not have this grant", "set another `grant`"),
    "unsupported_response_type": Code("the server does not give codes", "use another authorization server"),
    "use_dpop_nonce": Code("the proof lacks the server's nonce", "nothing: it is sent again"),
}
"""Codes of OAuth that an authorization server sends, and that a server of ours does."""
