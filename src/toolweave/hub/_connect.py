"""The function that makes a hub."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from toolweave.connect import Callbacks
from toolweave.connect._client_features.callbacks import NO_CALLBACKS
from toolweave.connect._connecting import Connecting
from toolweave.hub._hub import Hub
from toolweave.hub._starting import Wait


def connect_mcp_servers(
    source: Any,
    *,
    on_error: Literal["skip", "raise"] = "skip",
    wait: Wait = "alive",
    names: Iterable[str] | None = None,
    callbacks: Callbacks = NO_CALLBACKS,
    patience: float = 5.0,
) -> Connecting[Hub]:
    """Connect to many MCP servers at once: `await` it, or `async with` it.

        async with connect_mcp_servers("mcp.json") as hub:
            result = await hub.execute("notes_search", {"query": "plants"})

    Args:
        source: A config file of any editor, a mapping of any shape, or a `LoadedConfig`.
        on_error: `"skip"` keeps failures in `hub.errors`; `"raise"` raises an `ExceptionGroup` and closes the others.
        wait: `"alive"` until every server with signs of life is ready or has failed, however slowly; `"all"` until
            every server is ready or has failed, `"any"` until one is ready, or a maximum of seconds. The tools of
            later servers arrive as a change.
        names: Only these servers; a name that is not in the config, or is switched off there, is an error.
        callbacks: Handlers for the servers' requests to this client; each request names its server.
        patience: Seconds without output, an answer or CPU time of its process after which a server shows no life.

    Raises:
        ValueError: An argument is wrong. Awaiting raises `ConfigError` for a file that cannot be read.
    """
    if names is None or isinstance(names, str):
        chosen = names
    else:
        chosen = tuple(names)
    return Connecting(
        lambda: Hub(source, on_error=on_error, wait=wait, names=chosen, callbacks=callbacks, patience=patience)
    )
