"""The next step for an error that ends a command, if its message names none.

Knows the error tree and what the options of the commands are called, nothing of a command.
"""

from __future__ import annotations

import re

from toolweave.cli._exit_codes import CommandError
from toolweave.errors import ConfigError, ErrorKind, RegistryError, ServerError, ToolError

_NETWORK = re.compile(r"ConnectError|\[Errno -?\d+\]")
"""Marks of an error of the network. Words such as "refused" are also in errors about a config."""


def next_step(error: BaseException) -> str | None:
    """Return the next step for an error, or None if its message names it."""
    if isinstance(error, CommandError):
        return error.hint
    notes = "; ".join(getattr(error, "__notes__", ()))
    if notes:
        return notes
    if isinstance(error, RegistryError):
        return _of_registry(error)
    if isinstance(error, (ConfigError, ServerError, ToolError)):
        return _of_network(str(error))
    return None


def _of_network(text: str) -> str | None:
    if _NETWORK.search(text):
        from toolweave.connect._hints import network_hint  # late: --help imports this module's users

        return network_hint(text)
    return None


def _of_registry(error: RegistryError) -> str | None:
    if error.kind is ErrorKind.NOT_FOUND:
        return "check the URL of the registry: --registry URL, or the variable TOOLWEAVE_REGISTRY"
    if error.kind is ErrorKind.NOT_SENT and "try again" not in error.message:
        return (
            "check the network and the proxy, or name a registry that this machine reaches: --registry URL, or the "
            "variable TOOLWEAVE_REGISTRY"
        )
    return None
