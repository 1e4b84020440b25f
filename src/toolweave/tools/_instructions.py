"""The instructions of servers for models: collected from toolsets, and quoted so that none speaks for another.

Independent of connections: knows them by the members that they show.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from toolweave.errors import shortened
from toolweave.tools._wrappers import WrapperToolset
from toolweave.tools.toolset import Toolset

_MAX_OF_ONE = 8_000
_MAX_OF_ALL = 64_000
"""Characters of the instructions of one server, and of all of them together."""


def instructions_of(toolset: Toolset) -> Iterator[tuple[str, str]]:
    """Yield the instructions of the connections in a toolset, each with the name of its server.

    A connection is an object with `instructions`, a hub one with `clients`; those behind wrappers are found.
    """
    if isinstance(toolset, WrapperToolset):
        for inner in toolset.wrapped:
            yield from instructions_of(inner)
    clients = getattr(toolset, "clients", None)
    connections: Iterable[Any] = cast("Mapping[str, Any]", clients).values() if isinstance(clients, Mapping) else ()
    for one in (toolset, *connections):
        text = getattr(one, "instructions", None)
        name = getattr(one, "name", None)
        if isinstance(text, str) and isinstance(name, str):
            yield name, text


def joined_instructions(parts: Iterable[tuple[str, str | None]]) -> str | None:
    """Return the instructions of servers as one text, each quoted line by line under its server's name.

    Blank texts are left out and long ones shortened; None when nothing is left.
    """
    texts: list[str] = []
    for server, text in parts:
        own = (text or "").strip()
        if own:
            texts.append(f"{server}:\n{_quoted(shortened(own, _MAX_OF_ONE))}")
    return shortened("\n\n".join(texts), _MAX_OF_ALL) or None


def _quoted(text: str) -> str:
    # Each line, by all line ends that there are, so that no text can leave its quotation and speak for another server.
    return "\n".join(f"> {line}" for line in text.splitlines())
