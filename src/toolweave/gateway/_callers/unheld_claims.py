"""Warnings about claims that a gateway's config names and that no API key has.

A rule, a header or an argument by such a claim decides nothing, or for the wrong callers: a misspelt name is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from toolweave._json_types import as_sequence, object_or_empty
from toolweave.config import LoadedConfig, ServerConfig
from toolweave.tools.selection import member_of

if TYPE_CHECKING:
    from toolweave.gateway._callers.auth import CallerAuth


class _VirtualServer(Protocol):
    @property
    def middleware(self) -> Sequence[object]: ...


class ClaimsConfig(_VirtualServer, Protocol):
    """The parts of a gateway's config that name claims or hold keys."""

    @property
    def auth(self) -> CallerAuth | None:
        """The credentials of callers."""
        ...

    @property
    def servers(self) -> LoadedConfig:
        """The upstreams."""
        ...

    @property
    def virtual(self) -> Mapping[str, _VirtualServer]:
        """The virtual servers."""
        ...


def unheld_claims(config: ClaimsConfig) -> Iterator[str]:
    """Yield warnings about claims that no API key has, if API keys are the only credentials of callers."""
    # The claims of a token are the issuer's, and no setting lists them.
    if config.auth is None or config.auth.issuer is not None:
        return
    wanted: dict[str, dict[str, None]] = {}  # claims, and the places that name them, in their order
    for claim, place in _named_claims(config):
        wanted.setdefault(claim, {})[place] = None
    for claim, places in wanted.items():
        for key in config.auth.api_keys:
            if member_of(key.claims, claim) is not None:
                break
        else:
            yield (
                f"gateway: no API key has the claim {claim!r} of {' and '.join(places)}; "
                "add it to 'claims' of a key, or correct the name"
            )


def _named_claims(config: ClaimsConfig) -> Iterator[tuple[str, str]]:
    """Yield the claims that a config names, each with the place."""
    for claim in _claims_of_rules(config.middleware):
        yield claim, "a rule of 'gateway.middleware'"
    for name, view in config.virtual.items():
        for claim in _claims_of_rules(view.middleware):
            yield claim, f"a rule of 'gateway.virtual.{name}.middleware'"
    for server in config.servers.servers.values():
        for claim in server.claim_headers.values():
            yield claim, f"'claim_headers' of server {server.name!r}"
        for claim in _claims_of_arguments(server):
            yield claim, f"'shape' of server {server.name!r}"


def _claims_of_rules(entries: Sequence[object]) -> Iterator[str]:
    """Yield the names of the claims that the access rules of a list `middleware` read."""
    for entry in entries:
        for rule in as_sequence(object_or_empty(entry).get("rules")) or ():
            yield from object_or_empty(object_or_empty(rule).get("claims"))


def _claims_of_arguments(server: ServerConfig) -> Iterator[str]:
    """Yield the names of the claims that become arguments of a server's tools."""
    for rule in server.shape:
        for argument in rule.arguments.values():
            if argument.claim is not None:
                yield argument.claim
