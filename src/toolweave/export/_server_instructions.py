"""The instructions of servers, for the system prompt of a framework's agent."""

from __future__ import annotations

from toolweave.tools import ToolSource
from toolweave.tools._instructions import instructions_of, joined_instructions
from toolweave.tools.sources import borrowed_toolset


def server_instructions(source: ToolSource) -> str:
    """Return the instructions of the servers of a toolset to a model, or `""`.

    Each is quoted under its server's name and shortened to 8,000 characters; those of servers without a tool in the
    toolset are left out. It is unchecked text of servers: give it to a model only where you trust them.

    Args:
        source: A toolset, tools or functions, as for `as_toolset`: a connection, a hub, or a toolset around them.
    """
    toolset = borrowed_toolset(source)
    servers = {spec.server for spec in toolset.snapshot()}
    texts = [(name, text) for name, text in instructions_of(toolset) if name in servers]
    return joined_instructions(texts) or ""
