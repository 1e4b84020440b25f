"""Exposed names for the tools, prompts and resources of many servers: given once, kept for the life of the hub.

Identity is the pair (server key, the server's own name). The first to be named keeps its name through refreshes,
restarts and new servers, also while it is gone: a name that changed hands would let one server answer calls that were
meant for another. Pure; a collision affects only the later item.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from toolweave._value import Value
from toolweave.config import ServerConfig
from toolweave.protocol.apps import APP_SCHEME
from toolweave.tools import ToolSnapshot, ToolSpec, expose
from toolweave.tools.names import AssignedNames

_NOT_IN_SCHEMES = r"[^A-Za-z0-9.-]"


class NameConflict(Value, frozen=True, kw_only=True):
    """A name conflict: a server offers a name that is already taken.

    Attributes:
        server: The server that came later.
        text: The effect on its tool, prompt or resource, human-readable.
        name: The name that was taken.
        lasting: True if it lasts as long as `server` offers the name; else only while the name's owner offers it.
    """

    server: str
    text: str
    name: str
    lasting: bool = False

    def __str__(self) -> str:
        return f"server {self.server!r}: {self.text}"


class NamedServer(msgspec.Struct, kw_only=True):
    """The tools of one server under their exposed names.

    Attributes:
        seen: The server's own snapshot.
        specs: The definitions by exposed name, in the order of the server's list.
        inner: For each exposed name, the tool's name in `seen`.
        conflicts: The names that were taken.
        refused: The conflicting name that leaves out all of its tools, under `on_conflict="error"`; else None.
    """

    seen: ToolSnapshot = msgspec.field(default_factory=ToolSnapshot)
    specs: dict[str, ToolSpec] = msgspec.field(default_factory=dict[str, ToolSpec])
    inner: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    conflicts: list[NameConflict] = msgspec.field(default_factory=list[NameConflict])
    refused: str | None = None


def name_server(
    config: ServerConfig,
    snapshot: ToolSnapshot,
    given: AssignedNames,
    before: NamedServer,
    servers: Collection[str] = (),
    others: Collection[str] = (),
) -> NamedServer:
    """Name the tools of one server; a definition that is as before stays the same object.

    Args:
        config: The server.
        snapshot: Its tools.
        given: The names that were given so far; new ones are added.
        before: The previous return value for this server.
        servers: All servers there ever were: `other:tool` is an alias of another's tool, and no name for this one's.
        others: The server's own names of tools on other connections to it, which keep their exposed names.
    """
    server = config.name
    named = NamedServer(seen=snapshot)
    # Else the connection has put the prefix there.
    bare = config.tool_prefix is None
    wishes: list[tuple[ToolSpec, str]] = []
    taken: dict[str, None] = {}
    # All conflicts before the first name is given: with `error` the server gets none at all, and no name may be
    # reserved for it then.
    for spec in snapshot:
        wanted = expose(server, spec.name) if bare else spec.name
        wishes.append((spec, wanted))
        if not _is_free(wanted, (server, spec.original_name), given, servers):
            taken[wanted] = None
    if taken and config.on_conflict == "error":
        named.refused = next(iter(taken))
        text = f"all its tools are left out: the name {named.refused!r} is taken"
        named.conflicts.append(NameConflict(server=server, text=text, name=named.refused, lasting=True))
        return named
    for spec, wanted in wishes:
        if wanted in taken and config.on_conflict == "skip":
            text = f"tool {spec.original_name!r} left out: the name {wanted!r} is taken"
            named.conflicts.append(NameConflict(server=server, text=text, name=wanted, lasting=True))
            continue
        wish = wanted
        if wanted in taken and given.holder(wanted) is None:
            # It must not look like an alias, nor take its meaning.
            wish = expose(server, wanted.replace(":", "_").replace("/", "_"))
        name = given.give((server, spec.original_name), wish, server)
        if name != wanted:
            text = f"tool {spec.original_name!r} is named {name!r}: the name {wanted!r} is taken"
            named.conflicts.append(NameConflict(server=server, text=text, name=wanted))
        known = before.specs.get(name)
        # Identity, not equality: the connection keeps the object of an unchanged definition, so a hub of 10,000 tools
        # compares none.
        if known is None or before.seen.by_name.get(before.inner[name]) is not spec:
            known = spec if spec.name == name else spec.replace(name=name)
        named.specs[name] = known
        named.inner[name] = spec.name
    # After naming: what the server offers now must not be among the names that are given up.
    given.forget(server, {*others, *(spec.original_name for spec in snapshot)})
    return named


def name_others(
    kind: str, config: ServerConfig, names: Iterable[str], given: AssignedNames, others: Collection[str] = ()
) -> tuple[dict[str, str], list[NameConflict]]:
    """Name one server's prompts, resources or templates; return own names by exposed name, and the conflicts.

    A prompt is named as tools are. A URI stays unchanged; one that is taken gets the server before its scheme, such as
    `notes+file:///a`, so that it is still a URI and shows its server (`ui://notes+a` for the page of an app).

    Args:
        kind: `"prompt"`, `"resource"` or `"resource template"`.
        config: The server.
        names: Its own names or URIs.
        given: The names given so far to this kind.
        others: The server's own names or URIs on other connections to it, which keep their exposed form.
    """
    exposed: dict[str, str] = {}
    conflicts: list[NameConflict] = []
    for own in names:
        if kind == "prompt":
            wanted = expose(config.name, own, config.tool_prefix)
            name = given.give((config.name, own), wanted, config.name)
        else:
            wanted = own
            name = name_uri(config.name, own, given)
        if name != wanted:
            text = f"{kind} {own!r} is offered as {name!r}: {wanted!r} is taken"
            conflicts.append(NameConflict(server=config.name, text=text, name=wanted))
        exposed[name] = own
    given.forget(config.name, {*others, *exposed.values()})
    return exposed, conflicts


def name_uri(server: str, own: str, given: AssignedNames) -> str:
    """Return the exposed form of a server's URI: as it is, or where that is taken with the server before its scheme."""
    who = server, own
    qualified = _qualified(server, own)
    # The second condition keeps a decision: once a URI was qualified it stays so, even when the plain one becomes free,
    # for callers hold the old one.
    is_taken = given.holder(own) not in (None, who) or given.holder(qualified) == who
    return given.give(who, qualified if is_taken else own, None)


