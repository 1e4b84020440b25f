"""Persistence of the toolsets of a service: a server that cannot be reached is tried again until the service ends."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from toolweave.errors import AuthRequiredError, ConfigError
from toolweave.tools._wrappers import WrapperToolset
from toolweave.tools.toolset import Toolset

__all__ = ["Persistent", "keep_trying", "needs_person"]


@runtime_checkable
class Persistent(Protocol):
    """A toolset with servers that it may give up, such as a hub."""

    async def keep_trying(self) -> None:
        """Give no server up from now on."""
        ...


def needs_person(error: Exception | None) -> bool:
    """Whether another attempt is in vain until a person has signed in, or has corrected a setting."""
    return isinstance(error, AuthRequiredError | ConfigError)


async def keep_trying(toolset: Toolset) -> None:
    """Let a toolset give no server up from now on, and those that it wraps."""
    if isinstance(toolset, Persistent):
        await toolset.keep_trying()
    if isinstance(toolset, WrapperToolset):
        for inner in toolset.wrapped:
            await keep_trying(inner)
