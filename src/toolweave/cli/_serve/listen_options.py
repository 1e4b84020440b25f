"""The options that commands which serve share."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from toolweave.cli._command import Option

if TYPE_CHECKING:
    from toolweave.serve._http.events import EventOptions


class EventStoreChoice(StrEnum):
    """An event store that an option can name."""

    MEMORY = "memory"


ServerOfConfigOption = Annotated[
    tuple[str, ...],
    Option("--server", "-s", metavar="NAME", help="Only this server of it; may be repeated.", needs=["--config"]),
]
HttpOption = Annotated[str | None, Option("--http", metavar="[HOST:]PORT", help="Serve over HTTP; port 0: any.")]
StatelessOption = Annotated[
    bool, Option("--stateless", help="No sessions for older clients, for replicas behind a balancer.", needs=["--http"])
]
TokenEnvOption = Annotated[
    str | None,
    Option(
        "--token-env",
        metavar="VAR",
        help="The variable with the bearer token that requests must have.",
        needs=["--http"],
    ),
]
TrustedProxyOption = Annotated[
    tuple[str, ...],
    Option(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="A proxy whose X-Forwarded-For is trusted; may be repeated.",
        needs=["--http"],
    ),
]
EventStoreOption = Annotated[
    EventStoreChoice | None,
    Option(
        "--event-store",
        help="Keep the streams of older clients, so that they can resume after a broken connection.",
        needs=["--http"],
        excludes={"--stateless": "there are no sessions whose streams are kept"},
    ),
]
RetryOption = Annotated[
    float | None,
    Option(
        "--retry-seconds",
        metavar="SECONDS",
        minimum=0.001,
        help="How long older clients wait before they resume; by default 1.",
        needs=["--http"],
    ),
]
PrintOption = Annotated[bool, Option("--print", help="Show the entry, write nothing.", needs=["--install"])]
ForceOption = Annotated[bool, Option("--force", help="Replace an existing entry.", needs=["--install"])]
ServingJsonOption = Annotated[
    bool,
    Option(
        "--json",
        help="Print JSON instead of a readable view.",
        needs={"--http or --install": "over stdio, standard output carries the protocol"},
    ),
]


def event_settings(choice: EventStoreChoice | None, retry_seconds: float | None) -> EventOptions:
    """Return the options of an app for `--event-store` and `--retry-seconds`."""
    from toolweave.serve._http.events import event_options  # imports are late: --help imports this module

    return event_options("memory" if choice is EventStoreChoice.MEMORY else None, retry_seconds)
