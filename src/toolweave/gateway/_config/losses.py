"""Configs without most of the servers, or without the rules, of the config in use.

A file that is emptied by an editor, or written by half, is a config without a mistake. It would end every server, or
open the gateway to everyone, so it is applied only when its owner confirms it. Reads and applies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from toolweave.errors import ConfigError
from toolweave.gateway._config.config import SECTION, GatewayConfig

ReloadTrigger: TypeAlias = Literal["watch", "call", "signal", "confirmed"]
"""The reason to read a config again, the weakest first: its file has changed, a program asked for it, the process
received SIGHUP, or somebody confirmed that whatever the config has lost is meant."""

_BY_RANK: tuple[ReloadTrigger, ...] = ("watch", "call", "signal", "confirmed")


class ConfigLoss(ConfigError):
    """The error of a config that is applied only after a confirmation."""


class LossGuard:
    """Refuses configs that lose servers or rules, until a person confirms them.

    A second SIGHUP confirms a config that the first one offered, while its content is the same. A file that is seen to
    have changed twice confirms nothing: it may have been emptied twice.
    """

    def __init__(self) -> None:
        self._offered: GatewayConfig | None = None  # refused at the last SIGHUP

    def check(self, before: GatewayConfig, after: GatewayConfig, trigger: ReloadTrigger) -> None:
        """Check a config that is about to replace another.

        Args:
            before: The config in use.
            after: The new one.
            trigger: The reason why it was read.

        Raises:
            ConfigLoss: It needs to be confirmed.
        """
        lost = list(config_losses(before, after))
        offered = self._offered == after
        if not offered or not lost:
            self._offered = None
        if not lost or trigger == "confirmed":
            return
        if trigger == "signal":
            # The second signal confirms only the very config that the first one offered: a file that was saved again
            # between the two may lose more, and is offered anew.
            if offered:
                return
            self._offered = after
        if self._offered is None:
            signals = "SIGHUP twice"
        else:
            signals = "SIGHUP again"
        files = ", ".join(map(str, after.servers.paths))
        raise ConfigLoss(
            f"it loses servers or rules that are in use: {'; '.join(lost)}. If that is meant, restart the gateway, "
            f"send {signals}, or run `toolweave gateway reload --yes`",
            path=files or None,
        )

    def applied(self) -> None:
        """Forget the config that a signal offered, after another was applied."""
        self._offered = None


def strongest(first: ReloadTrigger, second: ReloadTrigger) -> ReloadTrigger:
    """Return the trigger of one reading for two that were requested at the same time."""
    return _BY_RANK[max(_BY_RANK.index(first), _BY_RANK.index(second))]


def config_losses(before: GatewayConfig, after: GatewayConfig) -> Iterator[str]:
    """Return the losses of a new config as phrases: half of the servers, the section, the rules.

    An entry that its owner switched off is in the file, so it is not lost. Virtual servers come and go freely: one that
    is gone offers nothing.
    """
    used = before.servers.servers
    left = {*after.servers.servers, *after.servers.disabled}
    if used and len(left) * 2 < len(used):
        yield f"it has {len(left)} of {len(used)} {'server' if len(used) == 1 else 'servers'}"
    if before.has_section and not after.has_section:
        yield f"it has no section {SECTION!r}"
        return
    if before.auth is not None and after.auth is None:
        yield f"'{SECTION}.auth' is missing"
    if before.middleware and not after.middleware:
        yield f"'{SECTION}.middleware' has no rules"
    for name, view in before.virtual.items():
        follower = after.virtual.get(name)
        if view.middleware and follower is not None and not follower.middleware:
            yield f"'{SECTION}.virtual.{name}.middleware' has no rules"
