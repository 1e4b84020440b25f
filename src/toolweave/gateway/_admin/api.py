"""The admin API of a gateway: its status, servers added and removed, and the config reloaded.

The holder of the token can start programs on this machine. It is compared in constant time, sent in the header
`Authorization` alone, and never shown; requests pass the guard of the endpoint as well, so that no web page can
send them.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from toolweave._json import decode_json
from toolweave._masking import mask_tokens
from toolweave.errors import ConfigError, ServerError, printable
from toolweave.serve._http.asgi import Receive, Scope, Send, path_of, read_body, respond
from toolweave.serve._http.response import respond_json

if TYPE_CHECKING:
    from toolweave.gateway._admin.managed import ManagedGateway
    from toolweave.gateway._callers.revoked_keys import KeyRevocation
    from toolweave.gateway._config.reload import ConfigChange

_log = logging.getLogger("toolweave.gateway")

_MAX_BYTES = 256 * 1024
_BODY_SECONDS = 10.0
_NO_STORE = [(b"cache-control", b"no-store")]
_MIN_TOKEN = 16


class _NewServer(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that adds a server."""

    name: str
    config: dict[str, Any] | str


class _ReloadOptions(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request to read the config again."""

    confirmed: bool = False


class _AdminRefusal(Exception):
    """An error response: its status, a word for programs, and a human-readable text."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class AdminApi:
    """The admin API as an ASGI app.

    ===========================  =======================================================
    `GET PATH/status`            the state of the gateway
    `GET PATH/servers`           the states of its upstreams
    `POST PATH/servers`          adds `{"name": ..., "config": ...}`
    `DELETE PATH/servers/NAME`   removes one
    `GET PATH/keys`              the names of the API keys, and which are revoked
    `DELETE PATH/keys/NAME`      revokes the keys of a client, at every replica
    `POST PATH/reload`           reads the config again; `{"confirmed": true}` applies losses
    `POST PATH/console`          makes a link that signs in to the console: `{"path": ...}`
    ===========================  =======================================================

    Args:
        manager: The gateway.
        token: The token that requests must bring, of at least 16 characters.
        path: The path that it is served at.

    Raises:
        ConfigError: The token is too short.
    """

    def __init__(self, manager: ManagedGateway, token: str, *, path: str = "/admin") -> None:
        if len(token) < _MIN_TOKEN:
            raise ConfigError(f"the admin token must have at least {_MIN_TOKEN} characters", field="admin_token")
        self._manager = manager
        # Digests have one length, so the comparison does not even depend on the length of the token, and the token
        # itself is not kept.
        self._digest = _digest(token.encode())
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        # Before the path is looked at: without the token nobody learns what there is.
        if not self._authorized(scope):
            challenge = [(b"www-authenticate", b'Bearer realm="admin"')]
            await respond(send, 401, "The admin token is missing or wrong", challenge)
            return
        try:
            status, body = await self._answer(scope["method"], path_of(scope).removeprefix(self._path), receive)
        except _AdminRefusal as refusal:
            status = refusal.status
            # A text of a server may be in it, which must not control the terminal that shows it; and a name of the
            # request, which may be a key that was given by mistake.
            body = {"error": {"code": refusal.code, "message": printable(mask_tokens(str(refusal)))}}
        if status == 204:
            await respond(send, 204)
        else:
            await respond_json(send, status, msgspec.json.encode(body), _NO_STORE)

    def _authorized(self, scope: Scope) -> bool:
        value = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = value.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(_digest(token.strip()), self._digest)

    async def _answer(self, method: str, path: str, receive: Receive) -> tuple[int, Any]:
        what, _, name = path.strip("/").partition("/")
        match method, what, bool(name):
            case "GET", "status", False:
                return 200, self._manager.status()
            case "GET", "servers", False:
                return 200, {"servers": self._manager.status().upstreams}
            case "POST", "servers", False:
                return 201, await self._add(receive)
            case "DELETE", "servers", True:
                return await self._remove(name)
            case "GET", "keys", False:
                return 200, {"keys": self._manager.keys.statuses()}
            case "DELETE", "keys", True:
                return 200, await self._revoke(name)
            case "POST", "reload", False:
                change = await self._reload(receive)
                return (200 if change.error is None else 422), change
            case "POST", "console", False:
                return 200, self._console()
            case _, ("status" | "servers" | "keys" | "reload" | "console"), _:
                raise _AdminRefusal(405, "method_not_allowed", f"{method} is not for this path")
            case _:
                text = f"there are {self._path}/status, /servers, /keys, /reload and /console"
                raise _AdminRefusal(404, "not_found", text)

    def _console(self) -> dict[str, str]:
        path = self._manager.console_link()
        if path is None:
            raise _AdminRefusal(404, "not_found", f"this gateway has no console: {_no_console()}")
        _log.warning("a link to the console was made through the admin API")
        return {"path": path}

    async def _reload(self, receive: Receive) -> ConfigChange:
        body = await _body_of(receive)
        try:
            if body.strip():
                options = decode_json(body, _ReloadOptions)
            else:
                options = _ReloadOptions()
        except (ValueError, RecursionError):
            raise _AdminRefusal(400, "invalid_request", 'expected no body, {} or {"confirmed": true}') from None
        return await self._manager.reload(confirmed=options.confirmed)

    async def _add(self, receive: Receive) -> Any:
        body = await _body_of(receive)
        try:
            wanted = decode_json(body, _NewServer)
        except (ValueError, RecursionError):
            raise _AdminRefusal(
                400, "invalid_request", 'expected {"name": NAME, "config": an entry, a URL or a command}'
            ) from None
        if not wanted.name or "/" in wanted.name:
            raise _AdminRefusal(400, "invalid_request", "the name of a server is expected, without '/'")
        try:
            found = await self._manager.add(wanted.name, wanted.config)
        except ConfigError as error:
            raise _AdminRefusal(400, "config", str(error)) from None
        except ServerError as error:
            raise _AdminRefusal(502, "unreachable", str(error)) from None
        # At the level of a warning, since the owner should see in any log who changed the servers.
        _log.warning("server %r was added through the admin API", wanted.name)
        return found

    async def _remove(self, name: str) -> tuple[int, Any]:
        try:
            await self._manager.remove(name)
        except KeyError:
            raise _AdminRefusal(404, "not_found", f"server {name!r} was not found") from None
        _log.warning("server %r was removed through the admin API", name)
        return 204, None

    async def _revoke(self, name: str) -> KeyRevocation:
        try:
            return await self._manager.keys.revoke(name)
        except KeyError:
            raise _AdminRefusal(404, "not_found", f"API key {name!r} was not found") from None


def _no_console() -> str:
    """Return what to do to have a console."""
    if find_spec("jinja2") is None:
        return "install it with pip install 'toolweave[console]' where the gateway runs, and start the gateway again"
    return "start it with --ui"


async def _body_of(receive: Receive) -> bytes:
    body: bytes | None = b""
    # A body that never ends must not hold a connection.
    with anyio.move_on_after(_BODY_SECONDS) as bound:
        body = await read_body(receive, _MAX_BYTES)
    if bound.cancelled_caught or body is None:
        raise _AdminRefusal(413, "too_large", "the body is too large, or did not come in time")
    return body


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
