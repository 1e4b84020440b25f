"""The REST view of an endpoint: `POST /tools/NAME` calls a tool, and `GET /openapi.json` describes them all.

Each request becomes a request of MCP and goes through the endpoint, so that the same rules, limits and middleware hold
for it; a caller sees the tools that `tools/list` shows it. Its tools cannot ask: a REST client declares no
capabilities.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import anyio
import msgspec

from toolweave._json import decode_json
from toolweave._json_types import (
    JsonObject,
    as_array,
    as_object,
    as_text,
    object_entries,
    text_or_empty,
    without_members,
)
from toolweave.errors import RequestError
from toolweave.protocol import methods
from toolweave.protocol.codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    URL_ELICITATION_REQUIRED,
)
from toolweave.protocol.input_required import INPUT_REQUIRED
from toolweave.protocol.jsonrpc import encode_value
from toolweave.protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, SERVER_INFO
from toolweave.protocol.versions import MODERN_VERSION
from toolweave.schema.validate import usable_validator
from toolweave.serve._auth.gate import OperationGate
from toolweave.serve._http.asgi import Receive, Scope, Send, VisibleHeaders, path_of, read_body
from toolweave.serve._http.dispatcher import CallerMustWait, HttpDispatcher, ParsedRequest
from toolweave.serve._http.response import HTTP_STATUS, PostResponse, ResponseLimits, respond_json
from toolweave.serve._http.shares import RETRY_SECONDS
from toolweave.serve._task_spawner import SpawnsTasks
from toolweave.serve.request import Json
from toolweave.version import VERSION

MAX_TOOLS = 2_000
"""The most tools that the document describes."""
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
_MAX_PAGES = 200
_TRACING = ("traceparent", "tracestate", "baggage")
_COMPONENTS = "#/components/schemas/"
_ENVELOPE: Mapping[str, Any] = {
    PROTOCOL_VERSION: MODERN_VERSION,
    CLIENT_CAPABILITIES: {},
    CLIENT_INFO: {"name": "rest", "version": VERSION},
}
_CLOSE = [(b"connection", b"close")]
_NO_STORE = [(b"cache-control", b"no-store")]
_ASKING = "the tool asks for input, which this view has no way to give; call it over MCP"

SchemaOf = Callable[[str], Mapping[str, Any] | None]


class RestView:
    """The apps of one endpoint's REST view.

    Args:
        dispatcher: The endpoint's requests over HTTP.
        tasks: Where disconnected clients are watched for.
        gate: Refuses operations that a token lacks scopes for.
        bounds: The timeouts, and the maximum length of a body.
        schema_of: Returns a tool's input schema by its name; without, wrong arguments count as a failure of the tool.
        base: The path that all paths of the view begin with.
    """

    def __init__(
        self,
        dispatcher: HttpDispatcher,
        tasks: SpawnsTasks,
        gate: OperationGate,
        bounds: ResponseLimits,
        *,
        schema_of: SchemaOf | None = None,
        base: str = "",
    ) -> None:
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._gate = gate
        self._bounds = bounds
        self._schema_of = schema_of
        self._base = base

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve `POST BASE/tools/NAME`: the body is the object of arguments, the answer the result of the call."""
        try:
            await self._call(scope, receive, send)
        except CallerMustWait as busy:
            await _refuse_busy(send, busy)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = path_of(scope).removeprefix(f"{self._base}/tools").removeprefix("/")
        if not name:
            await _respond_error(send, 404, "not_found", "the name of a tool is expected: /tools/NAME")
            return
        if scope["method"] != "POST":
            await _respond_error(send, 405, "method_not_allowed", "a tool is called by POST", [(b"allow", b"POST")])
            return
        with self._dispatcher.working(scope) as work:
            response = _CallResponse(receive, send, work, self._tasks, self._bounds, streams=False)
            try:
                arguments = await self._arguments(receive)
            except RequestError as error:
                response.close()
                status = 413 if error.data == "too large" else 400
                await _respond_error(send, status, "invalid_request", error.message)
                return
            except BaseException:
                response.close()
                if work.cancel_called:
                    with anyio.move_on_after(1, shield=True):
                        await _respond_error(send, 408, "timeout", "the body did not come in time", _CLOSE)
                raise
            params: Json = {"name": name, "arguments": arguments, "_meta": _envelope(scope)}
            if (refusal := self._gate.refusal(scope, [(methods.TOOLS_CALL, params)])) is not None:
                response.close()
                await refusal.send(send)
                return
            response.fits = lambda: _fits(None if self._schema_of is None else self._schema_of(name), arguments)
            response.begin()
            request = ParsedRequest(0, methods.TOOLS_CALL, params)
            await self._dispatcher.answer(request, scope, response, work)

    async def document(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve `GET BASE/openapi.json`: the tools that the caller may see, as OpenAPI 3.1."""
        try:
            await self._document(scope, receive, send)
        except CallerMustWait as busy:
            await _refuse_busy(send, busy)

    async def _document(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await _respond_error(send, 405, "method_not_allowed", "GET is expected", [(b"allow", b"GET, HEAD")])
            return
        with self._dispatcher.working(scope) as work:
            tools: list[JsonObject] = []
            cursor: str | None = None
            for _ in range(_MAX_PAGES):
                page = _ListResponse(receive, send, work, self._tasks, self._bounds, streams=False)
                page.begin()
                params: Json = {"_meta": _envelope(scope)} | ({} if cursor is None else {"cursor": cursor})
                request = ParsedRequest(0, methods.TOOLS_LIST, params)
                await self._dispatcher.answer(request, scope, page, work)
                if page.answered or work.cancel_called:
                    return
                tools += page.tools
                cursor = page.following
                # One beyond the maximum is enough: the document says then that there are more.
                if cursor is None or len(tools) > MAX_TOOLS:
                    break
            info = self._dispatcher.server_info
            secured = self._gate.authorizes
            document = openapi(tools, base=self._base, info=info, secured=secured)
            body = encode_value(document, errors="replace", allow_nan=True)
            if len(body) > MAX_DOCUMENT_BYTES:
                await _respond_error(send, 507, "too_large", f"the document is larger than {MAX_DOCUMENT_BYTES} bytes")
                return
            await respond_json(send, 200, body, _NO_STORE)

    async def _arguments(self, receive: Receive) -> Json:
        body = await read_body(receive, self._bounds.body_bytes)
        if body is None:
            raise RequestError("the body is too large", code=INVALID_PARAMS, data="too large")
        if not body.strip():
            return {}
        try:
            value = as_object(decode_json(body))
        except (ValueError, RecursionError):
            value = None
        if value is None:
            raise RequestError("the body must be a JSON object: the arguments by name", code=INVALID_PARAMS)
        return dict(value)


async def _refuse_busy(send: Send, busy: CallerMustWait) -> None:
    headers = [(b"retry-after", b"%d" % RETRY_SECONDS)]
    if busy.status == 429:
        code = "too_many_requests"
    else:
        code = "unavailable"
    await _respond_error(send, busy.status, code, busy.reason, headers)


class _CallResponse(PostResponse):
    """The answer to a call, as JSON with a status code."""

    __slots__ = ("fits",)

    fits: Callable[[], bool]

    async def result(self, result: Json) -> None:
        """Answer with a result; that of a failed tool is an error."""
        kind = result.get("resultType", "complete")
        # These are for clients of MCP. The server's name in each response would be noise in a REST API.
        shown = without_members(result, "resultType", "_meta")
        members: Json = result.get("_meta") or {}
        meta = without_members(members, SERVER_INFO)
        if meta:
            shown["_meta"] = meta
        if kind != "complete":
            await self._refuse(409, INPUT_REQUIRED, _ASKING)
        elif result.get("isError") is True:
            status, code = (422, "invalid_arguments")
            # Checked only for a failed call: the tool's own words decide in every other case, and the check costs as
            # much as a call.
            if self.fits():
                status, code = (502, "tool_error")
            await self._write(status, {"error": {"code": code, "message": _text(result)}, **shown})
        else:
            await self._write(200, shown)

    async def error(self, error: RequestError) -> None:
        """Answer with the status that fits a JSON-RPC error best."""
        status, code = _status_of(error)
        if error.retry_after is not None:
            self._headers = (*self._headers, (b"retry-after", b"%d" % math.ceil(error.retry_after)))
        more = {} if error.data is None else {"data": error.data}
        await self._write(status, {"error": {"code": code, "message": error.message, "jsonrpc": error.code, **more}})

    async def _refuse(self, status: int, code: str, message: str) -> None:
        await self._write(status, {"error": {"code": code, "message": message}})

    async def _write(self, status: int, value: Json) -> None:
        try:
            body = encode_value(value, errors="replace", allow_nan=True)
        except (ValueError, TypeError):
            body = encode_value({"error": {"code": "internal", "message": "the result is not JSON"}})
            status = 500
        await self._answer(status, body)


class _ListResponse(_CallResponse):
    """The answer to one page of the list, which is kept instead of sent; an error is sent.

    Attributes:
        tools: The definitions on the page.
        following: The cursor of the next page, or None.
        answered: Whether the response was sent.
    """

    __slots__ = ("answered", "following", "tools")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.answered = False
        self.following: str | None = None
        self.tools: list[JsonObject] = []

    async def result(self, result: Json) -> None:
        """Keep a page."""
        tools: Any = result.get("tools")
        if isinstance(tools, msgspec.Raw):
            tools = decode_json(tools)
        self.tools = object_entries(tools)
        self.following = as_text(result.get("nextCursor"))
        self._done = True

    async def _answer(self, status: int, body: bytes) -> None:
        self.answered = True
        await super()._answer(status, body)


def openapi(
    tools: Sequence[Mapping[str, Any]],
    *,
    base: str = "",
    info: Mapping[str, Any] | None = None,
    secured: bool = False,
) -> Json:
    """Return the OpenAPI 3.1 document of tools as `tools/list` defines them.

    The id of an operation depends on the name of its tool alone, so that clients made from the document stay right when
    other tools come and go.

    Args:
        tools: The definitions; those beyond the first 2,000 are left out, and the description says so.
        base: The path that all paths begin with.
        info: The server's `Implementation` object.
        secured: Whether requests need a bearer token.
    """
    schemas: Json = {"Error": _ERROR}
    paths: Json = {}
    refusals = {status: {"$ref": f"#/components/responses/{name}"} for status, (name, _) in _REFUSALS.items()}
    if secured:
        refusals |= {"401": {"description": "The token is missing or wrong"}}
        refusals |= {"403": {"description": "The token has not the scopes that the tool needs"}}
    for tool in tools[:MAX_TOOLS]:
        name = str(tool.get("name"))
        operation_id = _operation_id(name)
        given = _embedded(tool.get("inputSchema"), f"{operation_id}.input", schemas)
        made = _embedded(tool.get("outputSchema"), f"{operation_id}.output", schemas)
        result: Json = {"type": "object", "properties": {"content": {"type": "array", "items": {"type": "object"}}}}
        if made is not None:
            result["properties"]["structuredContent"] = made
        operation: Json = {
            "operationId": operation_id,
            "summary": str(tool.get("title") or name),
            "description": str(tool.get("description") or ""),
            "requestBody": {"content": {"application/json": {"schema": given or {"type": "object"}}}},
            "responses": {
                "200": {"description": "The result", "content": {"application/json": {"schema": result}}},
                **refusals,
                "default": _ERROR_RESPONSE,
            },
        }
        paths[f"{base}/tools/{quote(name, safe='')}"] = {"post": operation}
    named = info or {}
    about: Json = {
        "title": str(named.get("title") or named.get("name") or "Tools"),
        "version": str(named.get("version") or VERSION),
    }
    if len(tools) > MAX_TOOLS:
        about["description"] = f"The first {MAX_TOOLS} tools; there are more."
    responses = {name: {**_ERROR_RESPONSE, "description": text} for name, text in _REFUSALS.values()}
    components: Json = {"schemas": schemas, "responses": responses}
    document: Json = {"openapi": "3.1.0", "info": about, "paths": paths, "components": components}
    if secured:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"bearer": []}]
    return document


_REFUSALS = {
    "400": ("InvalidRequest", "The body is not a JSON object"),
    "404": ("NotFound", "The tool does not exist"),
    "409": ("InputRequired", "The tool asks for input, which only a client of MCP can give"),
    "413": ("TooLarge", "The body is too large"),
    "422": ("InvalidArguments", "The arguments do not fit the tool's schema"),
    "429": ("TooManyRequests", "A limit is reached; `Retry-After` says for how many seconds"),
    "502": ("ToolError", "The tool failed"),
}
_ERROR_RESPONSE: Json = {
    "description": "An error",
    "content": {"application/json": {"schema": {"$ref": f"{_COMPONENTS}Error"}}},
}
_ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


def _operation_id(name: str) -> str:
    """Return the name of a tool as an identifier; one with other characters gets a part of its digest."""
    # Two names may become one here, such as `a.b` and `a/b`; the digest keeps them apart.
    legal = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if legal == name:
        return legal
    return f"{legal}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _embedded(schema: Any, name: str, schemas: Json) -> Json | None:
    """Put a schema among the components; its references into itself then lead there. Return a reference to it."""
    members = as_object(schema)
    if members is None:
        return None
    try:
        # With `$id` the schema is a base by itself, and its references are relative to that wherever it stands.
        schemas[name] = members if "$id" in members else _with_references_from(members, f"{_COMPONENTS}{name}")
    except RecursionError:
        return None  # it could not be read
    return {"$ref": f"{_COMPONENTS}{name}"}


def _with_references_from(value: Any, root: str) -> Any:
    """Return a schema whose references to its own root lead to its place in the document: `#/$defs/x` below `root`."""
    entries = as_array(value)
    if entries is not None:
        return [_with_references_from(one, root) for one in entries]
    members = as_object(value)
    if members is None:
        return value
    moved = {key: _with_references_from(inner, root) for key, inner in members.items()}
    target = text_or_empty(moved.get("$ref"))
    if target == "#" or target.startswith("#/"):
        moved["$ref"] = root + target[1:]
    return moved


def _envelope(scope: Scope) -> Json:
    """Return the `_meta` of a request: an envelope of the newest revision, and the trace context of the headers."""
    headers = VisibleHeaders(scope["headers"])
    trace = {name: headers[name] for name in _TRACING if name in headers}
    return {**_ENVELOPE, **trace}


def _fits(schema: Mapping[str, Any] | None, arguments: Json) -> bool:
    """Return whether arguments fit the schema of their tool, or that cannot be checked."""
    if schema is None:
        return True
    check = usable_validator(schema)
    if check is None:
        return True
    return check.is_valid(arguments)


def _status_of(error: RequestError) -> tuple[int, str]:
    """Return the HTTP status of a JSON-RPC error, and a word for it."""
    if error.retry_after is not None:
        return 429, "too_many_requests"
    if error.code == INVALID_PARAMS:
        # The protocol has one code for unknown tools and for wrong parameters, so the text has to distinguish them.
        if error.message.startswith("Unknown tool"):
            return (404, "not_found")
        return (400, "invalid_request")
    if error.code in (MISSING_CAPABILITY, URL_ELICITATION_REQUIRED):
        return 409, INPUT_REQUIRED
    if error.code == INTERNAL_ERROR:
        return 500, "internal"
    return HTTP_STATUS.get(error.code, 502), "error"


def _text(result: Json) -> str:
    """Return the texts of a result, one a line."""
    texts = [block.get("text") for block in object_entries(result.get("content"))]
    return "\n".join(text for text in texts if isinstance(text, str))


async def _respond_error(
    send: Send, status: int, code: str, message: str, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    body = encode_value({"error": {"code": code, "message": message}})
    await respond_json(send, status, body, headers)
