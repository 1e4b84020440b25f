"""URIs that several sources of a server have: those of mounted ones are qualified, so that each is one resource's."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from toolweave.errors import ServerError
from toolweave.serve._offers.resources import ResourceSource
from toolweave.serve.request import Json

_log = logging.getLogger("toolweave.serve")

UriMember: TypeAlias = Literal["uri", "uriTemplate"]
"""The member of a definition that says which resource, or which template, it is."""


@runtime_checkable
class MountedSource(Protocol):
    """A `ResourceSource` whose URIs depend on those of the sources before it."""

    async def beside(self, member: UriMember, taken: Collection[str]) -> Sequence[Json]:
        """Return the definitions of its resources or templates where others have these URIs."""
        ...


async def taken_by(sources: Iterable[ResourceSource], member: UriMember) -> set[str]:
    """Return the URIs, or the templates, of sources in their order, each asked once.

    One that cannot be asked takes none; its own listing says so.
    """
    taken = set[str]()
    for source in sources:
        try:
            if isinstance(source, MountedSource):
                listed = await source.beside(member, taken)
            else:
                listed = await (source.resources() if member == "uri" else source.templates())
        except ServerError as exc:
            _log.debug("%s", exc)
        else:
            taken |= {one[member] for one in listed}
    return taken
