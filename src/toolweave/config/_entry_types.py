"""Typed dictionaries of one server's entry, for type-checked Python code.

Every key is explained at `ServerConfig`; the loader also reads the dialects of the editors.

==========  ==============================================  =============================
transport   the server                                      use it for
==========  ==============================================  =============================
`stdio`     a child process, JSON lines on its pipes        local programs (npx, uvx, python)
`http`      Streamable HTTP                                 every remote server
`sse`       the HTTP+SSE transport of 2024-11-05            old remote servers; deprecated
`inprocess` a server object in this process                 tests, embedding
==========  ==============================================  =============================
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, Required

# Pydantic, in whose models these may be fields, refuses the class of `typing` before Python 3.12.
if sys.version_info >= (3, 12):  # pragma: no cover
    from typing import TypedDict
else:
    from typing_extensions import TypedDict

McpTransport = Literal["stdio", "http", "sse", "inprocess", "websocket"]
"""The transports an entry can name; `websocket` is an old name of `http`."""


class McpStdioConfig(TypedDict):
    """A local program; `transport` may be left out."""

    transport: NotRequired[Literal["stdio"]]
    command: str
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str]]
    cwd: NotRequired[str]


class McpHttpConfig(TypedDict):
    """A remote server; `transport` may be left out."""

    transport: NotRequired[Literal["http", "sse"]]
    url: str
    headers: NotRequired[dict[str, str]]


class McpConnectionConfig(TypedDict, total=False):
    """The `connection` of a full config; other keys are options of the transport."""

    command: str
    args: list[str]
    env: dict[str, str]
    cwd: str
    url: str
    headers: dict[str, str]


class McpFullConfig(TypedDict, total=False):
    """The full form, which `normalize_config` makes of any other."""

    serverName: str
    transport: Required[McpTransport]
    connection: Required[McpConnectionConfig]
    auth: dict[str, Any]


McpConfig = McpStdioConfig | McpHttpConfig | McpFullConfig | Mapping[str, Any]
"""One server's entry in any shape the loader reads."""
