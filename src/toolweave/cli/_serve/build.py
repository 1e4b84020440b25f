"""Building the server to serve, from an imported object or from a config of servers. Serves nothing itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING

from toolweave.cli._serve.api import server_of_api
from toolweave.cli._serve.kinds import ServedObject
from toolweave.errors import ToolweaveError

if TYPE_CHECKING:
    from pathlib import Path

    from toolweave.config import LoadedConfig
    from toolweave.gateway import Gateway
    from toolweave.serve import McpServer


def server_of(found: ServedObject, *, name: str | None, state_keys: Sequence[str] | None = None) -> McpServer | Gateway:
    """Return the imported server, or build one from the imported object.

    A server object of another library is served behind a gateway, so that clients of every revision can use it.

    Raises:
        CommandError: It is a server that has a name already, or its tools cannot be served.
    """
    from toolweave.cli._exit_codes import CommandError  # --help imports this module
    from toolweave.serve import create_mcp_server

    if found.server is not None:
        if name is not None and name != found.server.name:
            raise CommandError(f"--name is for tools without a server; {found.place} is named {found.server.name!r}")
        if state_keys is not None:
            raise CommandError(
                f"{found.place} is a server with its own options: give it request_state_keys in its code, not "
                "--state-keys-env"
            )
        return found.server
    if found.sdk_server is not None:
        return _sdk_server(found, name=name, state_keys=state_keys)
    if found.api is not None:
        return server_of_api(found.api, name=name or found.place.name, state_keys=state_keys)
    try:
        return create_mcp_server(
            name=name or found.place.name,
            version=found.version,
            tools=found.tools,
            agents=found.agents,
            request_state_keys=state_keys,
            folder=found.folder,
        )
    except (ToolweaveError, TypeError) as error:
        raise CommandError(f"{found.place}: {error}") from None


def _sdk_server(found: ServedObject, *, name: str | None, state_keys: Sequence[str] | None) -> Gateway:
    from toolweave.cli._exit_codes import CommandError  # --help imports this module
    from toolweave.compose import hub_server as composed
    from toolweave.hub import Hub

    try:
        import_module("toolweave.connect._sdk")
    except ImportError as error:
        raise CommandError(
            f"{found.place}: server objects of the official SDK and of FastMCP need the SDK in version 2 ({error})",
            hint="pip install 'toolweave[sdk]', or serve it with its own command behind a gateway: toolweave gateway",
        ) from None
    server = found.sdk_server
    own_name = getattr(server, "name", None)
    version = getattr(server, "version", None)
    hub = Hub({"mcpServers": {"served": {"server": server, "tool_prefix": ""}}})
    return composed(
        hub,
        name=name or (own_name if isinstance(own_name, str) and own_name else found.place.name),
        version=version if isinstance(version, str) and version else found.version,
        request_state_keys=state_keys,
    )


def hub_server(
    selection: LoadedConfig, *, name: str | None, wait: float | None, state_keys: Sequence[str] | None = None
) -> Gateway:
    """Return one server with the tools, resources and prompts of many. It starts them when it is served.

    `wait` is the maximum number of seconds that clients wait for slow servers; None waits for responsive ones. The
    others are added later as list changes. A server that fails does not affect the others.
    """
    from toolweave.compose import hub_server as composed
    from toolweave.hub import Hub
    from toolweave.version import VERSION

    if wait is None:
        hub = Hub(selection)
    else:
        hub = Hub(selection, wait=wait)
    return composed(hub, name=name or "toolweave", version=VERSION, request_state_keys=state_keys)


def skill_server(
    folders: Sequence[Path],
    server: McpServer | Gateway | None = None,
    *,
    name: str | None,
    state_keys: Sequence[str] | None = None,
) -> McpServer | Gateway:
    """Return a server that offers the skills of folders: the given one, or a new one.

    Raises:
        CommandError: A folder has no skill that can be served, or the server of a file is no `McpServer`.
    """
    from toolweave.cli._exit_codes import CommandError  # --help imports this module
    from toolweave.serve import McpServer, create_mcp_server, skills

    if server is None:
        server = create_mcp_server(name=name or folders[0].resolve().name, request_state_keys=state_keys)
    for folder in folders:
        if not isinstance(server, McpServer):
            raise CommandError(
                f"--skills adds to a server of tools; {server.name!r} is a gateway, serve them separately"
            )
        try:
            server.resources.add(skills(folder))
        except (OSError, ValueError) as error:
            raise CommandError(f"--skills: {error}") from None
    return server


@contextmanager
def only_protocol_on_stdout() -> Generator[None]:
    """Redirect standard output to standard error during the block, for Python and native code."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
