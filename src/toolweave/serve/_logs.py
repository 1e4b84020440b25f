"""Log messages to clients, by the level that each client set, and `logging/setLevel`.

MCP has deprecated them, so nothing is declared and nothing sent unless the server's author asks for it: it is
not where a server writes its own log. Legacy clients set a level for their conversation and get `info` and
above until then; modern ones name it with each request and get nothing unasked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import INVALID_PARAMS
from toolweave.protocol.logs import LEVELS, LogLevel, log_params
from toolweave.protocol.meta import LOG_LEVEL
from toolweave.serve.request import Client, Json, Method, Request

_SEVERITY: Mapping[object, int] = {level: rank for rank, level in enumerate(LEVELS)}
_UNASKED = _SEVERITY["info"]
_MAX_CONVERSATIONS = 10_000


class Logs:
    """Sends log messages to the clients that want them, and keeps the level of each.

    Args:
        enabled: Declare the capability and send; otherwise nothing is sent.
    """

    def __init__(self, *, enabled: bool = False) -> None:
        self._enabled = enabled
        self._levels: OrderedDict[str, int] = OrderedDict()

    def methods(self, *, modern: bool) -> Mapping[str, Method]:
        """Return `logging/setLevel`, which modern revisions lack."""
        if self._enabled and not modern:
            return {methods.LOGGING_SET_LEVEL: self.set_level}
        return {}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """Return the `logging` capability, an empty object in every revision, if messages may be sent."""
        if self._enabled:
            return {"logging": {}}
        return {}

    async def send(self, request: Request, level: LogLevel, data: Any, logger: str | None) -> None:
        """Send a message on the stream of a request, if its client wants this level."""
        if not self._enabled or _SEVERITY[level] < self._minimum_level(request):
            return
        await request.reply_channel.notify(methods.NOTIFICATIONS_MESSAGE, log_params(level, data, logger))

    def wants(self, request: Request, level: str | None) -> bool:
        """Whether the client of a request wants a message of this level; one of no known level counts as `info`."""
        return self._enabled and _SEVERITY.get(level, _UNASKED) >= self._minimum_level(request)

    def level(self, request: Request) -> LogLevel | None:
        """Return the minimum level that the client of a request wants, or None if it wants no messages."""
        if not self._enabled:
            return None
        lowest = self._minimum_level(request)
        if lowest >= len(LEVELS):
            return None
        return LEVELS[lowest]

    def asked(self, request: Request) -> bool:
        """Return whether the client of a request has set a log level."""
        if request.modern:
            return LOG_LEVEL in request.meta
        return self.leveled(request.client)

    def leveled(self, client: Client) -> bool:
        """Return whether a client in a session has set a log level."""
        return (client.conversation or "") in self._levels

    def levels(self) -> Mapping[str, LogLevel]:
        """Return the levels that legacy clients have set, by conversation."""
        return {conversation: LEVELS[lowest] for conversation, lowest in self._levels.items()}

    def _minimum_level(self, request: Request) -> int:
        if request.modern:
            return _SEVERITY.get(_hashable(request.meta.get(LOG_LEVEL)), len(_SEVERITY))
        return self._levels.get(request.client.conversation or "", _UNASKED)

    async def set_level(self, request: Request) -> Json:
        """Set the level of a legacy client (`logging/setLevel`).

        Raises:
            RequestError: The level does not exist (-32602).
        """
        level = _SEVERITY.get(_hashable(request.params.get("level")))
        if level is None:
            raise RequestError(f"level must be one of {', '.join(LEVELS)}", code=INVALID_PARAMS)
        # Levels are not removed with their conversation, which does not report its end here. The oldest are dropped,
        # and a client whose level was dropped is as one that has set none.
        conversation = request.client.conversation
        if conversation is not None:
            self._levels[conversation] = level
            self._levels.move_to_end(conversation)
            if len(self._levels) > _MAX_CONVERSATIONS:
                self._levels.popitem(last=False)
        return {}


def _hashable(value: object) -> str | None:
    if isinstance(value, str):
        return value
    return None
