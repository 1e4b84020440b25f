"""One MCP server as a value: messages in, answers out, in both eras. It does no input or output.

A transport calls `Peer.handle` for each message it read and writes what comes back; notifications go
through the `send` it passes along. Standard library only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from toolweave.testing.servers.toolset import (
    BLOCKING,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    TOOLS,
    Json,
    NoReply,
    PeerCall,
    generated_tool,
    members,
)

__all__ = ["HANDSHAKE", "MODERN", "PREFIX", "Peer", "PeerRequest", "PeerSession", "Refusal", "Send"]

MODERN = "2026-07-28"
HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
PREFIX = "io.modelcontextprotocol/"
CACHEABLE = {
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
}
SINCE = {"annotations": "2025-03-26", "title": "2025-06-18", "outputSchema": "2025-06-18"}
"""Tool members that a revision older than this does not know."""
FILTERS = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}

Send = Callable[[Json], None]


class Refusal(Exception):
    """Becomes a JSON-RPC error answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:  # any JSON value
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_json(self) -> Json:
        """Return the `error` member."""
        error: Json = {"code": self.code, "message": self.message}
        if self.data is None:
            return error
        return {**error, "data": self.data}


class PeerSession:
    """The state of one client at a legacy server; `send` reaches it outside any request."""

    def __init__(self, send: Send | None = None) -> None:
        self.send = send
        self.initialized = False
        self.version: str | None = None
        self.client: Json = {}
        self.log_level: str | None = None
        self.subscriptions: set[str] = set()


