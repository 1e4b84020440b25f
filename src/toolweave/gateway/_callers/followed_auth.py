"""The authorization of a gateway while it follows its config: API keys come and go, everything else stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolweave.errors import ConfigError

if TYPE_CHECKING:
    from toolweave.gateway._callers.auth import CallerAuth
    from toolweave.serve import TokenAuth


class FollowedAuth:
    """The authorization, and the section of the config that it was made of.

    Args:
        given: One that does not come from the config, which then does not count.
        section: The section `gateway.auth`, or None.

    Attributes:
        auth: The authorization, or None.
    """

    def __init__(self, given: TokenAuth | None, section: CallerAuth | None) -> None:
        self._section = None if given is not None else section
        self._follows = given is None
        if section is None or given is not None:
            self.auth = given
        else:
            self.auth = section.build()

    def check(self, section: CallerAuth | None) -> None:
        """Refuse a section that cannot be taken over while it is served.

        Raises:
            ConfigError: More than API keys has changed.
        """
        before, after = (None if one is None else one.replace(api_keys=()) for one in (self._section, section))
        if self._follows and before != after:
            text = "'gateway.auth' has changed: only API keys are followed; start the gateway again for the rest"
            raise ConfigError(text, field="gateway.auth")

    def apply(self, section: CallerAuth | None) -> None:
        """Accept the API keys of a section that was checked, and no others."""
        keys = None if self.auth is None else self.auth.api_keys
        if self._follows and keys is not None and section is not None:
            keys.replace(section.api_keys)
