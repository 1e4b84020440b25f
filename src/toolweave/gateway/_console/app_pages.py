"""Pages of tools (MCP Apps, SEP-1865) on the console: read, framed in the sandbox, and their requests answered.

Every request goes through the gateway's own endpoint as the console does: its rules, limits and audit log hold. A
page knows its own server and nothing else: it names tools and resources as that server does, and learns of no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from toolweave._json_types import as_object, as_text, object_or_empty
from toolweave._text import shortened
from toolweave.config import is_loopback
from toolweave.errors import RequestError
from toolweave.gateway._admin.managed import ManagedGateway
from toolweave.gateway._console.app_sandbox import AppSandbox, frame_origin
from toolweave.gateway._console.forms import read_json
from toolweave.gateway._console.open_pages import MAX_URIS, OpenPage, OpenPages
from toolweave.gateway._console.requests import ConsolePage, ConsoleReply, ConsoleRequest
from toolweave.gateway._console.sessions import host_of
from toolweave.gateway._console.trial import ask_gateway
from toolweave.hub._hub import offer_names
from toolweave.hub._naming import name_uri
from toolweave.protocol import methods
from toolweave.protocol.app_pages import page_policy, read_document, without_result_type
from toolweave.protocol.apps import APP_SCHEME, is_for_pages, page_uri
from toolweave.protocol.codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from toolweave.protocol.jsonrpc import encode_value
from toolweave.protocol.resource_uris import with_uris
from toolweave.serve._http.asgi import Receive
from toolweave.serve.request import Json
from toolweave.tools import ToolSpec
from toolweave.tools.mcp import tool_definition

_MAX_REPORTED = 50
_LONGEST = 1_000
_FRAMES = "frames"
_JSON = (b"content-type", b"application/json")
# policies cannot name addresses of IPv6
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?")
_ELSEWHERE = (
    "Pages of tools are shown where the console is on this machine: they need an address of their own "
    "beside it, and elsewhere the console knows none. Open it at 127.0.0.1 or localhost."
)
_NEW_REPLICA = (
    "The page is not shown: another replica of the gateway has started since this page was opened. "
    "Reload this page, and call the tool again."
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


class AppHost:
    """The host of pages: frames them, and answers their requests.

    Args:
        gateway: The gateway.

    Attributes:
        sandbox: Serves the frames.
    """

    def __init__(self, gateway: ManagedGateway) -> None:
        self._gateway = gateway
        self._open = OpenPages(gateway.fleet.replicas)
        self.sandbox = AppSandbox()
        gateway.fleet.on(_FRAMES, self._frames_here)
        self.shown: Mapping[str, ConsolePage] = {"/app": self.document}
        self.changing: Mapping[str, ConsolePage] = {"/app": self.answer}

    async def frames(self, asked: ConsoleRequest, spec: ToolSpec) -> Mapping[int, str]:
        """Return the addresses below which the page of a tool may be framed, by their ports; empty without a page.

        The form of a page may be answered by any replica, which frames at its own port. So the page may frame at the
        ports of all replicas that are there when it is shown.
        """
        console = host_of(asked.headers)[0]
        found: dict[int, str] = {}
        if app_uri(spec) is None or not is_loopback(console):
            return found
        replies = await self._gateway.fleet.look(_FRAMES, {})
        for reply in replies.found.values():
            port = reply.get("port")
            if isinstance(port, int):
                found[port] = frame_origin(console, port).frames
        return dict(sorted(found.items()))

    async def _frames_here(self, body: Json) -> Json:
        """Return the port of the sandbox of this replica; None where no port is open."""
        return {"port": await self.sandbox.port()}

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
        if host is None:
            return ShownApp(uri, _ELSEWHERE)
        port = await self.sandbox.port()
        if port is None:
            return ShownApp(uri, _NO_PORT)
        if asked.fragment and str(port) not in asked.form.get("frames", "").split():
            # Only the outcome on the open page is replaced. Its policy stays, and was made before this replica started.
            return ShownApp(uri, _NEW_REPLICA)
        try:
            read = await ask_gateway(self._gateway, methods.RESOURCES_READ, {"uri": uri}, receive)
            if read is None:
                return ShownApp(uri, "The page did not come in time.")
            document = read_document(uri, read, self._listed(spec.server, own))
            values: Json = {
                "html": document.html,
                "csp": document.csp.json(),
                "tool": tool_definition(spec.replace(name=spec.original_name), modern=True),
                "arguments": arguments,
                "result": self._own_uris(spec.server, without_result_type(result)),
            }
            page = OpenPage(asked.signed_in.csrf, spec.server, encode_value(values, errors="replace"))
            key = await self._open.add(page)
        except RequestError as error:
            return ShownApp(uri, f"The page cannot be read: error {error.code}: {error.message}")
        except ValueError as error:
            return ShownApp(uri, f"The page cannot be shown: {error}")
        origin = frame_origin(host_of(asked.headers)[0], port)
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
        page = await self._page(asked)
        return _json_reply(page.body)

    async def answer(self, asked: ConsoleRequest, receive: Receive) -> ConsoleReply:
        """Answer a request of a page, a JSON-RPC message in a form, with its result or its error."""
        page = await self._page(asked)
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
        return _json_reply(encode_value(made, errors="replace"))

    async def _result(self, page: OpenPage, sent: Json, receive: Receive) -> Json:
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

    def _call(self, page: OpenPage, params: Mapping[str, Any]) -> Json:
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

    def _reading(self, page: OpenPage, params: Mapping[str, Any]) -> Json:
        """Return the parameters of a page's reading in the gateway, which goes to its own server alone.

        Raises:
            RequestError: The request names no URI, or too many were read.
        """
        uri = as_text(params.get("uri"))
        if uri is None:
            raise RequestError("a URI is expected", code=INVALID_PARAMS)
        if not page.takes(uri):
            raise RequestError(f"a page reads at most {MAX_URIS} resources", code=INVALID_PARAMS)
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

    async def _page(self, asked: ConsoleRequest) -> OpenPage:
        return await self._open.find(asked.query.get("id", ""), asked.signed_in)


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


def _json_reply(body: bytes) -> ConsoleReply:
    return ConsoleReply(200, body, [_JSON])
