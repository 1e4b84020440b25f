"""A server whose tools, prompt and resource ask their client back: by its own requests, or in rounds.

A tool writes `call.server.ask(call.request, key, method, params)` and gets the client's answer in every era.
Standard library only.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from toolweave._json_types import without_members
from toolweave.testing.servers.protocol import PREFIX, Peer, PeerRequest, PeerSession, Send
from toolweave.testing.servers.toolset import Json, NoReply, PeerCall, members, schema, structured_result, text_result

__all__ = ["ASKING_TOOLS", "AskingPeer", "NeedsInput"]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
FORM: Json = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "size": {"type": "integer", "default": 3},
        "color": {"type": "string", "enum": ["red", "green"], "default": "green"},
    },
    "required": ["name"],
}
SAMPLING: Json = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "How do you do?"}}],
    "systemPrompt": "Be brief.",
    "maxTokens": 50,
}
URL = "https://example.com/consent"


class NeedsInput(Exception):
    """The request is answered by `input_required`; `state` goes to the client and back."""

    def __init__(self, requests: Json, state: str | None) -> None:
        super().__init__()
        self.requests = requests
        self.state = state

    def result(self) -> Json:
        """Return the answer."""
        made: Json = {"resultType": "input_required"}
        if self.requests:
            made["inputRequests"] = self.requests
        if self.state is None:
            return made
        return {**made, "requestState": self.state}


class AskingPeer(Peer):
    """A well-behaved server that also asks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tools.update(ASKING_TOOLS)
        self.numbers: Iterator[int] = itertools.count(1)
        self.open: dict[str, tuple[threading.Event, list[Json]]] = {}

    def blocks(self, message: Json) -> bool:
        """Whether answering may block."""
        params = members(message.get("params"))
        asking = params.get("name") in ASKING_TOOLS or "asks" in (params.get("name"), params.get("uri"))
        return asking or super().blocks(message)

    def handle(
        self,
        message: Json,
        session: PeerSession,
        send: Send,
        headers: dict[str, str] | None = None,
        on_request: Callable[[PeerRequest], None] | None = None,
    ) -> Json | None:
        """Handle one message; the answer to a request of this server goes to the tool that waits for it."""
        if "method" not in message and message.get("id") in self.open:
            arrived, answers = self.open.pop(str(message["id"]))
            answers.append(message)
            arrived.set()
        return super().handle(message, session, send, headers, on_request)

    def answer(self, request: PeerRequest) -> Json:
        """Return the result of a request, or the request for input."""
        try:
            return super().answer(request)
        except NeedsInput as needs:
            return self._stamp(request, needs.result())

    def _shared(self, request: PeerRequest) -> Json:
        if request.method == "prompts/get" and request.params.get("name") == "asks":
            answer = self.ask(request, "name", "elicitation/create", {"message": "Who?", "requestedSchema": FORM})
            text = json.dumps(answer.get("result"))
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        if request.method == "resources/read" and request.params.get("uri") == "asks":
            answer = self.ask(request, "roots", "roots/list", {})
            return {"contents": [{"uri": "asks", "text": json.dumps(answer.get("result"))}]}
        return super()._shared(request)

    def ask(self, request: PeerRequest, key: str, method: str, params: Json) -> Json:
        """Return the client's answer, an object with `result` or `error`."""
        return self.ask_all(request, {key: {"method": method, "params": params}})[key]

    def ask_all(self, request: PeerRequest, questions: Json) -> Json:
        """Return the client's answers to several questions."""
        if not request.modern:
            return {key: self._ask_legacy(request, **question) for key, question in questions.items()}
        state = request.params.get("requestState")
        # The state has the answers of earlier rounds, because a modern server keeps nothing between requests.
        known: Json = {**json.loads(state or "{}"), **members(request.params.get("inputResponses"))}
        missing = without_members(questions, *known)
        if missing:
            raise NeedsInput(missing, json.dumps(known) if known else None)
        return {key: {"result": known[key]} for key in questions}

    def _ask_legacy(self, request: PeerRequest, method: str, params: Json) -> Json:
        number = f"ask-{next(self.numbers)}"
        arrived, answers = self.open[number] = threading.Event(), list[Json]()
        on_session = members(request.params.get("arguments")).get("on") == "session"
        if on_session and request.session.send is not None:
            send = request.session.send
        else:
            send = request.send
        send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while not arrived.wait(0.01):
            if request.cancelled.is_set():
                gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
                # A cancelled request's own stream may be closed.
                (request.session.send or send)(gone)
                raise NoReply
        return answers[0]


ASKING_TOOLS: dict[str, tuple[Json, Callable[[PeerCall], Json]]] = {}
"""Name -> (definition without its name, function); all of them may block."""


