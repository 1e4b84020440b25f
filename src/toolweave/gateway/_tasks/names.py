"""The ids of tasks for callers: they name the upstream of a task, and the connection to it on which the task runs.

An id is signed for one principal, so that no store is needed and any replica with the same keys can continue it. It is
the same each time, since clients compare ids.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence

import msgspec

from toolweave.gateway._relay.routes import Route
from toolweave.serve._request_state import from_base64url, to_base64url

_FORM = "t1"
_FORM_WITH_PLACE = "t2"
_MAC_BYTES = 16
_LONGEST = 8192


class TaskNames:
    """Ids of tasks that name their upstream, and that no caller can make or use for another principal.

    Args:
        keys: Secrets of at least 32 bytes, the newest first: it signs, all of them verify. Replicas share them, and an
            old one stays as long as the tasks named with it. None makes one for this process.

    Raises:
        ValueError: A key is too short.
    """

    def __init__(self, keys: Sequence[str | bytes] | None = None) -> None:
        given = [secrets.token_bytes(32)] if keys is None else keys
        self._keys = [key.encode() if isinstance(key, str) else key for key in given]
        if not self._keys or any(len(key) < 32 for key in self._keys):
            raise ValueError("the keys of task ids are secrets of at least 32 bytes, the newest first")

    def exposed(self, principal: str | None, route: Route) -> str:
        """Return the id for callers of an upstream's task: `route.name` is its own id."""
        if route.place:
            form = [_FORM_WITH_PLACE, _encoded(route.place)]
        else:
            form = [_FORM]
        return ".".join((*form, _encoded(route.server), _encoded(route.name), _mac(self._keys[0], principal, route)))

    def read(self, principal: str | None, name: str) -> Route | None:
        """Return the upstream, its own id and the place; None for an id that is not this principal's, or not ours."""
        form, *parts = name.split(".") if len(name) <= _LONGEST else ("",)
        if (form, len(parts)) not in ((_FORM, 3), (_FORM_WITH_PLACE, 4)):
            return None
        *texts, signed = parts
        try:
            *place, server, own = (from_base64url(text).decode("utf-8", "surrogatepass") for text in texts)
        except ValueError:
            return None
        given = signed.encode("utf-8", "surrogatepass")
        route = Route(server=server, name=own, place="".join(place))
        genuine = [hmac.compare_digest(_mac(key, principal, route).encode(), given) for key in self._keys]
        if any(genuine):
            return route
        return None


def is_upstreams(name: str) -> bool:
    """Whether an id of a task is one that names an upstream."""
    return name.startswith((f"{_FORM}.", f"{_FORM_WITH_PLACE}."))


def _encoded(text: str) -> str:
    return to_base64url(text.encode("utf-8", "surrogatepass"))


def _mac(key: bytes, principal: str | None, route: Route) -> str:
    place = (route.place,) if route.place else ()
    text = msgspec.json.encode((principal, route.server, route.name.encode("utf-8", "surrogatepass"), *place))
    return to_base64url(hmac.digest(key, b"toolweave task id\n" + text, "sha256")[:_MAC_BYTES])
