"""The page about API keys: those of all replicas, with a form to revoke the keys of a client. No key is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from toolweave._text import counted
from toolweave.gateway._admin.managed import ManagedGateway
from toolweave.gateway._callers.revoked_keys import KeyStatus
from toolweave.gateway._console.fleet_rows import places_of, read_replies
from toolweave.gateway._console.rendering import ConsolePages
from toolweave.gateway._console.requests import ConsolePage, ConsoleRefusal, ConsoleReply, ConsoleRequest
from toolweave.gateway._replicas.fleet import Peer
from toolweave.serve._http.asgi import Receive
from toolweave.serve.request import Json


class KeysHere(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one replica.

    Attributes:
        keys: The keys.
    """

    keys: tuple[KeyStatus, ...]


class KeyPages:
    """The page about API keys.

    Args:
        gateway: The gateway.
        pages: Renders it.
    """

    def __init__(self, gateway: ManagedGateway, pages: ConsolePages) -> None:
        self._gateway = gateway
        self._pages = pages
        gateway.fleet.on("keys", self._keys_here)
        self.shown: Mapping[str, ConsolePage] = {"/keys": self.keys}
        self.changing: Mapping[str, ConsolePage] = {"/keys": self.revoke}

    async def keys(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Show the keys."""
        found, silent = read_replies(await self._gateway.fleet.look("keys", {}), KeysHere)
        return self._pages.page(asked, "keys.html", rows=_rows(found), silent=silent)

    async def revoke(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Revoke the keys of a client."""
        name = asked.form.get("name", "")
        try:
            revoked = await self._gateway.keys.revoke(name)
        except KeyError:
            raise ConsoleRefusal(404, f"API key {name!r} was not found.") from None
        self._gateway.fleet.forget()
        text = f"{counted(revoked.keys, 'key')} of {name!r} revoked."
        if revoked.problem is not None:
            text += f" The other replicas refuse it once the store is back: {revoked.problem}"
        elif not revoked.lasting:
            text += " Remove it from the config, because this gateway forgets the revocation when it ends."
        asked.signed_in.say(text, problem=revoked.problem is not None)
        return ConsoleReply.see(asked.url("/keys"))

    async def _keys_here(self, body: Json) -> Json:
        return msgspec.to_builtins(KeysHere(keys=tuple(self._gateway.keys.statuses())))


def _rows(found: Mapping[Peer, KeysHere]) -> Sequence[tuple[KeyStatus, Sequence[str]]]:
    """Return the keys of all replicas, each with the names of the replicas that have it, if not all do."""
    rows = places_of({peer: here.keys for peer, here in found.items()})
    return sorted(rows, key=lambda row: (row[0].name, row[0].sha256, row[0].revoked))
