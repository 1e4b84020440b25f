"""One client session that survives the replacement of the server process: pure, a message at a time.

Remembers the messages to repeat to a new process: the handshake, the log level, subscriptions, open listen streams.
Answers the requests that the old process can no longer answer. Knows no process and no pipe.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from toolweave._json_types import Json, JsonObject, array_or_empty, as_object, object_or_empty
from toolweave.protocol import methods
from toolweave.protocol.codes import INTERNAL_ERROR
from toolweave.protocol.jsonrpc import encode_error, encode_notification
from toolweave.protocol.meta import SUBSCRIPTION_ID
from toolweave.protocol.subscriptions import LIST_CHANGED, LIST_FILTERS, RESOURCE_SUBSCRIPTIONS

_ACKNOWLEDGED = methods.NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED
_PRIVATE = "toolweave-reload-"
_REPEATED = (methods.LOGGING_SET_LEVEL, methods.RESOURCES_SUBSCRIBE, methods.RESOURCES_UNSUBSCRIBE)


class ReloadRelay:
    """Passes messages between a client and the process that serves it now.

    Args:
        to_client: Sends a line to the client.
    """

    # A state machine. All methods are called by one task, so that nothing changes between two statements:
    #
    #   starting  `_held` is a list: lines of the client wait, the new process gets the repeated messages
    #   serving   `_held` is None and `_to_server` is set: lines pass
    #   retiring  `_retiring` and `_held` is a list: the process still answers, lines of the client wait for the next
    #   down      `_why_down` is set and `_held` is None: requests are refused with it
    #
    # A request of the client is in `_open` until it is answered, by a process or, once its process is gone, by us. So
    # each gets exactly one response, whichever process it reached.

    def __init__(self, to_client: Callable[[bytes], None]) -> None:
        self._to_client = to_client
        self._to_server: Callable[[bytes], None] | None = None
        self._held: list[bytes] | None = []  # from the client, until a process is ready
        self._retiring = False
        self._why_down: str | None = None
        self._initialize: Json | None = None
        self._agreed: JsonObject | None = None  # the response to it, as the client got it
        self._initialized = False
        # requests that a new process gets again, by what they set
        self._repeated: dict[str, Json] = {}
        self._open: dict[str, Json] = {}  # the client's requests without an answer
        self._asked: set[str] = set()  # the server's requests without an answer
        # our requests to the server, whose responses the client must not get
        self._own: set[str] = set()
        self._relistened: set[str] = set()
        self._numbers = 0

    # the client

    def from_client(self, line: bytes) -> None:
        """Handle a line of the client; it is held back until a process is ready."""
        if self._held is not None:
            self._held.append(line)
            return
        message = _parsed(line)
        if message is None or self._may_pass(message):
            if self._to_server is not None:
                self._to_server(line)
        elif self._why_down is not None and "method" in message:
            self._refuse(message, self._why_down)

    def _may_pass(self, message: Json) -> bool:
        """Record a message for later processes; return False to withhold it from the current one."""
        method = message.get("method")
        key = _key(message.get("id"))
        if method is None:
            known = key in self._asked
            self._asked.discard(key)
            return known  # an answer to a process that is gone
        if "id" not in message:
            if method == methods.NOTIFICATIONS_INITIALIZED:
                self._initialized = True
            elif method == methods.NOTIFICATIONS_CANCELLED:
                self._open.pop(_key(_params(message).get("requestId")), None)
            return self._why_down is None
        if method == methods.INITIALIZE:
            self._initialize = message
        if self._why_down is not None:
            return False
        self._open[key] = message
        return True

    # the process

    def attach(self, to_server: Callable[[bytes], None]) -> None:
        """Attach a new process: repeat the recorded messages to it."""
        self._to_server = to_server
        self._why_down = None
        self._retiring = False
        self._hold()
        if self._agreed is not None and self._initialize is not None:
            self._own.add(_key(f"{_PRIVATE}0"))
            to_server(_line({**self._initialize, "id": f"{_PRIVATE}0"}))
        else:
            self._ready()

    def from_server(self, line: bytes) -> None:
        """Handle a line of the process."""
        message = _parsed(line)
        if message is None:
            self._to_client(line)
            return
        key = _key(message.get("id"))
        if "method" not in message:
            if self._answered(key, message):
                self._to_client(line)
        elif "id" in message:
            self._asked.add(key)
            self._to_client(line)
        elif not self._is_second_acknowledgement(message):
            self._to_client(line)

    def retire(self) -> None:
        """Announce that the process will be replaced: messages of the client are held back for the next one."""
        self._retiring = True
        self._hold()

    def _hold(self) -> None:
        """Hold lines of the client back from now on; those that are held already stay."""
        if self._held is None:
            self._held = []

    def _release(self) -> None:
        """Handle the lines that were held back, in their order."""
        held = self._held
        self._held = None
        if held is not None:
            for line in held:
                self.from_client(line)

    def detach(self, why: str, *, down: bool = False) -> None:
        """Detach an ended process: its open requests are answered with the error `why`, listen streams stay open.

        With `down` no other process follows at once, and requests are refused until one does.
        """
        self._to_server = None
        self._asked.clear()
        self._own.clear()
        for key, message in list(self._open.items()):
            if message["method"] != methods.SUBSCRIPTIONS_LISTEN:
                del self._open[key]
                self._refuse(message, why)
        if down:
            self._why_down = why
            self._release()
        else:
            self._why_down = None
            self._hold()

    def _answered(self, key: str, message: Json) -> bool:
        """Record an answer of the process; return False to withhold it from the client."""
        if key in self._own:
            self._own.discard(key)
            if key == _key(f"{_PRIVATE}0"):
                self._ready()
            return False
        request = self._open.get(key)
        # an error without an id is for the client, a response to a cancelled request is not
        if request is None:
            return message.get("id") is None
        method = request["method"]
        if self._retiring and method == methods.SUBSCRIPTIONS_LISTEN:
            return False  # it continues with the next process
        del self._open[key]
        result = as_object(message.get("result"))
        if result is None:  # an error changes nothing that a new process needs
            return True
        if method == methods.INITIALIZE:
            self._agreed = result
        elif method in _REPEATED:
            self._remember(request)
        return True

    def _remember(self, message: Json) -> None:
        method = message["method"]
        uri = str(_params(message).get("uri"))
        if method == methods.RESOURCES_UNSUBSCRIBE:
            self._repeated.pop(f"{methods.RESOURCES_SUBSCRIBE} {uri}", None)
        elif method == methods.LOGGING_SET_LEVEL:
            self._repeated[method] = message
        else:
            self._repeated[f"{method} {uri}"] = message

    def _ready(self) -> None:
        """Repeat the recorded messages to an initialized process, and notify the client of possible changes."""
        to_server = self._to_server
        if to_server is None:
            return
        if self._initialized and self._agreed is not None:
            to_server(encode_notification(methods.NOTIFICATIONS_INITIALIZED, {}))
        for message in self._repeated.values():
            self._numbers += 1
            self._own.add(_key(f"{_PRIVATE}{self._numbers}"))
            to_server(_line({**message, "id": f"{_PRIVATE}{self._numbers}"}))
        for key, message in self._open.items():
            if message["method"] == methods.SUBSCRIPTIONS_LISTEN:
                self._relistened.add(key)
                to_server(_line(message))
        self._notify_changed()
        # last, so that a request sees the new process with its log level and subscriptions
        self._release()

    def _notify_changed(self) -> None:
        """Send a legacy client the list-changed notifications that the server's capabilities promised."""
        if not self._initialized or self._agreed is None:
            return
        capabilities = object_or_empty(self._agreed.get("capabilities"))
        for name, changed in LIST_CHANGED.items():
            if object_or_empty(capabilities.get(name)).get("listChanged") is True:
                self._to_client(encode_notification(changed, {}))

    def _is_second_acknowledgement(self, message: Json) -> bool:
        """Swallow the acknowledgement of a reopened listen stream; the client gets change notifications instead."""
        params = _params(message)
        identity = object_or_empty(params.get("_meta")).get(SUBSCRIPTION_ID)
        key = _key(identity)
        if message.get("method") != _ACKNOWLEDGED or key not in self._relistened:
            return False
        self._relistened.discard(key)
        honoured = object_or_empty(params.get("notifications"))
        stamp = {"_meta": {SUBSCRIPTION_ID: identity}}
        for name, listed in LIST_FILTERS.items():
            if honoured.get(listed) is True:
                self._notify(LIST_CHANGED[name], stamp)
        for uri in array_or_empty(honoured.get(RESOURCE_SUBSCRIPTIONS)):
            self._notify(methods.NOTIFICATIONS_RESOURCES_UPDATED, {"uri": uri, **stamp})
        return True

    def _notify(self, method: str, params: Json) -> None:
        self._to_client(encode_notification(method, params))

    def _refuse(self, message: Json, reason: str) -> None:
        if "id" in message:
            self._to_client(encode_error(message["id"], INTERNAL_ERROR, reason))


def _parsed(line: bytes) -> Json | None:
    """Return a parsed message; None for any other line, which is passed on unparsed."""
    try:
        message = as_object(json.loads(line))
    except (ValueError, RecursionError):
        return None
    return None if message is None else dict(message)


def _line(message: JsonObject) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def _key(identity: object) -> str:
    """Return an id as a key: 1 and "1" are different ids, and equal to other values in Python."""
    return json.dumps(identity)


def _params(message: Json) -> JsonObject:
    return object_or_empty(message.get("params"))
