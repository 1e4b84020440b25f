"""Pages of tools (MCP Apps, SEP-1865) on the console: read, framed in the sandbox, and their requests answered.

Every request goes through the gateway's own endpoint as the console does: its rules, limits and audit log hold. A
page knows its own server and nothing else: it names tools and resources as that server does, and learns of no other.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from toolweave._json_types import as_object, as_text, object_or_empty
from toolweave._text import shortened
from toolweave.config import is_loopback
from toolweave.errors import RequestError
from toolweave.gateway._admin.managed import ManagedGateway
from toolweave.gateway._console.app_sandbox import AppSandbox, FrameOrigin
from toolweave.gateway._console.forms import read_json
from toolweave.gateway._console.requests import ConsolePage, ConsoleRefusal, ConsoleReply, ConsoleRequest, policy
from toolweave.gateway._console.sessions import ConsoleSession, host_of
from toolweave.gateway._console.trial import ask_gateway
from toolweave.hub._hub import offer_names
from toolweave.hub._naming import name_uri
from toolweave.protocol import methods
from toolweave.protocol.app_pages import AppDocument, page_policy, read_document, without_result_type
from toolweave.protocol.apps import APP_SCHEME, is_for_pages, page_uri
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from toolweave.protocol.jsonrpc import encode_value
from toolweave.protocol.resource_uris import with_uris
from toolweave.serve._http.asgi import Receive
from toolweave.serve.request import Json
from toolweave.tools import ToolSpec
from toolweave.tools.mcp import tool_definition

_MAX_PAGES = 50
_MAX_URIS = 500
_MAX_REPORTED = 50
_LONGEST = 1_000
_JSON = (b"content-type", b"application/json")
# policies cannot name addresses of IPv6
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?")
_ELSEWHERE = (
    "Pages of tools are shown where the console is on this machine: they need an address of their own "
    "beside it, and elsewhere the console knows none. Open it at 127.0.0.1 or localhost."
)
_NO_PORT = "The page is not shown: the port of its sandbox is not open; see the log of the gateway."


class ShownApp(NamedTuple):
    """The page of a tool as a page of the console shows it.

    Attributes:
        uri: Its URI, in the gateway.
        problem: Why it is not shown; "" where it is.
        address: Where its document is, and its requests go.
        frame: The address of its frame.
        border: Whether it is drawn with a border.
        uses: The origins that it may use, as texts.
        refused: The permissions and origins it asks for and is not given, as texts.
    """

    uri: str
    problem: str = ""
    address: str = ""
    frame: str = ""
    border: bool = True
    uses: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class _OpenPage:
    """A page that was framed: its tool, and the requests that it may make.

    Attributes:
        session: The session of the browser that shows it.
        server: Its server.
        document: The document.
        payload: The values that its host passes to it: the tool, the arguments and the result.
    """

    def __init__(self, session: ConsoleSession, server: str, document: AppDocument, payload: Json) -> None:
        self.session = session
        self.server = server
        self.document = document
        self.payload = payload
        self._uris: set[str] = set()

    def takes(self, uri: str) -> bool:
        """Whether it may ask for one more resource: a page that goes through URIs must not fill the memory."""
        if len(self._uris) < _MAX_URIS:
            self._uris.add(uri)
        return uri in self._uris


class AppHost:
    """The host of pages: frames them, and answers their requests.

    Args:
        gateway: The gateway.

    Attributes:
        sandbox: Serves the frames.
    """

    def __init__(self, gateway: ManagedGateway) -> None:
        self._gateway = gateway
        self._open: dict[str, _OpenPage] = {}
        self.sandbox = AppSandbox()
        self.shown: Mapping[str, ConsolePage] = {"/app": self.document}
        self.changing: Mapping[str, ConsolePage] = {"/app": self.answer}

    async def framing(self, asked: ConsoleRequest, spec: ToolSpec, reply: ConsoleReply) -> ConsoleReply:
        """Return the page of a tool with the policy under which it may frame the tool's page."""
        if app_uri(spec) is not None:
            origin = await self._origin(asked)
        else:
            origin = None
        if origin is None:
            return reply
        return reply._replace(headers=[*reply.headers, policy(frames=origin.frames)])

    async def show(
        self, asked: ConsoleRequest, spec: ToolSpec, arguments: Json, result: Json | None, receive: Receive
    ) -> ShownApp | None:
        """Frame the page of a tool for a result; None where the tool has no page, or the call no result.

        Args:
            asked: The request of the browser.
            spec: The tool.
            arguments: The arguments of the call.
            result: Its result.
            receive: ASGI's, which reports when the browser is gone.
        """
        own = app_uri(spec)
        if own is None or spec.server is None or result is None:
            return None
        uri = self._exposed(spec.server, own)
        host = _origin_of(asked)
        origin = None if host is None else await self._origin(asked)
        if host is None or origin is None:
            return ShownApp(uri, _NO_PORT if host is not None else _ELSEWHERE)
        try:
            read = await ask_gateway(self._gateway, methods.RESOURCES_READ, {"uri": uri}, receive)
            if read is None:
                return ShownApp(uri, "The page did not come in time.")
            document = read_document(uri, read, self._listed(spec.server, own))
            payload: Json = {
                "tool": tool_definition(spec.replace(name=spec.original_name), modern=True),
                "arguments": arguments,
                "result": self._own_uris(spec.server, without_result_type(result)),
            }
        except RequestError as error:
            return ShownApp(uri, f"The page cannot be read: error {error.code}: {error.message}")
        except ValueError as error:
            return ShownApp(uri, f"The page cannot be shown: {error}")
        key = self._keep(_OpenPage(asked.signed_in, spec.server, document, payload))
        return ShownApp(
            uri,
            address=asked.url("/app", id=key),
            frame=self.sandbox.add(origin, page_policy(document.csp, host=host), host),
            border=document.prefers_border is not False,
            uses=_shown(tuple(f"{name}: {', '.join(origins)}" for name, origins in document.csp.json().items())),
            refused=_shown((*document.refused, *(f"permission: {one}" for one in document.permissions))),
        )

    async def document(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Return a page that was framed, as JSON: its document, the policy, and the values its host passes to it."""
        page = self._page(asked)
        found = {"html": page.document.html, "csp": page.document.csp.json(), **page.payload}
        return _json_reply(found)

    async def answer(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Answer a request of a page, a JSON-RPC message in a form, with its result or its error."""
        page = self._page(asked)
        made: Json
        try:
            sent = read_json(asked.form.get("message", ""))
            made = {"result": await self._result(page, sent, receive)}
        except ValueError as error:
            made = {"error": {"code": INVALID_REQUEST, "message": str(error)}}
        except RequestError as error:
            made = {"error": {"code": error.code, "message": error.message}}
            if error.data is not None:
                made["error"]["data"] = error.data
        return _json_reply(made)

    async def _result(self, page: _OpenPage, sent: Json, receive: Receive) -> Json:
        """Return the result of a request of a page.

        Raises:
            RequestError: It is refused, or the answer is an error.
            ValueError: The response is not a result.
        """
        params = object_or_empty(sent.get("params"))
        match sent.get("method"):
            case methods.TOOLS_CALL:
                method = methods.TOOLS_CALL
                asked = self._call(page, params)
            case methods.RESOURCES_READ:
                method = methods.RESOURCES_READ
                asked = self._reading(page, params)
            case _:
                raise RequestError("Method not found: pages call tools and read resources", code=METHOD_NOT_FOUND)
        result = await ask_gateway(self._gateway, method, asked, receive)
        if result is None:
            raise RequestError("no result in time: the request was cancelled", code=INTERNAL_ERROR)
        return self._own_uris(page.server, without_result_type(result))

    def _call(self, page: _OpenPage, params: Mapping[str, Any]) -> Json:
        """Return the parameters of a page's call in the gateway.

        Raises:
            RequestError: The tool is not of its server, or not for pages.
        """
        name = as_text(params.get("name"))
        arguments = as_object(params.get("arguments", {}))
        if name is None or arguments is None:
            raise RequestError("a name, and an object of arguments, are expected", code=INVALID_PARAMS)
        every = self._gateway.hub.snapshot()
        spec = next((one for one in every if (one.server, one.original_name) == (page.server, name)), None)
        if spec is None:
            raise RequestError(
                f"Unknown tool: {name}; a page can only call tools of the server that it is from", code=INVALID_PARAMS
            )
        if not is_for_pages(spec.meta):
            raise RequestError(f"the tool {name} is not for pages: its visibility says so", code=INVALID_PARAMS)
        return {"name": spec.name, "arguments": dict(arguments)}

    def _reading(self, page: _OpenPage, params: Mapping[str, Any]) -> Json:
        """Return the parameters of a page's reading in the gateway, which goes to its own server alone.

        Raises:
            RequestError: The request names no URI, or too many were read.
        """
        uri = as_text(params.get("uri"))
        if uri is None:
            raise RequestError("a URI is expected", code=INVALID_PARAMS)
        if not page.takes(uri):
            raise RequestError(f"a page reads at most {_MAX_URIS} resources", code=INVALID_PARAMS)
        return {"uri": self._exposed(page.server, uri)}

    def _exposed(self, server: str, own: str) -> str:
        """Return the URI in the gateway of a server's own, which is its server's from now on."""
        return name_uri(server, own, offer_names(self._gateway.hub).given("resource"))

    def _own_uris(self, server: str, result: Json) -> Json:
        """Return a result with the URIs as its server knows them."""
        return with_uris(result, offer_names(self._gateway.hub).given("resource").names_of(server))

    def _listed(self, server: str, own: str) -> Mapping[str, Any] | None:
        """Return the `_meta` of a resource where it is listed."""
        client = self._gateway.hub.clients.get(server)
        if client is None:
            found = ()
        else:
            found = client.gateway_side.list_facts("resources").items
        return next((one.meta for one in found if one.uri == own), None)

    def _keep(self, page: _OpenPage) -> str:
        while len(self._open) >= _MAX_PAGES:
            del self._open[next(iter(self._open))]
        name = secrets.token_urlsafe(32)
        self._open[name] = page
        return name

    def _page(self, asked: ConsoleRequest) -> _OpenPage:
        page = self._open.get(asked.query.get("id", ""))
        if page is None or page.session.csrf != asked.signed_in.csrf:
            raise ConsoleRefusal(404, "This page is no longer open: call its tool again.")
        return page

    async def _origin(self, asked: ConsoleRequest) -> FrameOrigin | None:
        """Return the origin of the frames for a browser, or None if no port is open."""
        name = host_of(asked.headers)[0]
        if is_loopback(name):
            return await self.sandbox.origin(name)
        return None


def app_uri(spec: ToolSpec) -> str | None:
    """Return the URI of a tool's page, as its server has it."""
    uri = page_uri(spec.meta) if spec.meta else None
    if uri is not None and uri.startswith(APP_SCHEME):
        return uri
    return None


def _origin_of(asked: ConsoleRequest) -> str | None:
    """Return the origin of the page that sent a form, on this machine; None for any other."""
    name = host_of(asked.headers)[0]
    origin = asked.headers.get(b"origin", b"http://" + asked.headers.get(b"host", b"")).decode("latin-1").lower()
    if is_loopback(name) and _ORIGIN.fullmatch(origin):
        return origin
    return None


def _shown(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(shortened(text, _LONGEST) for text in texts[:_MAX_REPORTED])


def _json_reply(value: Json) -> ConsoleReply:
    return ConsoleReply(200, encode_value(value, errors="replace"), [_JSON])
