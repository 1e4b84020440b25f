"""A client of the admin API of a gateway that runs elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import anyio
import msgspec

from toolweave._json import decode_json
from toolweave.config import is_loopback
from toolweave.errors import AuthRequiredError, ConfigError, ConnectError, ServerError, printable
from toolweave.gateway._admin.status import GatewayStatus, UpstreamStatus
from toolweave.gateway._admin.token import kept_token
from toolweave.gateway._callers.revoked_keys import KeyRevocation, KeyStatus
from toolweave.gateway._config.reload import ConfigChange
from toolweave.http import DEFAULT_PORTS, HttpClient, TransportError, http_proxy_for

_MAX_BYTES = 16 * 1024 * 1024
_CONNECT_SECONDS = 10.0
_START_SECONDS = 200.0
"""The bound of a request, in seconds: the gateway itself allows a server that is added a little less."""

AnswerT = TypeVar("AnswerT")


class _ErrorBody(msgspec.Struct):
    """The error of a refused request."""

    code: str
    message: str


class _ErrorDocument(msgspec.Struct):
    error: _ErrorBody


class _Keys(msgspec.Struct):
    keys: tuple[KeyStatus, ...]


class _ConsoleLink(msgspec.Struct):
    path: str


class GatewayAdmin:
    """Shows and changes the servers of a running gateway: `async with GatewayAdmin(url) as admin`.

    Args:
        url: The gateway's address, such as `http://127.0.0.1:8000`; the path of its admin API may follow.
        token: Its admin token; by default the one that a gateway of this machine and user has kept for its commands.

    Raises:
        ConfigError: The URL is not valid, or no token for it was found.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or DEFAULT_PORTS.get(parts.scheme)
        except ValueError:
            parts = urlsplit("")
            port = None
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname or port is None:
            raise ConfigError(
                f"{printable(url)!r} is not the address of a gateway; expected http://HOST:PORT", field="url"
            )
        # Only for this machine: a token that is kept here must not be sent to another host that a user has mistyped.
        if token is None and is_loopback(parts.hostname):
            token = kept_token(port)
        if token is None:
            if is_loopback(parts.hostname):
                reason = f"your user runs no gateway on port {port} of this machine; check the port"
            else:
                reason = "start the gateway with --admin-token-env, and give its token here in the same way"
            raise ConfigError(f"no admin token is known: {reason}", field="token")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ConfigError("the admin token is not sent over plain http to another machine; use https", field="url")
        # Without a user and a password, because it is shown in errors.
        self._name = parts.netloc.rpartition("@")[2]
        self._origin = f"{parts.scheme}://{self._name}"
        self._path = parts.path.rstrip("/") or "/admin"
        self._headers = {
            "authorization": f"Bearer {token}",
            "accept": "application/json",
            "accept-encoding": "identity",
        }
        # A proxy would send the token to another machine, where this loopback address means that machine.
        if is_loopback(parts.hostname):
            proxy = None
        else:
            proxy = http_proxy_for(url)
        self._client = HttpClient(url, connect_seconds=_CONNECT_SECONDS, max_connections=1, proxy=proxy)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()

    async def status(self) -> GatewayStatus:
        """Return the state of the gateway.

        Raises:
            ConnectError: It cannot be reached, or refuses the token.
        """
        return self._decoded(await self._send("GET", "/status"), GatewayStatus)

    async def add(self, name: str, config: Mapping[str, Any] | str) -> UpstreamStatus:
        """Add a server; returns once it is connected.

        Args:
            name: Its name.
            config: Its entry as in a config file, its URL or its command line.

        Raises:
            ConfigError: The entry is wrong, or the name is taken.
            ServerError: The server cannot be reached; or it is the gateway that cannot, or refuses the token.
        """
        body = msgspec.json.encode({"name": name, "config": config})
        return self._decoded(await self._send("POST", "/servers", body, server=name), UpstreamStatus)

    async def remove(self, name: str) -> None:
        """Remove a server.

        Raises:
            ConfigError: The gateway has no such server.
            ConnectError: The gateway cannot be reached, or refuses the token.
        """
        await self._send("DELETE", f"/servers/{quote(name, safe='')}", server=name)

    async def reload(self, *, confirmed: bool = False) -> ConfigChange:
        """Let the gateway read its config again; `error` says why it was refused.

        Args:
            confirmed: Apply a config that loses most of the servers, or the rules, in use; see `GatewayManager.reload`.

        Raises:
            ConnectError: It cannot be reached, or refuses the token.
        """
        body = msgspec.json.encode({"confirmed": True} if confirmed else {})
        return self._decoded(await self._send("POST", "/reload", body, accepted=(200, 422)), ConfigChange)

    async def keys(self) -> tuple[KeyStatus, ...]:
        """Return the API keys of its clients, without the keys themselves.

        Raises:
            ConnectError: It cannot be reached, or refuses the token.
        """
        return self._decoded(await self._send("GET", "/keys"), _Keys).keys

    async def revoke_key(self, name: str) -> KeyRevocation:
        """Revoke the API keys of a client, at every replica of the gateway.

        Raises:
            ConfigError: The gateway has no key of this name.
            ConnectError: The gateway cannot be reached, or refuses the token.
        """
        return self._decoded(await self._send("DELETE", f"/keys/{quote(name, safe='')}"), KeyRevocation)

    async def console_link(self) -> str:
        """Return a new address that signs in to the console once, within an hour.

        Raises:
            ConfigError: The gateway has no console.
            ConnectError: It cannot be reached, or refuses the token.
        """
        found = self._decoded(await self._send("POST", "/console", b"{}"), _ConsoleLink)
        return self._origin + found.path

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        server: str | None = None,
        accepted: Collection[int] = (200, 201, 204),
    ) -> bytes:
        """Send a request to the admin API and return the body of its response.

        Args:
            method: The HTTP method.
            path: The path behind that of the API.
            body: JSON text, or nothing.
            server: The server that the request is about, for the error if the gateway cannot reach it.
            accepted: The statuses of a success.

        Raises:
            AuthRequiredError: The gateway refuses the token.
            ConfigError: The gateway refuses the request.
            ConnectError: The gateway cannot be reached, or has no admin API at this address.
            ServerError: The gateway cannot reach the server.
        """
        headers = {**self._headers, "content-type": "application/json"}
        try:
            with anyio.fail_after(_START_SECONDS):
                response = await self._client.send(method, self._path + path, headers, body)
                with response:
                    status = response.status
                    data = await response.read(_MAX_BYTES)
        except TransportError as error:
            raise self._unreachable(str(error)) from None
        except TimeoutError:
            raise self._unreachable(f"no answer within {_START_SECONDS:g} s") from None
        if status in (401, 403):
            raise AuthRequiredError("it refused the admin token", server=self._name, status=status)
        # The admin API answers 404 with an error document, for an unknown server. Another 404 is that of an
        # application without this API.
        if status == 404 and b'"error"' not in data:
            raise self._unreachable("it has no admin API there; it has one on loopback, or with --admin-token-env")
        if status not in accepted:
            raise self._refused(status, data, server)
        return data

    def _decoded(self, data: bytes, kind: type[AnswerT]) -> AnswerT:
        try:
            return decode_json(data, kind)
        except (ValueError, RecursionError):
            raise self._unreachable("its answer is not that of a gateway's admin API") from None

    def _refused(self, status: int, data: bytes, server: str | None) -> Exception:
        try:
            found = decode_json(data, _ErrorDocument).error
        except (ValueError, RecursionError):
            return self._unreachable(f"it answered with status {status}")
        text = printable(found.message)
        if found.code == "unreachable" and server is not None:
            return ServerError(text.removeprefix(f"server {server!r}: "), server=server)
        return ConfigError(text)

    def _unreachable(self, why: str) -> ConnectError:
        return ConnectError(f"the gateway was not reached: {printable(why)}", server=self._name)