class PeerRequest:
    """One request on its way through the server."""

    def __init__(self, message: Json, session: PeerSession, send: Send, headers: dict[str, str] | None) -> None:
        self.id: Any = message["id"]
        self.method: str = str(message["method"])
        self.params: Json = members(message.get("params"))
        self.meta: Json = members(self.params.get("_meta"))
        self.session = session
        self.send = send
        self.headers = headers
        self.cancelled: threading.Event = threading.Event()
        self.modern: bool = PREFIX + "protocolVersion" in self.meta

    def notify(self, method: str, params: Json) -> None:
        """Send a notification that belongs to this request."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})


class Peer:
    """A well-behaved server; transports and faults wrap it."""

    error = Refusal

    def __init__(
        self,
        *,
        era: str = "legacy",
        version: str | None = None,
        tools: int = 0,
        tool_bytes: int = 0,
        page_size: int = 0,
        probe: str | None = None,
        name: str = "echo",
        ttl_ms: int = 0,
    ) -> None:
        self.era = era
        if version in HANDSHAKE:
            self.version = version
        else:
            self.version = HANDSHAKE[-1]
        self.page_size = page_size
        self.probe: str = probe or ("error-32601" if era == "legacy" else "ok")
        self.info: Json = {"name": name, "title": "Test server", "version": "1.2.3"}
        self.instructions = "Use echo to test."
        self.ttl_ms = ttl_ms
        self.capabilities: Json = {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
        }
        self.tools: dict[str, tuple[Json, Callable[[PeerCall], Json]]] = dict(TOOLS)
        self.tools.update((f"tool_{number:05}", generated_tool(tool_bytes)) for number in range(1, tools + 1))
        self.resources: dict[str, tuple[Json, Json]] = dict(RESOURCES)
        self.prompts: dict[str, tuple[Json, str]] = dict(PROMPTS)
        self.gates: dict[str, threading.Event] = {}
        self.calls: dict[str, int] = {}
        self.methods: list[str] = []
        # Request ids: strings and numbers.
        self.cancelled: list[Any] = []
        self.answers: list[Json] = []
        self.http_requests: list[Json] = []
        self.sessions: list[PeerSession] = []
        self.running: dict[tuple[PeerSession, Any], PeerRequest] = {}
        self.listeners: list[PeerRequest] = []

    # -- messages ---------------------------------------------------------------------------

    def blocks(self, message: Json) -> bool:
        """Whether answering may block, so that it must not happen in the reading loop."""
        return message.get("method") == "tools/call" and members(message.get("params")).get("name") in BLOCKING

    def handle(
        self,
        message: Json,
        session: PeerSession,
        send: Send,
        headers: dict[str, str] | None = None,
        on_request: Callable[[PeerRequest], None] | None = None,
    ) -> Json | None:
        """Handle one message; return the answer, or None when there is none (yet)."""
        if "method" not in message:
            self.answers.append(message)
            return None
        self.methods.append(str(message["method"]))
        if "id" not in message:
            self._notified(message, session)
            return None
        request = PeerRequest(message, session, send, headers)
        self.running[session, request.id] = request
        if on_request is not None:
            on_request(request)
        try:
            result = self.answer(request)
        except NoReply:
            return None
        except Refusal as error:
            return {"jsonrpc": "2.0", "id": request.id, "error": error.to_json()}
        finally:
            # A listen stream stays open after this, and its cancellation must find it.
            if request not in self.listeners:
                self.running.pop((session, request.id), None)
        return {"jsonrpc": "2.0", "id": request.id, "result": result}

    def _notified(self, message: Json, session: PeerSession) -> None:
        params = members(message.get("params"))
        if message["method"] == "notifications/initialized":
            session.initialized = True
        elif message["method"] == "notifications/cancelled":
            self.cancelled.append(params.get("requestId"))
            request = self.running.get((session, params.get("requestId")))
            if request is not None:
                self.stop(request)

    def stop(self, request: PeerRequest) -> None:
        """Cancel a running request; a listen stream ends without a result."""
        self.running.pop((request.session, request.id), None)
        request.cancelled.set()
        if request in self.listeners:
            self.listeners.remove(request)

    def broadcast(self, method: str, params: Json | None = None) -> None:
        """Notify every client of a change, in the form of its era."""
        for session in list(self.sessions):
            if session.send is not None and session.version is not None:
                session.send({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})
        for request in list(self.listeners):
            wanted: Json = members(request.params.get("notifications"))
            uri = (params or {}).get("uri")
            if wanted.get(FILTERS.get(method, "")) or uri in (wanted.get("resourceSubscriptions") or ()):
                request.notify(method, {**(params or {}), "_meta": {PREFIX + "subscriptionId": request.id}})

    def seen(self, request: PeerRequest) -> Json:
        """Return the facts that `state` reports."""
        return {
            "calls": dict(self.calls),
            "methods": list(self.methods),
            "cancelled": list(self.cancelled),
            "answers": list(self.answers),
            "listening": len(self.listeners),
            "filters": [members(listener.params.get("notifications")) for listener in self.listeners],
            "subscriptions": sorted(request.session.subscriptions),
            "modern": request.modern,
            "client": request.session.client or {key: request.meta[key] for key in request.meta if PREFIX in key},
            "version": request.session.version or request.meta.get(PREFIX + "protocolVersion"),
            "log_level": request.session.log_level,
        }

    # -- requests ---------------------------------------------------------------------------

    def answer(self, request: PeerRequest) -> Json:
        """Return the result of a request, shaped for its era."""
        if request.method == "server/discover":
            return self._discover(request)
        if request.modern and self.era != "legacy":
            return self._stamp(request, self._modern(request))
        if self.era == "modern":
            if request.method == "initialize":
                requested = request.params.get("protocolVersion")
                raise Refusal(-32022, "Unsupported protocol version", {"supported": [MODERN], "requested": requested})
            raise Refusal(-32602, f"_meta must carry {PREFIX}protocolVersion and {PREFIX}clientCapabilities")
        return self._legacy(request)

    def _discover(self, request: PeerRequest) -> Json:
        if self.probe == "exit":
            raise SystemExit(1)
        if self.probe == "silent":
            raise NoReply
        if self.probe == "error-32601":
            raise Refusal(-32601, "Method not found")
        if self.probe == "error-32602":
            raise Refusal(-32602, "Invalid request parameters", "")
        if self.era == "legacy":
            return {**self._discovered([self.version]), "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        self._check_envelope(request)
        return self._stamp(request, self._discovered([MODERN] if self.era == "modern" else [*HANDSHAKE, MODERN]))

    def _discovered(self, versions: list[str]) -> Json:
        return {
            "supportedVersions": versions,
            "capabilities": self.capabilities,
            "instructions": self.instructions,
            "_meta": {PREFIX + "serverInfo": self.info},
        }

    def _check_envelope(self, request: PeerRequest) -> None:
        version = request.meta.get(PREFIX + "protocolVersion")
        if version is None or not isinstance(request.meta.get(PREFIX + "clientCapabilities"), dict):
            raise Refusal(-32602, f"_meta must carry {PREFIX}protocolVersion and {PREFIX}clientCapabilities")
        if version != MODERN:
            raise Refusal(-32022, "Unsupported protocol version", {"supported": [MODERN], "requested": version})

    def _modern(self, request: PeerRequest) -> Json:
        self._check_envelope(request)
        if request.method == "subscriptions/listen":
            self.listeners.append(request)
            subscription = {PREFIX + "subscriptionId": request.id}
            honoured = members(request.params.get("notifications"))
            request.notify(
                "notifications/subscriptions/acknowledged", {"notifications": honoured, "_meta": subscription}
            )
            raise NoReply
        return self._shared(request)

    def _stamp(self, request: PeerRequest, result: Json) -> Json:
        meta = {**members(result.get("_meta")), PREFIX + "serverInfo": self.info}
        out: Json = {"resultType": "complete", **result, "_meta": meta}
        if request.method in CACHEABLE:
            out.update(ttlMs=self.ttl_ms, cacheScope="private")
        return out

    def _legacy(self, request: PeerRequest) -> Json:
        session = request.session
        if request.method == "initialize":
            session.version = self.version
            session.client = {key: request.params.get(key) for key in ("protocolVersion", "capabilities", "clientInfo")}
            if session not in self.sessions:
                self.sessions.append(session)
            return {
                "protocolVersion": self.version,
                "capabilities": self.capabilities,
                "serverInfo": self.info,
                "instructions": self.instructions,
            }
        if request.method == "ping":
            return {}
        if session.version is None:
            raise Refusal(-32600, f"{request.method} before initialize")
        if request.method == "logging/setLevel":
            session.log_level = str(request.params.get("level"))
            return {}
        if request.method == "resources/subscribe":
            session.subscriptions.add(str(request.params.get("uri")))
            return {}
        if request.method == "resources/unsubscribe":
            session.subscriptions.discard(str(request.params.get("uri")))
            return {}
        return self._shared(request)

    def _shared(self, request: PeerRequest) -> Json:
        match request.method:
            case "tools/list":
                return self.page(request, "tools", (self.listed(name, request) for name in self.tools))
            case "tools/call":
                return self.call_tool(request)
            case "resources/list":
                rows = [{"uri": uri, **listing} for uri, (listing, _) in self.resources.items()]
                return self.page(request, "resources", rows)
            case "resources/templates/list":
                return self.page(request, "resourceTemplates", TEMPLATES)
            case "resources/read":
                return self._read(request)
            case "prompts/list":
                rows = [{"name": name, **listing} for name, (listing, _) in self.prompts.items()]
                return self.page(request, "prompts", rows)
            case "prompts/get":
                return self._prompt(request)
            case "completion/complete":
                return self._complete(request)
            case _:
                raise Refusal(-32601, f"Method not found: {request.method}")

    def page(self, request: PeerRequest, member: str, rows: Iterable[Json]) -> Json:
        """Return one page of a list; cursors are `page-OFFSET`."""
        everything = list(rows)
        cursor = request.params.get("cursor")
        start = 0
        if cursor is not None:
            try:
                start = int(str(cursor).removeprefix("page-"))
            except ValueError:
                raise Refusal(-32602, f"Invalid cursor {cursor!r}") from None
        size = self.page_size or len(everything) or 1
        out: Json = {member: everything[start : start + size]}
        if start + size < len(everything):
            out["nextCursor"] = f"page-{start + size}"
        return out

    def listed(self, name: str, request: PeerRequest) -> Json:
        """Return a tool's definition as the session's revision knows it."""
        version = request.session.version or MODERN
        definition = self.tools[name][0]
        return {"name": name, **{key: value for key, value in definition.items() if SINCE.get(key, "") <= version}}

    def call_tool(self, request: PeerRequest) -> Json:
        """Run one tool; unknown tools are a protocol error, missing arguments an error result."""
        name = request.params.get("name")
        arguments = members(request.params.get("arguments"))
        if name not in self.tools:
            raise Refusal(-32602, f"Unknown tool: {name}")
        self.calls[name] = self.calls.get(name, 0) + 1
        definition, function = self.tools[name]
        missing = [key for key in definition["inputSchema"].get("required", ()) if key not in arguments]
        if missing:
            return {"content": [{"type": "text", "text": f"Missing arguments: {missing}"}], "isError": True}
        call = PeerCall(arguments, cancelled=request.cancelled, notify=request.notify, server=self, request=request)
        result = function(call)
        # The revision that introduced structured content.
        if (request.session.version or MODERN) < "2025-06-18":
            result.pop("structuredContent", None)
        return result

    def _read(self, request: PeerRequest) -> Json:
        uri = str(request.params.get("uri"))
        if uri in self.resources:
            return {"contents": [{"uri": uri, **self.resources[uri][1]}]}
        if uri.startswith("test://item/"):
            item = uri.removeprefix("test://item/")
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"item {item}"}]}
        raise Refusal(-32602 if request.modern else -32002, "Resource not found", {"uri": uri})

    def _prompt(self, request: PeerRequest) -> Json:
        name = request.params.get("name")
        arguments = members(request.params.get("arguments"))
        if name not in self.prompts:
            raise Refusal(-32602, f"Unknown prompt: {name}")
        listing, text = self.prompts[name]
        try:
            filled = text.format(**arguments)
        except KeyError as missing:
            raise Refusal(-32602, f"Missing prompt argument {missing}") from None
        message: Json = {"role": "user", "content": {"type": "text", "text": filled}}
        return {"description": listing["description"], "messages": [message]}

    def _complete(self, request: PeerRequest) -> Json:
        typed = str(members(request.params.get("argument")).get("value", ""))
        values = [value for value in ("alice", "albert", "bob") if value.startswith(typed)]
        return {"completion": {"values": values, "total": len(values), "hasMore": False}}
