"""A stdio server whose offers grow in its own process: `growing_server.py legacy|modern|both [tasks|skills]`.

Asserts nothing. It speaks one era or both. What a call adds is announced, and is in this process alone. With `tasks`,
tools whose names begin with `long` are called as tasks, whose ids are the same in every process: the first one is
`task-1`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["main"]

Json = dict[str, Any]
META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
HANDSHAKES = ("2025-06-18", "2025-11-25")
INFO = {"name": "growing", "version": "1"}
CAPABILITIES: Json = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
TASKS: Json = {}
MODERN_TASKS: Json = {}
if sys.argv[2:] == ["tasks"]:
    TASKS["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    MODERN_TASKS["extensions"] = {"io.modelcontextprotocol/tasks": {}}
if sys.argv[2:] == ["skills"]:
    CAPABILITIES["extensions"] = {"io.modelcontextprotocol/skills": {"directoryRead": True}}
SCHEMA: Json = {"type": "object", "properties": {"name": {"type": "string"}}}
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}

tools: dict[str, Json] = {
    name: {"name": name, "inputSchema": SCHEMA, "annotations": {"destructiveHint": False}}
    for name in ("grow", "touch", "die", "pid", "ask", "notified", *(["finish"] if TASKS else []))
}
prompts: dict[str, Json] = {"first": {"name": "first", "arguments": [{"name": "word"}]}}
resources: dict[str, Json] = {"state://now": {"uri": "state://now", "name": "now"}}
templates: dict[str, Json] = {}
skills: dict[str, Json] = {}
entries = {"tools": tools, "prompts": prompts, "resources": resources, "resourceTemplates": templates}
followed: set[str] = set()
streams: list[Any] = []
asked: dict[str, Any] = {}
tasks: dict[str, Json] = {}
done: dict[str, Json] = {}
waiting: dict[str, list[Any]] = {}
notified: list[str] = []


def send(message: Json) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def announce(method: str, params: Json) -> None:
    """Send a notification in the session, and on each stream."""
    send({"method": method, "params": params})
    for stream in streams:
        send({"method": method, "params": {**params, "_meta": {f"{META}subscriptionId": stream}}})


def grow(name: str, description: str | None) -> str:
    """Offer one more tool, prompt, resource and template, or others of that name."""
    tools[name] = {"name": name, "inputSchema": SCHEMA, "annotations": {"destructiveHint": name == "bad"}}
    if description is not None:
        tools[name]["description"] = description
    if name.startswith("long"):
        tools[name]["execution"] = {"taskSupport": "required" if name == "long_always" else "optional"}
    prompts[name] = {"name": name, "arguments": [{"name": "word"}]}
    resources[f"grown://{name}"] = {"uri": f"grown://{name}", "name": name}
    templates[f"grown://{name}/{{part}}"] = {"uriTemplate": f"grown://{name}/{{part}}", "name": name}
    uri = f"skill://{name}/SKILL.md"
    skills[uri] = {
        "uri": uri,
        "frontmatter": {"name": name, "description": f"of {os.getpid()}"},
        "resources": "dynamic",
    }
    for kind in ("tools", "prompts", "resources"):
        announce(f"notifications/{kind}/list_changed", {})
    return f"grown in {os.getpid()}"


def task_of(name: str, *, modern: bool) -> Json:
    """Return a task as its revision writes it."""
    return {**tasks[name], **({"ttlMs": 60_000, "pollIntervalMs": 20} if modern else {"ttl": 60_000})}


def begun(name: str, *, modern: bool) -> Json:
    """Return the result of a call that becomes a task."""
    own, stamp = f"task-{len(tasks) + 1}", "2026-11-28T12:00:00.000Z"
    tasks[own] = {"taskId": own, "status": "working", "createdAt": stamp, "lastUpdatedAt": stamp}
    done[own] = {"content": [{"type": "text", "text": f"{name} in {os.getpid()}"}]}
    task = task_of(own, modern=modern)
    return {"resultType": "task", **task} if modern else {"task": task}


def ended(own: str, status: str) -> None:
    """End a task that runs, and answer those who wait for its result."""
    if tasks[own]["status"] in ("completed", "cancelled"):
        return
    tasks[own]["status"] = status
    for key in waiting.pop(own, []):
        send({"id": key, **outcome(own)})


def outcome(own: str) -> Json:
    """Return the answer to a request for the result of a task that has ended."""
    if tasks[own]["status"] == "cancelled":
        return {"error": {"code": -32602, "message": "the task is cancelled"}}
    return {"result": done[own]}


def about_task(key: Any, method: str, own: str, *, modern: bool) -> Json | None:
    """Return the result of a request about a task; None if it comes later.

    Raises:
        LookupError: There is no such task.
    """
    if own not in tasks:
        raise LookupError(f"no task {own}")
    if method == "tasks/cancel":
        ended(own, "cancelled")
    if method == "tasks/result":
        if tasks[own]["status"] == "working" and "asks" in tools:
            asked["question"] = key
            form: Json = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
            meta = {f"{META}related-task": {"taskId": own}}
            send({"id": "question", "method": "elicitation/create", "params": {**form, "_meta": meta}})
        elif tasks[own]["status"] == "working":
            waiting.setdefault(own, []).append(key)
        else:
            send({"id": key, **outcome(own)})
        return None
    more = {"result": done[own]} if modern and tasks[own]["status"] == "completed" else {}
    return {**task_of(own, modern=modern), **more}


def called(key: Any, name: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the text of a call's result; None if it comes later."""
    if name == "grow":
        return grow(arguments["name"], arguments.get("description"))
    if name == "finish":
        for own in tasks:
            ended(own, "completed")
    if name == "die":
        os._exit(3)
    if name == "ask":
        asked["question"] = key
        form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
        send({"id": "question", "method": "elicitation/create", "params": form})
        return None
    if name == "touch":
        announce("notifications/resources/updated", {"uri": "state://now"})
    if name == "notified":
        return json.dumps(notified)
    return f"{name} in {os.getpid()}"


