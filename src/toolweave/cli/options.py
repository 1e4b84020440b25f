"""The options every command shares: which config, which servers, or one server named on the spot.

Only reads them; `targets.py` turns them into server entries.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from toolweave.cli.exits import ExitCode

__all__ = ["TARGET_DEFAULTS", "JsonOption", "StrictOption", "Target", "takes", "takes_target"]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a view for people.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Exit with 3 when any server fails.")]

_PANEL = "Servers"


def _server_names(incomplete: str) -> list[str]:
    from toolweave.cli.completion import server_names  # only when a shell asks

    return server_names(incomplete)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which servers a command is about.

    Attributes:
        config: Config files; empty means the default places.
        server: Only these servers of the config.
        url: One HTTP server instead of a config.
        header: `Name: value` lines for `url`.
        bearer_env: The environment variable that holds the bearer token for `url`.
        trust: Start the servers of the project's config files without a question, this time.
        timeout: Seconds for connecting, and without a sign of life for each request.
        verbose: Tell more on standard error.
        command: One stdio server instead of a config: the words after `--`.
    """

    config: Annotated[
        list[Path], typer.Option("--config", "-c", metavar="FILE", help="A config file; may be given several times.")
    ]
    server: Annotated[
        list[str],
        typer.Option(
            "--server", "-s", metavar="NAME", help="Only this server; may be repeated.", autocompletion=_server_names
        ),
    ]
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="One HTTP server instead of a config.")]
    header: Annotated[
        list[str], typer.Option("--header", "-H", metavar="'K: V'", help="An HTTP header for --url; may be repeated.")
    ]
    bearer_env: Annotated[
        str | None,
        typer.Option("--bearer-env", metavar="VAR", help="The variable that holds the bearer token for --url."),
    ]
    trust: Annotated[
        bool, typer.Option("--trust", help="Start the servers of this folder's config files without asking, this once.")
    ]
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.001,
            help="How long to wait for a connection, and for a sign of life of each request.",
        ),
    ]
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Tell more on standard error.")]
    command: tuple[str, ...] = ()

    @property
    def ad_hoc(self) -> bool:
        """Whether one server is given on the spot instead of a config."""
        return bool(self.url or self.command)


TARGET_DEFAULTS: dict[str, Any] = {  # what each option is when it is not given
    "config": [],
    "server": [],
    "url": None,
    "header": [],
    "bearer_env": None,
    "trust": False,
    "timeout": None,
    "verbose": False,
}


def takes_target(function: Callable[..., ExitCode]) -> Callable[..., None]:
    """Give a command the shared options; it receives them as `target` and returns its exit code."""
    return takes(function, "target", Target, TARGET_DEFAULTS)


def takes(
    function: Callable[..., ExitCode], name: str, group: Callable[..., Any], defaults: Mapping[str, Any]
) -> Callable[..., None]:
    """Give a command the options that are a dataclass's fields; it receives them as one value, by `name`.

    `defaults` are what the options are when they are not given; the field `command` gets the words after `--`.
    """
    hints = get_type_hints(group, include_extras=True)
    own = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.name != name]
    shared = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[option])
        for option, default in defaults.items()
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *shared]

    def command(**values: Any) -> None:  # any option's value
        ctx: typer.Context = values.pop("ctx")
        options = {option: values.pop(option) for option in defaults}
        value = group(**options, command=tuple(ctx.obj or ()))
        raise typer.Exit(int(function(**{name: value}, **values)))

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    return command
