"""Server entries for the shared options: from config files, the default locations, or the command line itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolweave.cli._exit_codes import CommandError
from toolweave.cli._options import Target
from toolweave.cli._screen import note
from toolweave.cli._serve.listen import secret_in
from toolweave.cli._trust import require_trust
from toolweave.config import (
    LoadedConfig,
    ServerConfig,
    Timeouts,
    default_config,
    load_config,
    merge_loaded,
    server_config,
)
from toolweave.errors import ConfigError
from toolweave.tools import aliases, expose


async def select(target: Target) -> LoadedConfig:
    """Return the servers of a command as a config of just them; used by every command that starts servers.

    Servers of a file that was discovered in the project start only if that file is trusted: see `require_trust`.

    Raises:
        CommandError: No config or no server was found, the options contradict each other, or a file is not trusted.
        ConfigError: A file cannot be read, a server is unknown, or the one of the command line cannot be right.
    """
    if target.ad_hoc:
        return _timed(await _from_command_line(target), target.timeout)
    if target.header or target.bearer_env:
        raise CommandError("--header and --bearer-env go with --url or --openapi; in a config use `headers` and `auth`")
    if target.config:
        loaded = merge_loaded(map(_loaded, target.config))
    else:
        loaded = default_config()
    if target.server:
        loaded = _selected(loaded, target.server)
    elif not names_in(loaded):
        raise _nothing_to_start(target, loaded)
    if not target.config and not target.trust:
        await require_trust(loaded)
    return _timed(loaded, target.timeout)


def _selected(loaded: LoadedConfig, names: Sequence[str]) -> LoadedConfig:
    try:
        return loaded.select(names)
    except ConfigError as error:
        from toolweave.cli._slips import server_hint  # only a slip needs it

        hint = server_hint(names, names_in(loaded))
        if hint is not None:
            error.add_note(hint)
        raise


def _loaded(path: Path) -> LoadedConfig:
    try:
        return load_config(path)
    except ConfigError as error:
        from toolweave.cli._slips import config_hint  # only a slip needs it

        hint = config_hint(path)
        if hint is not None:
            error.add_note(hint)
        raise


def names_in(loaded: LoadedConfig) -> list[str]:
    """Return the names of all servers of a config that are to start, wrong entries last."""
    return [*loaded.servers, *loaded.errors]


def servers_named_by(tool: str, loaded: LoadedConfig) -> list[str]:
    """Return the servers whose prefix a tool's name starts with; none for a bare name."""
    prefixes: dict[str, tuple[str, ...]] = {name: (*aliases(name, ""), expose(name, "")) for name in names_in(loaded)}
    for name, config in loaded.servers.items():
        if config.tool_prefix:
            prefixes[name] = (*prefixes[name], config.tool_prefix)
    return [name for name, starts in prefixes.items() if tool.startswith(starts)]


def _nothing_to_start(target: Target, loaded: LoadedConfig) -> CommandError:
    if loaded.paths or target.config:
        kept = "".join(f"\n{name}: {loaded.why_disabled(name)}" for name in loaded.disabled)
        where = ", ".join(map(str, loaded.paths))
        return CommandError(f"{where}: no server to start{kept}", hint="toolweave init writes a first mcp.json")
    return CommandError(
        "no config was found: looked here and above, up to the repository's root, for mcp.json, .mcp.json, "
        "[tool.toolweave] in pyproject.toml and your editors' project files, and for your editors' own files",
        hint="toolweave init writes a first mcp.json; or use --config FILE, --url URL, or -- COMMAND ARGS...",
    )


async def _from_command_line(target: Target) -> LoadedConfig:
    if target.config:
        raise CommandError("--config does not go with --url, --openapi or -- COMMAND: leave one out")
    if sum(map(bool, (target.url, target.openapi, target.command))) > 1:
        raise CommandError("--url, --openapi and -- COMMAND exclude each other: leave the others out")
    if target.command and (target.header or target.bearer_env):
        raise CommandError("--header and --bearer-env go with --url or --openapi")
    if len(target.server) > 1:
        raise CommandError("--url, --openapi and -- COMMAND name one server: give --server once")
    if target.openapi:
        return await _api(target, target.openapi)
    entry: Any = list(target.command)
    if target.url:  # as a mapping: a text could also be a command
        entry = {"url": target.url, "headers": dict(map(_header, target.header))}
    name = target.server[0] if target.server else None
    return _alone(server_config(entry, name=name, auth=_credentials(target)))


def _alone(config: ServerConfig) -> LoadedConfig:
    """Return a config of one server; its tools and prompts keep their own names, as no other server has the same."""
    return LoadedConfig(servers={config.name: config.replace(tool_prefix="")})


async def _api(target: Target, source: str) -> LoadedConfig:
    """Return an API as a server of this process, which every command takes like another."""
    from toolweave.cli._serve.api import server_of_api  # for those who name a document
    from toolweave.openapi import openapi_tools

    toolset = openapi_tools(
        source,
        base_url=target.base_url,
        auth=None if target.bearer_env is None else secret_in(target.bearer_env, "--bearer-env"),
        headers=dict(map(_header, target.header)),
    )
    async with toolset:  # so that a document that cannot be had is said at once
        for one in toolset.problems:
            note(f"{one.operation}: left out is the {one.skipped}: {one.reason} (at {one.pointer})")
    name = target.server[0] if target.server else "api"
    return _alone(server_config(server_of_api(toolset, name=name), name=name))


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():  # the line is not repeated: it may hold a token
        raise CommandError("--header: expected 'Name: value'", hint="such as --header 'X-Tenant: acme'")
    return name.strip(), value.strip()


def _credentials(target: Target) -> Any:  # what `server_config` takes
    """Return the token of the line, else for a URL the sign-in that is kept for it, which is used once it is wanted."""
    if target.bearer_env is not None:
        return secret_in(target.bearer_env, "--bearer-env")
    if not target.url or any(_header(line)[0].lower() == "authorization" for line in target.header):
        return None
    from toolweave.oauth import StoredSignIn  # for those who name a URL

    return StoredSignIn(target.url)


def _timed(loaded: LoadedConfig, seconds: float | None) -> LoadedConfig:
    if seconds is None:
        return loaded
    bounds = Timeouts.of(seconds)
    servers = {name: config.replace(timeout=bounds) for name, config in loaded.servers.items()}
    return loaded.replace(servers=servers)