def listening(key: Any, wanted: Json) -> None:
    """Open a stream of notifications, which is a request without an answer."""
    streams.append(key)
    acknowledged = {"notifications": wanted, "_meta": {f"{META}subscriptionId": key}}
    send({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})


def greeting(method: str, params: Json, mode: str) -> Json:
    """Return the result of the first request of a client.

    Raises:
        LookupError: The server does not speak that era.
    """
    if method == "server/discover" and mode != "legacy":
        return {"supportedVersions": [MODERN], "capabilities": CAPABILITIES | MODERN_TASKS}
    if method == "server/discover" or mode == "modern":
        raise LookupError(f"no method {method}")
    wanted = params["protocolVersion"]
    version = wanted if wanted in HANDSHAKES else HANDSHAKES[-1]
    return {"protocolVersion": version, "capabilities": CAPABILITIES | TASKS, "serverInfo": INFO}


def prompt_result(params: Json) -> Json:
    """Return a prompt."""
    content = {"type": "text", "text": f"{prompts[params['name']]['name']} in {os.getpid()}"}
    return {"messages": [{"role": "user", "content": content}]}


def resource_result(params: Json) -> Json:
    """Return a resource, or the file of a skill."""
    uri = params["uri"]
    text = f"{(skills[uri]['frontmatter'] if uri in skills else resources[uri])['name']} in {os.getpid()}"
    return {"contents": [{"uri": uri, "text": text}]}


def directory_result(params: Json) -> Json:
    """Return the files of a skill."""
    file = f"{params['uri']}/SKILL.md"
    return {"resources": [{"uri": skills[file]["uri"], "name": f"in {os.getpid()}"}]}


RESULTS: dict[str, Callable[[Json], Json]] = {
    "prompts/get": prompt_result,
    "resources/read": resource_result,
    "resources/directory/read": directory_result,
    "skills/list": lambda params: {"skills": list(skills.values())},
    "skills/get": lambda params: {"skill": skills[params["uri"]]},
    "completion/complete": lambda params: {"completion": {"values": [prompts[params["ref"]["name"]]["name"]]}},
    **dict.fromkeys(("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"), lambda params: {}),
}


def result_of(key: Any, method: str, params: Json, mode: str) -> Json | None:
    """Return the result of a request; None if it comes later or never.

    Raises:
        LookupError: The server has no such thing.
    """
    if method in ("initialize", "server/discover"):
        return greeting(method, params, mode)
    if method in LISTS:
        return {LISTS[method]: list(entries[LISTS[method]].values())}
    modern = f"{META}protocolVersion" in params.get("_meta", {})
    if method in ("tasks/get", "tasks/cancel", "tasks/result"):
        return about_task(key, method, params["taskId"], modern=modern)
    if method == "tools/call" and as_task(params, modern=modern):
        return begun(tools[params["name"]]["name"], modern=modern)
    if method == "tools/call":
        text = called(key, tools[params["name"]]["name"], params.get("arguments") or {})
        return None if text is None else {"content": [{"type": "text", "text": text}]}
    if method == "subscriptions/listen":
        return listening(key, params["notifications"])
    if method in RESULTS:
        return RESULTS[method](params)
    raise LookupError(f"no method {method}")


def as_task(params: Json, *, modern: bool) -> bool:
    """Whether a call becomes a task."""
    if not TASKS or not params["name"].startswith("long"):
        return False
    if not modern:
        return "task" in params
    declared = params["_meta"].get(f"{META}clientCapabilities", {})
    return f"{META[:-1]}/tasks" in declared.get("extensions", {})


def main(mode: str) -> None:
    """Serve until the input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            answer = json.dumps(message.get("result", message.get("error")))
            for own in tasks:
                tasks[own]["status"] = "completed"
            send({"id": asked.pop("question"), "result": {"content": [{"type": "text", "text": answer}]}})
            continue
        params: Json = message.get("params") or {}
        if "id" not in message:
            notified.append(message["method"])
            continue
        try:
            result = result_of(message["id"], message["method"], params, mode)
        except LookupError as error:
            code = -32602 if message["method"] != "server/discover" else -32601
            send({"id": message["id"], "error": {"code": code, "message": str(error)}})
            continue
        if result is None:
            continue
        if f"{META}protocolVersion" in params.get("_meta", {}):
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
            result["_meta"] = {f"{META}serverInfo": INFO}
        send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main(sys.argv[1])
