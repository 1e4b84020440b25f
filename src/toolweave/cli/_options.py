"""The options that several commands share: config files, servers, or one server given on the command line.

Only declares them; `targets.py` turns them into server entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from toolweave.cli._command import Option, Remainder


def complete_servers(incomplete: str) -> list[str]:
    """Return the names of configured servers that start with `incomplete`, for shell completion."""
    from toolweave.cli._completion import server_names  # only when a shell asks

    return server_names(incomplete)


def complete_tools(incomplete: str) -> list[str]:
    """Return the names of tools that start with `incomplete`, for shell completion."""
    from toolweave.cli._completion import tool_names  # only when a shell asks

    return tool_names(incomplete)


def complete_arguments(before: Sequence[str], incomplete: str) -> list[str]:
    """Return the argument names of the tool that is the first word before, each with `=`, for shell completion."""
    from toolweave.cli._completion import argument_names  # only when a shell asks

    return argument_names(before, incomplete)


BaseUrlOption = Annotated[
    str | None,
    Option(
        "--base-url",
        metavar="URL",
        help="The address of that API, if it differs from the one in its document.",
        needs=["--openapi"],
    ),
]
ConfigOption = Annotated[
    tuple[Path, ...], Option("--config", "-c", metavar="FILE", help="A config file; may be given several times.")
]
ServerOption = Annotated[
    tuple[str, ...],
    Option("--server", "-s", metavar="NAME", help="Only this server; may be repeated.", complete=complete_servers),
]
JsonOption = Annotated[bool, Option("--json", help="Print JSON instead of a readable view.")]
StrictOption = Annotated[bool, Option("--strict", help="Exit with 3 when any server fails.")]
VerboseOption = Annotated[bool, Option("--verbose", "-v", help="Write more to standard error.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The servers of a command; each attribute is an option, and `command` has the words after `--`."""

    config: ConfigOption = ()
    server: ServerOption = ()
    url: Annotated[str | None, Option("--url", metavar="URL", help="One HTTP server instead of a config.")] = None
    openapi: Annotated[
        str | None,
        Option("--openapi", metavar="URL_OR_FILE", help="The API of one OpenAPI document instead of a server."),
    ] = None
    base_url: BaseUrlOption = None
    header: Annotated[
        tuple[str, ...],
        Option("--header", "-H", metavar="'K: V'", help="An HTTP header for --url or --openapi; may be repeated."),
    ] = ()
    bearer_env: Annotated[
        str | None,
        Option("--bearer-env", metavar="VAR", help="The variable that holds the token for --url or --openapi."),
    ] = None
    trust: Annotated[
        bool, Option("--trust", help="Start the servers of this folder's config files without asking, this once.")
    ] = False
    timeout: Annotated[
        float | None,
        Option(
            "--timeout",
            metavar="SECONDS",
            minimum=0.001,
            help="How long to wait for a connection, and for activity of each request.",
        ),
    ] = None
    verbose: VerboseOption = False
    command: Annotated[tuple[str, ...], Remainder("COMMAND ARGS...")] = ()

    @property
    def ad_hoc(self) -> bool:
        """Whether one server is given on the command line instead of a config."""
        return bool(self.url or self.openapi or self.command)


def given_options(options: Target, group: type[Target] = Target, *, but: tuple[str, ...] = ()) -> list[str]:
    """Return those options of a group, except some by name, that differ from their defaults: as they are typed.

    Args:
        options: The values.
        group: Whose attributes are looked at.
        but: The names of attributes that are not.
    """
    given = [one.name for one in fields(group) if one.name not in but and getattr(options, one.name) != one.default]
    return ["--" if name == "command" else f"--{name.replace('_', '-')}" for name in given]
