"""Changes of a config: which servers they concern, and when a file has changed. Applies nothing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
import msgspec

from toolweave.config import ServerConfig
from toolweave.gateway._config.config import SECTION, GatewayConfig

_log = logging.getLogger("toolweave.gateway")

_POLL_SECONDS = 1.0
AT_START = (
    *("name", "title", "instructions", "url", "rest", "ui", "server_card", "redis", "runs"),
    *("slow_call_seconds", "task_seconds", "event_store", "retry_seconds"),
)
"""The settings of the section `gateway` that are read once, since the gateway and its app are made with them."""

ConfigStamp: TypeAlias = "tuple[int, int, int] | None"
"""The time of a file's last change, its size and its inode; None for one that is not there."""


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """The difference between the servers of two configs, and the outcome of applying it.

    Attributes:
        added: The servers that are new.
        changed: The servers with other settings.
        removed: The servers that are gone.
        unchanged: The servers that keep their connections.
        error: The reason why the change was refused, and everything stays; or None.
        needs_confirmation: Whether the change was refused because it loses most of the servers, or the
            rules, in use. `reload` applies it if it is confirmed.
        failed: The new and changed servers that could not be connected, each with the reason; of a changed one the old
            connection stays in use.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    error: str | None = None
    needs_confirmation: bool = False
    failed: Mapping[str, str] = {}


def compare(before: Mapping[str, ServerConfig], after: Mapping[str, ServerConfig]) -> ConfigChange:
    """Return the difference between the servers of two configs.

    Two settings are the same when their canonical forms are, in any dialect, order of keys or file.
    """
    kept = list(filter(before.__contains__, after))
    return ConfigChange(
        added=tuple(name for name in after if name not in before),
        changed=tuple(name for name in kept if after[name] != before[name]),
        removed=tuple(name for name in before if name not in after),
        unchanged=tuple(name for name in kept if after[name] == before[name]),
    )


def warn_of_restart(before: GatewayConfig, after: GatewayConfig) -> None:
    """Log the changed settings that a gateway reads at its start alone."""
    changed = [f"'{SECTION}.{name}'" for name in AT_START if getattr(before, name) != getattr(after, name)]
    if changed:
        _log.warning("%s changed in the config: restart the gateway to apply it", ", ".join(changed))


async def when_changed(
    paths: Sequence[Path], known: Sequence[ConfigStamp], then: Callable[[], Awaitable[object]]
) -> None:
    """Call `then` each time a file has changed since it was `known` and stayed as it is for a second, until cancelled.

    Files are looked at once a second, not watched: that also sees mounted config maps, whose links change and not they
    themselves, network drives and editors that replace the file by a new one.
    """
    seen = acted = tuple(known)
    while True:
        await anyio.sleep(_POLL_SECONDS)
        now = await anyio.to_thread.run_sync(file_stamps, paths)
        if now == seen and now != acted:
            acted = now
            await then()
        seen = now


def file_stamps(paths: Sequence[Path]) -> tuple[ConfigStamp, ...]:
    """Return the stamps that differ when a file has changed."""
    return tuple(map(_stamp, paths))


def _stamp(path: Path) -> ConfigStamp:
    try:
        found = path.stat()
    except OSError:
        return None  # it is missing now; the next file counts
    return found.st_mtime_ns, found.st_size, found.st_ino
