"""Selections of offers by kind, name, server and annotations, and the offers that a request is about.

Names and URIs are compared as they are exposed; a call by an alias is one of the tool itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, cast
from urllib.parse import unquote

import msgspec

from toolweave._option_checks import MAPPING, TEXTS, OptionKind, list_of
from toolweave._value import Value
from toolweave.middleware._options import as_tuples, of_kinds
from toolweave.protocol import methods
from toolweave.protocol.component_meta import asked_version
from toolweave.protocol.server_features import read_reference
from toolweave.serve import OfferLookup, Request
from toolweave.serve.request import OfferKind
from toolweave.tools import ToolSpec
from toolweave.tools.selection import check_hints, fits, glob_pattern, hinted

_KINDS: Mapping[str, OptionKind] = {"names": TEXTS, "servers": TEXTS, "annotations": MAPPING}
_DOTS = re.compile(r"[/\\]\.{1,2}(?:[/\\]|$)")
TO_LEARN = frozenset(
    {
        methods.PROMPTS_GET,
        methods.RESOURCES_READ,
        methods.RESOURCES_DIRECTORY_READ,
        methods.SKILLS_GET,
        methods.RESOURCES_SUBSCRIBE,
        methods.COMPLETION_COMPLETE,
        methods.SUBSCRIPTIONS_LISTEN,
    }
)
"""Methods about offers that a gateway knows only once it has listed them: `learn` comes before `target_of`."""


class RequestTarget(msgspec.Struct, frozen=True):
    """The offer that a request is about.

    Attributes:
        kind: Its kind.
        names: Its name; a resource's URI, and the template that has it.
        servers: The upstream that has it, or all that may; `(None,)` for an offer of the server's own.
        spec: The definition of a tool.
        names_at: Its names at each of the servers, where these differ.
    """

    kind: OfferKind
    names: tuple[str, ...]
    servers: tuple[str | None, ...] = (None,)
    spec: ToolSpec | None = None
    names_at: tuple[tuple[str, ...], ...] = ()

    def places(self) -> Iterator[RequestTarget]:
        """Yield the offer as it is at each server that may have it."""
        if len(self.servers) == 1:
            yield self
            return
        for place, server in enumerate(self.servers):
            yield RequestTarget(self.kind, self.names_at[place], (server,), self.spec)


async def learn(request: Request) -> None:
    """List the offers that `target_of` needs for a request, if they are those of upstreams that were not listed yet.

    An upstream that was not listed has named no offers. Unlearned, an offer would be judged as one of no server, or of
    the first one: it would escape what is selected by its server, and be counted and logged for another one.
    """
    if request.server is not None:
        await request.server.learn_offers(request.method, request.params)


def target_of(request: Request) -> RequestTarget | None:
    """Return the offer that a request is about; None for one about none, and for a malformed one.

    A tool that is not offered has no definition. For a method of `TO_LEARN`, `learn` comes first.
    """
    method = request.method
    params = request.params
    if method == methods.TOOLS_CALL:
        name = params.get("name")
        if not isinstance(name, str):
            return None
        if request.server is None:
            spec = None
        else:
            spec = request.server.find_tool(name, asked_version(params))
        if spec is None:
            return RequestTarget("tools", (name,))
        return _tool_target(spec)
    if method == methods.PROMPTS_GET:
        name = params.get("name")
        if isinstance(name, str):
            return found_target(request.server, "prompts", name)
        return None
    if method in methods.BY_URI:
        uri = params.get("uri")
        if isinstance(uri, str):
            return found_target(request.server, "resources", uri)
        return None
    if method == methods.COMPLETION_COMPLETE:
        return _completed(request)
    return None


def _tool_target(spec: ToolSpec) -> RequestTarget:
    return RequestTarget("tools", (spec.name,), (spec.server,), spec)


def _completed(request: Request) -> RequestTarget | None:
    ref = request.params.get("ref")
    try:
        kind, name = read_reference(cast("Mapping[str, Any]", ref) if isinstance(ref, dict) else {})
    except ValueError:
        return None
    return found_target(request.server, "prompts" if kind == "prompt" else "resources", name)


def found_target(lookup: OfferLookup | None, kind: OfferKind, name: str) -> RequestTarget:
    """Return a prompt, a resource or a template by its name or URI, at each server that may have it."""
    method, key = (methods.PROMPTS_GET, "name") if kind == "prompts" else (methods.RESOURCES_READ, "uri")
    if lookup is None:
        offers = ()
    else:
        offers = lookup.offers_of(method, {key: name})
    names: dict[str | None, dict[str, None]] = {}
    for offer in offers:
        names.setdefault(offer.server, {name: None})[offer.name] = None
    if not names:
        return RequestTarget(kind, (name,))
    # Dictionaries as ordered sets: the first server is the one that would be asked first.
    together = dict.fromkeys(chain.from_iterable(names.values()))
    return RequestTarget(kind, tuple(together), tuple(names), None, tuple(map(tuple, names.values())))


class OfferSelection(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A selection of tools, prompts and resources; members that are not given select all.

    Attributes:
        kinds: `tools`, `prompts`, `resources`.
        names: Globs (`*`, `?`, `[...]`) of names as they are exposed, and of URIs and their templates.
        servers: Globs of upstream servers by their names in the config; offers of the server's own have none.
        annotations: Hints that a tool must have, such as `{"readOnlyHint": true}`. A missing hint counts as the
            specification says: not read-only, destructive, not idempotent, open world. Selects tools only.
    """

    kinds: Sequence[OfferKind] = ()
    names: Sequence[str] = ()
    servers: Sequence[str] = ()
    annotations: Mapping[str, bool] = msgspec.field(default_factory=dict[str, bool])

    def __post_init__(self) -> None:
        as_tuples(self, "kinds", "names", "servers")
        unknown = set(self.kinds) - {"tools", "prompts", "resources"}
        if unknown:
            raise ValueError(f"{type(self).__name__}: kinds are tools, prompts and resources, not {min(unknown)!r}")
        of_kinds(self, _KINDS)
        check_hints(self.annotations, f"{type(self).__name__}: annotations")

    def selects(self, target: RequestTarget, *, odd: bool = False) -> bool:
        """Whether the offer is selected.

        Args:
            target: The offer.
            odd: The answer for a URI with dot segments, which might name anything.
        """
        if self.kinds and target.kind not in self.kinds:
            return False
        if self.servers and not any(fits(self.servers, server) for server in target.servers):
            return False
        if self.annotations and not _is_hinted(self.annotations, target.spec):
            return False
        if not self.names:
            return True
        if target.kind == "resources":
            # Servers compare URIs in their own ways, and many decode them. An encoded or capitalized spelling must not
            # pass by a rule that denies the plain one.
            plain = [unquote(name).casefold() for name in target.names]
            if any(map(_DOTS.search, plain)):
                return odd
            patterns = [glob_pattern(unquote(glob).casefold()) for glob in self.names]
            return any(pattern.match(name) for pattern in patterns for name in plain)
        return any(fits(self.names, name) for name in target.names)


SELECTIONS = list_of(OfferSelection, "a list of OfferSelection(...)")
"""The kind of an option that selects offers."""


def selected(selections: Sequence[OfferSelection], target: RequestTarget | None) -> bool:
    """Whether one of the selections has the offer; without selections all are."""
    if target is None:
        return False
    return not selections or any(one.selects(target) for one in selections)


def _is_hinted(annotations: Mapping[str, bool], spec: ToolSpec | None) -> bool:
    """Whether an offer is a tool with these hints."""
    return spec is not None and hinted(annotations, spec)
