"""The servers of a hub that are called as each caller of a gateway: it knows their settings and connects to none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType

from toolweave._json_types import without_members
from toolweave.config import ServerConfig
from toolweave.connect._wire.credentials import needed_caller
from toolweave.errors import AuthRequiredError


class CallerServers:
    """Keeps the settings of these servers.

    Args:
        prefixes: The prefixes of tools by server, to which theirs are added.
        errors: The servers that could not be used, to which they are added: they cannot be used without a caller.

    Attributes:
        configs: The settings by name.
        generation: Grows with each change of them.
        on_change: Called after each change.
    """

    def __init__(self, prefixes: MutableMapping[str, str], errors: MutableMapping[str, Exception]) -> None:
        self.configs: Mapping[str, ServerConfig] = MappingProxyType({})
        self.generation = 0
        self.on_change: list[Callable[[], object]] = []
        self._prefixes = prefixes
        self._errors = errors

    def takes(self, config: ServerConfig) -> bool:
        """Keep the settings of a server if it is called as the callers; return whether it is."""
        if config.as_caller:
            self.keep(config)
        return config.as_caller

    def keep(self, config: ServerConfig) -> None:
        """Keep the settings of a server, replacing any of its name."""
        name = config.name
        self._prefixes[name] = f"{name}_" if config.tool_prefix is None else config.tool_prefix
        self._errors[name] = AuthRequiredError(needed_caller(config), server=name)
        self._change({**self.configs, name: config})

    def forget(self, name: str) -> None:
        """Forget a server, if it is one of these."""
        if name in self.configs:
            self._change(without_members(self.configs, name))

    def _change(self, configs: Mapping[str, ServerConfig]) -> None:
        self.configs = MappingProxyType(configs)
        self.generation += 1
        for listener in self.on_change:
            listener()
