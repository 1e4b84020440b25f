"""The options that commands which serve share."""

from __future__ import annotations

from typing import Annotated

from toolweave.cli._command import Option

ServerOfConfigOption = Annotated[
    tuple[str, ...], Option("--server", "-s", metavar="NAME", help="Only this server of it; may be repeated.")
]
HttpOption = Annotated[str | None, Option("--http", metavar="[HOST:]PORT", help="Serve over HTTP; port 0: any.")]
StatelessOption = Annotated[
    bool, Option("--stateless", help="No sessions for older clients, for replicas behind a balancer.")
]
TokenEnvOption = Annotated[
    str | None,
    Option("--token-env", metavar="VAR", help="The variable with the bearer token that requests must bring."),
]