def tool(description: str, **properties: str) -> Callable[[Callable[[PeerCall], Json]], Callable[[PeerCall], Json]]:
    """Add the decorated function to the table."""

    def add(function: Callable[[PeerCall], Json]) -> Callable[[PeerCall], Json]:
        definition: Json = {"description": description, "inputSchema": schema(on="string", **properties)}
        ASKING_TOOLS[function.__name__] = (definition, function)
        return function

    return add


@tool("Ask the client's model; return its answer.", tools="boolean")
def sample(call: PeerCall) -> Json:
    more: Json = {"tools": [{"name": "look", "inputSchema": schema()}]} if call.arguments.get("tools") else {}
    return structured_result(call.server.ask(call.request, "words", "sampling/createMessage", {**SAMPLING, **more}))


@tool("Let the user fill in a form; return what was decided.")
def elicit(call: PeerCall) -> Json:
    params: Json = {"message": "Who are you?", "requestedSchema": FORM}
    return structured_result(call.server.ask(call.request, "form", "elicitation/create", params))


@tool("Lead the user to a page; return what was decided.")
def elicit_url(call: PeerCall) -> Json:
    params: Json = {"mode": "url", "message": "Please consent.", "url": URL, "elicitationId": "visit-1"}
    return structured_result(call.server.ask(call.request, "page", "elicitation/create", params))


@tool("Ask for the client's roots.")
def list_roots(call: PeerCall) -> Json:
    return structured_result(call.server.ask(call.request, "roots", "roots/list", {}))


@tool("Ask for something that no client knows.")
def ask_nonsense(call: PeerCall) -> Json:
    return structured_result(call.server.ask(call.request, "what", "nonsense/ask", {}))


@tool("Ask two forms, one after the other, then for roots and a model's words at once.")
def interview(call: PeerCall) -> Json:
    server = call.server
    request = call.request
    params: Json = {"message": "Who are you?", "requestedSchema": FORM}
    first = server.ask(request, "first", "elicitation/create", params)
    second = server.ask(request, "second", "elicitation/create", {**params, "message": "And who else?"})
    both: Json = {
        "roots": {"method": "roots/list", "params": {}},
        "words": {"method": "sampling/createMessage", "params": SAMPLING},
    }
    return structured_result({"first": first, "second": second, **server.ask_all(request, both)})


@tool("Want a page visited before the call can be made (-32042 in 2025-11-25).")
def needs_visit(call: PeerCall) -> Json:
    if call.request.modern:
        return elicit_url(call)
    if call.server.calls["needs_visit"] % 2:
        page: Json = {"mode": "url", "message": "Please consent.", "url": URL, "elicitationId": "visit-2"}
        raise call.server.error(-32042, "Visit the page first", {"elicitations": [page]})
    done: Json = {"jsonrpc": "2.0", "method": "notifications/elicitation/complete"}
    call.request.send({**done, "params": {"elicitationId": "visit-2"}})
    return text_result("visited")


@tool("Answer after `rounds` rounds that carry nothing but state.", rounds="integer")
def patient(call: PeerCall) -> Json:
    reached = int(call.request.params.get("requestState") or 0)
    if call.request.modern and reached < int(call.arguments.get("rounds", 1)):
        raise NeedsInput({}, str(reached + 1))
    return text_result(f"after {reached} rounds")


@tool("Send `state` to the client and back; return what came back and the ids that the call had.", state="string")
def echo_state(call: PeerCall) -> Json:
    came = call.request.params
    if "requestState" not in came:
        raise NeedsInput({}, str(call.arguments.get("state", "")))
    return structured_result({"state": came["requestState"], "responses": "inputResponses" in came})


@tool("Never have enough input.")
def insatiable(call: PeerCall) -> Json:
    raise NeedsInput({"more": {"method": "roots/list", "params": {}}}, None)


@tool("Answer with a resultType of the future.")
def futuristic(call: PeerCall) -> Json:
    return {"resultType": "hologram"}


@tool("Log at each severity, as far as the client wants it.")
def chatter(call: PeerCall) -> Json:
    request = call.request
    if request.modern:
        wanted = request.meta.get(PREFIX + "logLevel")
    else:
        wanted = request.session.log_level or LEVELS[0]
    for level in LEVELS[LEVELS.index(wanted) :] if wanted in LEVELS else ():
        call.notify("notifications/message", {"level": level, "logger": "test", "data": {"said": level}})
    return text_result(str(wanted))


@tool("Return the capabilities that the client declared for this request or session.")
def client(call: PeerCall) -> Json:
    request = call.request
    if request.modern:
        declared = request.meta.get(PREFIX + "clientCapabilities")
    else:
        declared = request.session.client
    named = members(declared)
    return structured_result({"capabilities": named if request.modern else named.get("capabilities")})
