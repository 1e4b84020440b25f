"""Faults of a server that talks: floods of notifications, and requests to the client that no client has to grant."""

from __future__ import annotations

import json
import threading
from typing import Any

from toolweave.testing.servers.fault_base import FaultServer, message_mode, mode
from toolweave.testing.servers.toolset import Json, text_result

__all__: list[str] = []


@message_mode
def notification_storm(server: FaultServer) -> None:
    """Send 20,000 notifications before the answer to a call."""
    params: Json = {"level": "info", "data": "storm"}
    note = server.encode({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    server.for_calls(lambda message, answer: note * 20_000 + server.encode(answer))


@message_mode
def list_changed_storm(server: FaultServer) -> None:
    """Send 2,000 list_changed notifications after each answer to a call."""
    note = server.encode({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    server.for_calls(lambda message, answer: server.encode(answer) + note * 2_000)


@message_mode
def server_request_made_up_method(server: FaultServer) -> None:
    """Send a request with the method `log` before each answer to a call; `state` shows the client's answer."""
    request = server.encode({"jsonrpc": "2.0", "id": "log-1", "method": "log", "params": {"message": "hello"}})
    server.for_calls(lambda message, answer: request + server.encode(answer))


@mode
def roots_and_sampling_requests(server: FaultServer) -> None:
    """Ask the client for ping, roots, sampling and elicitation during `echo`; the result holds its four answers."""
    prompt: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}
    form: Json = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {"n": {"type": "string"}}}}
    asks: list[tuple[str, Json]] = [
        ("ping", {}),
        ("roots/list", {}),
        ("sampling/createMessage", prompt),
        ("elicitation/create", form),
    ]

    def work(message: Json) -> None:
        answers = {method: server.ask(f"ask-{number}", method, params) for number, (method, params) in enumerate(asks)}
        server.answer(message, text_result(json.dumps(answers), structuredContent=answers))

    def called(message: Json) -> bool:
        if message["params"].get("name") != "echo":
            return False
        # In a thread, because the answers that it waits for arrive in the reading loop.
        threading.Thread(target=work, args=(message,), daemon=True).start()
        return True

    server.on("tools/call", called)


@mode
def ping_flood(server: FaultServer) -> None:
    """Ping the client 2,000 times before the answer to each call."""
    pings = b"".join(server.encode({"jsonrpc": "2.0", "id": f"ping-{n}", "method": "ping"}) for n in range(2_000))
    server.for_calls(lambda message, answer: pings + server.encode(answer))


@message_mode
def cancels_foreign(server: FaultServer) -> None:
    """Cancel an unknown request, and the call itself, before the answer to each call."""

    def change(message: Json, answer: Json) -> bytes:
        ids = ["nobody", 987654, message["id"], None, [1]]
        note: Json = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
        return b"".join(server.encode({**note, "params": {"requestId": one}}) for one in ids) + server.encode(answer)

    server.for_calls(change)


@message_mode
def foreign_progress(server: FaultServer) -> None:
    """Report progress under unknown tokens, and in wrong types, before the answer to each call."""

    def change(message: Json, answer: Json) -> bytes:
        note: Json = {"jsonrpc": "2.0", "method": "notifications/progress"}
        odd: list[Any] = [
            {"progressToken": "nobody", "progress": 1},
            {"progressToken": 7, "progress": "half"},
            {},
            [],
            None,
        ]
        return b"".join(server.encode({**note, "params": one}) for one in odd) + server.encode(answer)

    server.for_calls(change)


@message_mode
def odd_notifications(server: FaultServer) -> None:
    """Send notifications that no revision knows, without parameters or with a text for them, before each answer."""
    notes: list[Json] = [
        {"jsonrpc": "2.0", "method": "notifications/never/heard_of"},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": "text"},
        {"jsonrpc": "2.0", "method": "notifications/resources/updated"},
        {"jsonrpc": "2.0", "method": 7},
    ]
    odd = b"".join(server.encode(note) for note in notes)
    server.for_calls(lambda message, answer: odd + server.encode(answer))
