"""Sign-ins for views: the principal of a server's stored token, its expiry, and what to do. No token is in any."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from toolweave._json_types import Json
from toolweave.cli._exit_codes import CommandError
from toolweave.cli._options import Target
from toolweave.cli._questions import ask_line
from toolweave.cli._screen import note, stderr_console
from toolweave.cli._streams import is_terminal
from toolweave.oauth import (
    BrowserUserAgent,
    DevicePrompt,
    OAuth,
    SignInStatus,
    StoredSignIn,
    default_token_store,
    resource_of,
)
from toolweave.oauth._sign_in_status import sign_in_text
from toolweave.oauth.fetch import FetchFailed, GuardedFetch
from toolweave.oauth.metadata import protected_resource_urls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolweave.config import LoadedConfig, ServerConfig
    from toolweave.oauth import TokenRecord, TokenStore


class TerminalUserAgent(BrowserUserAgent):
    """A `UserAgent` for the person at this terminal.

    Args:
        browser: Whether a browser is opened; None where there seems to be one.
    """

    def __init__(self, *, browser: bool | None = None) -> None:
        super().__init__(browser=browser, show=note, read_line=_pasted if is_terminal(sys.stdin) else None)

    async def show_device_code(self, prompt: DevicePrompt, *, server: str) -> None:
        """Show a code and the page to type it into; on a terminal the code is in a frame."""
        await super().show_device_code(prompt, server=server)
        console = stderr_console()
        if console is not None:
            from rich.panel import Panel  # slow to import, and only a terminal has frames
            from rich.text import Text

            from toolweave.cli._render.text import clip, safe_text

            console.print(Panel.fit(Text(clip(safe_text(prompt.user_code), 40), style="bold"), padding=(0, 3)))


async def _pasted() -> str | None:
    return await ask_line("")


async def server_named(name: str, target: Target) -> ServerConfig:
    """Return the server of the config with this name, or the one at this URL.

    Raises:
        CommandError: It is not reached over HTTP, or as each caller of a gateway, or its file is not trusted.
        ConfigError: The server is unknown, or its entry is wrong.
    """
    from toolweave.cli._targets import select  # late: --help imports this module's users

    if "://" in name:
        at = Target(url=name)
    else:
        at = Target(config=target.config, server=(name,), trust=target.trust)
    selection = await select(at)
    for error in selection.errors.values():
        raise error
    (config,) = selection.servers.values()
    if not config.url:
        raise CommandError(f"server {config.name!r} is a program; signing in is for servers that have a URL")
    if config.signs_in_callers:
        raise CommandError(f"server {config.name!r} is called as each caller of a gateway, who signs in through that")
    return config


def settings_of(config: ServerConfig) -> OAuth:
    """Return the settings of a server's sign-in, by default those in which all is discovered.

    Raises:
        CommandError: Its config authorizes it in another way.
    """
    if config.auth is None or isinstance(config.auth.provider, StoredSignIn):
        return OAuth()
    if config.auth.oauth is None:
        raise CommandError(
            f"the config of server {config.name!r} gives its credentials by `auth` of type {config.auth.type!r}",
            hint='with `"auth": "oauth"` instead, it is signed in to',
        )
    return config.auth.oauth


async def needs_no_sign_in(config: ServerConfig, settings: OAuth) -> bool:
    """Return whether a server that names no authorization server serves a client that has no token.

    A server that names one may serve some requests without a token and refuse others, so it is not tried.
    """
    from toolweave.connect import McpConnection  # late: slower to import than the other commands allow
    from toolweave.errors import ToolweaveError

    if settings.issuer or settings.metadata_url:
        return False
    fetch = GuardedFetch((config.url,))
    try:
        for url in protected_resource_urls(config.url):
            answer = await fetch.get(url, "its metadata")
            if answer.status == 200 or answer.status >= 500:
                return False
        async with McpConnection(config.replace(auth=None)):
            return True
    except (FetchFailed, ToolweaveError):
        return False


def not_needed_json(config: ServerConfig) -> Json:
    """Return the sign-in to a server that asks for none, with the members of `record_json`."""
    return {
        "resource": resource_of(config.url),
        "issuer": None,
        "client": None,
        "principal": None,
        "scopes": [],
        "state": "not needed",
        "expires_at": None,
        "renewable": False,
    }


def store_of(settings: OAuth) -> TokenStore:
    """Return the store of a server's tokens."""
    return settings.store or default_token_store()


async def sign_in_json(config: ServerConfig) -> Json | None:
    """Return the sign-in to a server as JSON; None where its config does not ask for one.

    A store that cannot be read is a `problem` of that server.
    """
    from toolweave.errors import StoreError  # late, as above

    if config.auth is None or config.auth.oauth is None:
        return None
    settings = config.auth.oauth
    try:
        found = await store_of(settings).records(resource=resource_of(config.url), principal=settings.principal)
    except StoreError as exc:
        return {"state": "unknown", "problem": str(exc), "expires_at": None, "issuer": None, "principal": None}
    if not found:
        return {"state": "none", "problem": None, "expires_at": None, "issuer": None, "principal": None}
    row = record_json(found[0])
    return {name: row[name] for name in ("state", "expires_at", "issuer", "principal")} | {"problem": None}


def record_json(record: TokenRecord) -> Json:
    """Return a record as JSON, without its token."""
    status = SignInStatus.of(record)
    return {name: getattr(status, name) for name in status.__struct_fields__} | {"scopes": list(status.scopes)}


def lasting(row: Json) -> str:
    """Return the state of a sign-in in words, with its end."""
    match row["state"]:
        case "unknown":
            return f"not known: {row['problem']}"
        case "none":
            return "not signed in"
        case state:
            return sign_in_text(state, row["expires_at"])


def configured_names(loaded: LoadedConfig | None) -> dict[str, list[str]]:
    """Return the names of the configured servers by the resource that their tokens are for."""
    found: dict[str, list[str]] = {}
    servers: Iterable[ServerConfig] = () if loaded is None else loaded.servers.values()
    for config in servers:
        if config.url:
            found.setdefault(resource_of(config.url), []).append(config.name)
    return found
