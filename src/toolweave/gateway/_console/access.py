"""Whether a gateway has a console: where only this machine reaches it, or where it is asked for.

Imports no page: that is done where there is one.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from toolweave.config import is_loopback
from toolweave.errors import ConfigError
from toolweave.gateway._admin.extras import missing
from toolweave.gateway._admin.managed import ManagedGateway
from toolweave.gateway._observe.recent_calls import RecentCalls

if TYPE_CHECKING:
    from toolweave.gateway._console.app import ConsoleApp
    from toolweave.serve import HttpApp

PATH = "/ui"


def wants_console(wanted: bool | None, *, host: str, token: str | None, hosts: object) -> bool:
    """Whether there is to be a console.

    Args:
        wanted: The option; None for a console where only this machine reaches it, and its packages are installed.
        host: The address that is bound.
        token: The admin token.
        hosts: More host names that are served, by which other machines may reach it.

    Raises:
        ConfigError: It is required, but no token to sign in with was given, or a package is not installed.
    """
    installed = find_spec("jinja2") is not None
    if wanted is None:
        only_this_machine = not hosts and is_loopback(host.strip("[]"))
        return installed and token is not None and only_this_machine
    if wanted and token is None:
        raise ConfigError(
            "the console requires an admin token to sign in: --admin-token-env VAR names one, or admin_token=",
            field="ui",
        )
    if wanted and not installed:
        raise missing("jinja2", "console")
    return wanted


def add_console(gateway: ManagedGateway, app: HttpApp, token: str, calls: RecentCalls) -> ConsoleApp:
    """Serve the console below an app; return it, to be run while the app is."""
    from toolweave.gateway._console.app import ConsoleApp  # an extra

    console = ConsoleApp(gateway, token, calls, path=PATH)
    app.route(PATH, console, forms=True)
    return console