def without_server(uri: str, server: str) -> str | None:
    """Strip the server's prefix from a URI such as `notes+file:///a`; None if the URI has none."""
    for scheme in (APP_SCHEME, ""):
        prefix = f"{scheme}{_scheme(server)}+"
        if uri.startswith(prefix):
            return scheme + uri.removeprefix(prefix)
    return None


def _qualified(server: str, own: str) -> str:
    """Return a URI with its server in it; the page of an app keeps its scheme, by which hosts know it."""
    if own.startswith(APP_SCHEME):
        return f"{APP_SCHEME}{_scheme(server)}+{own.removeprefix(APP_SCHEME)}"
    return f"{_scheme(server)}+{own}"


def _scheme(server: str) -> str:
    """Return a server's key as a valid URI scheme."""
    letters = re.sub(_NOT_IN_SCHEMES, "-", server)
    if letters[:1].isalpha():
        return letters
    return f"s{letters}"


def _is_free(name: str, who: tuple[str, str], given: AssignedNames, servers: Collection[str]) -> bool:
    """Whether a name is a tool's own or free for it: not taken, and no alias such as `bank:pay`."""
    holder = given.holder(name)
    if holder is not None:
        return holder == who
    if ":" not in name and "/" not in name:
        # Nearly all names of nearly all servers, of which there may be 100,000.
        return True
    # `bank:pay` and `bank/pay` are aliases of the server `bank`: a tool of another server so named would be called in
    # its place.
    for separator in ":/":
        head, found, _ = name.partition(separator)
        if head == who[0]:
            continue
        if found and head in servers:
            return False
    return True
