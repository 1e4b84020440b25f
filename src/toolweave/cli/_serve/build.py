"""Building the server to serve, from an imported object or from a config of servers. Serves nothing itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from toolweave.cli._serve.locate import ServedObject
from toolweave.errors import ToolweaveError

if TYPE_CHECKING:
    from pathlib import Path

    from toolweave.config import LoadedConfig
    from toolweave.gateway import Gateway
    from toolweave.serve import McpServer


def server_of(found: ServedObject, *, name: str | None, state_keys: Sequence[str] | None = None) -> McpServer:
    """Return the imported server, or build one from the imported object.

    Raises:
        CommandError: It is a server with a name of its own, or its tools cannot be served.
    """
    from toolweave.cli._exit_codes import CommandError  # --help imports this module
    from toolweave.serve import create_mcp_server

    if found.server is not None:
        if name is not None and name != found.server.name:
            raise CommandError(f"--name is for tools without a server; {found.place} is named {found.server.name!r}")
        if state_keys is not None:
            raise CommandError(
                f"{found.place} is a server with options of its own: give it request_state_keys in its code, not "
                "--state-keys-env"
            )
        return found.server
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

    hub = Hub(selection) if wait is None else Hub(selection, wait=wait)
    return composed(hub, name=name or "toolweave", version=VERSION, request_state_keys=state_keys)


def skill_server(
    folders: Sequence[Path],
    server: McpServer | None = None,
    *,
    name: str | None,
    state_keys: Sequence[str] | None = None,
) -> McpServer:
    """Return a server that offers the skills of folders: the given one, or one of its own.

    Raises:
        CommandError: A folder has no skill that can be served, or the server of a file is no `McpServer`.
    """
    from toolweave.cli._exit_codes import CommandError  # --help imports this module
    from toolweave.serve import McpServer, create_mcp_server, skills

    if server is None:
        server = create_mcp_server(name=name or folders[0].resolve().name, request_state_keys=state_keys)
    for folder in folders:
        if not isinstance(server, McpServer):  # pyright: ignore[reportUnnecessaryIsInstance]  # a file has a gateway
            raise CommandError(f"--skills adds to a server of tools; {server.name!r} is a gateway, give one of its own")
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
