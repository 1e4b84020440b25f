"""A server whose tools become tasks: in the core of 2025-11-25, or as the extension of the modern revisions.

Tasks run on threads; a task that asks its client waits for the answer in the way of its era. Standard library only.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from toolweave.testing.servers.asking import FORM, AskingPeer
from toolweave.testing.servers.protocol import PREFIX, PeerRequest, Refusal
from toolweave.testing.servers.toolset import Json, NoReply, PeerCall, members, schema, structured_result, text_result

__all__ = ["TASK_TOOLS", "TaskingPeer"]

EXTENSION = PREFIX + "tasks"
RELATED = PREFIX + "related-task"


class ServerTask:
    """One task: its state, and the questions that wait for the client."""

    def __init__(self, name: str, poll_ms: int) -> None:
        self.id = name
        self.poll_ms = poll_ms
        self.status: str = "working"
        self.message: str | None = None
        self.result: Json = {}
        self.error: Json | None = None
        self.cancelled: threading.Event = threading.Event()
        self.changed: threading.Condition = threading.Condition()
        self.questions: Json = {}
        self.answers: Json = {}

    def to_json(self, *, modern: bool) -> Json:
        """Return the task as its era writes it."""
        stamp = "2026-01-01T00:00:00Z"
        made: Json = {"taskId": self.id, "status": self.status, "createdAt": stamp, "lastUpdatedAt": stamp}
        if self.message is not None:
            made["statusMessage"] = self.message
        if not modern:
            return {**made, "ttl": 60_000, "pollInterval": self.poll_ms}
        made.update(ttlMs=60_000, pollIntervalMs=self.poll_ms)
        if self.questions:
            made["inputRequests"] = dict(self.questions)
        if self.status == "completed":
            made["result"] = self.result
        if self.error is not None:
            made["error"] = self.error
        return made

    def end(self, status: str) -> None:
        """Reach a terminal status, unless there is one."""
        with self.changed:
            # The first end counts: a task that is cancelled while it ends has one of the two ends, as the
            # specification wants.
            if self.status not in ("completed", "failed", "cancelled"):
                self.status = status
            self.changed.notify_all()

    def ask(self, questions: Json) -> Json:
        """Wait for the client's answers."""
        with self.changed:
            self.questions.update(questions)
            self.status = "input_required"
            self.changed.notify_all()
            while not all(key in self.answers for key in questions):
                if self.cancelled.is_set():
                    raise NoReply
                # Short, because a cancellation sets an event and does not notify this condition.
                self.changed.wait(0.01)
            self.status = "working"
            return {key: self.answers[key] for key in questions}

    def give(self, answers: Json) -> None:
        """Take answers of the client."""
        with self.changed:
            self.answers.update(answers)
            for key in answers:
                self.questions.pop(key, None)
            self.changed.notify_all()


class TaskingPeer(AskingPeer):
    """A well-behaved server that also has tasks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.tools.update(TASK_TOOLS)
        self.tasks: dict[str, ServerTask] = {}
        self.task_numbers: Iterator[int] = itertools.count(1)
        if self.era in ("modern", "dual"):
            self.capabilities["extensions"] = {EXTENSION: {}}
        elif self.version >= "2025-11-25":
            self.capabilities["tasks"] = {"cancel": {}, "requests": {"tools": {"call": {}}}}

    def blocks(self, message: Json) -> bool:
        """Whether answering may block."""
        return message.get("method") == "tasks/result" or super().blocks(message)

    def seen(self, request: PeerRequest) -> Json:
        """Return the facts that `state` reports."""
        return {**super().seen(request), "tasks": {task.id: task.status for task in self.tasks.values()}}

    def call_tool(self, request: PeerRequest) -> Json:
        """Run one tool, as a task where that was agreed."""
        name = str(request.params.get("name"))
        if name not in TASK_TOOLS or not self._may_be_task(request):
            return super().call_tool(request)
        self.calls[name] = self.calls.get(name, 0) + 1
        arguments = members(request.params.get("arguments"))
        task = ServerTask(f"task-{next(self.task_numbers)}", int(arguments.get("poll", 10)))
        self.tasks[task.id] = task
        threading.Thread(target=self._run, args=(task, name, arguments, request), daemon=True).start()
        if not request.modern:
            return {"task": task.to_json(modern=False)}
        return {"resultType": "task", **task.to_json(modern=True)}

    def _may_be_task(self, request: PeerRequest) -> bool:
        if not request.modern:
            return "task" in request.params
        declared = members(request.meta.get(PREFIX + "clientCapabilities"))
        return EXTENSION in members(declared.get("extensions"))

    def _run(self, task: ServerTask, name: str, arguments: Json, request: PeerRequest) -> None:
        # A modern call has its own stream, an earlier one the session's, since the response to the call is sent at
        # once.
        send = request.session.send or request.send

        def notify(method: str, params: Json) -> None:
            send({"jsonrpc": "2.0", "method": method, "params": params})

        call = PeerCall(arguments, cancelled=task.cancelled, notify=notify, server=task, request=request)
        try:
            task.result = TASK_TOOLS[name][1](call)
        except NoReply:
            task.end("cancelled")
        except Refusal as error:
            task.error = error.to_json()
            task.end("failed")
        else:
            task.end("completed")

    def _shared(self, request: PeerRequest) -> Json:
        if not request.method.startswith("tasks/"):
            return super()._shared(request)
        task = self.tasks.get(str(request.params.get("taskId")))
        if task is None:
            raise Refusal(-32602, "Unknown task")
        if request.method == "tasks/cancel":
            task.cancelled.set()
            task.end("cancelled")
        elif request.method == "tasks/update" and request.modern:
            task.give(members(request.params.get("inputResponses")))
            return {}
        elif request.method == "tasks/result" and not request.modern:
            return self._result(task, request)
        elif request.method != "tasks/get":
            raise Refusal(-32601, f"Method not found: {request.method}")
        return task.to_json(modern=request.modern)

    def _result(self, task: ServerTask, request: PeerRequest) -> Json:
        """Put the task's questions to the client, then return its result."""
        while task.status not in ("completed", "failed", "cancelled"):
            for key, question in list(task.questions.items()):
                params = {**question["params"], "_meta": {RELATED: {"taskId": task.id}}}
                task.give({key: self.ask(request, key, question["method"], params).get("result", {})})
            with task.changed:
                task.changed.wait(0.01)
            if request.cancelled.is_set():
                raise NoReply
        if task.error is not None:
            raise Refusal(int(task.error["code"]), str(task.error["message"]), task.error.get("data"))
        # Revision 2025-11-25, "Tasks": the result itself does not name the task, so its metadata has to.
        return {**task.result, "_meta": {RELATED: {"taskId": task.id}}}


TASK_TOOLS: dict[str, tuple[Json, Callable[[PeerCall], Json]]] = {}
"""Name -> (definition without its name, function); `call.server` is the task."""


def tool(description: str, **properties: str) -> Callable[[Callable[[PeerCall], Json]], Callable[[PeerCall], Json]]:
    """Add the decorated function to the table."""

    def add(function: Callable[[PeerCall], Json]) -> Callable[[PeerCall], Json]:
        definition: Json = {
            "description": description,
            "inputSchema": schema(poll="integer", **properties),
            "execution": {"taskSupport": "required"},
        }
        TASK_TOOLS[function.__name__] = (definition, function)
        return function

    return add


@tool("Add two numbers, later.", a="number", b="number")
def add_later(call: PeerCall) -> Json:
    return structured_result({"sum": call.arguments["a"] + call.arguments["b"]})


@tool("Report progress, then answer.", steps="integer")
def steps_later(call: PeerCall) -> Json:
    steps = int(call.arguments.get("steps", 3))
    for step in range(1, steps + 1):
        call.wait(0.02)
        call.progress(step, steps)
    return text_result("done")


@tool("Answer with an error result, later.")
def fail_later(call: PeerCall) -> Json:
    return {**text_result("it did not work out"), "isError": True}


@tool("Fail with a JSON-RPC error, later.")
def break_later(call: PeerCall) -> Json:
    raise Refusal(-32050, "broken on purpose", {"why": "on purpose"})


@tool("Never end.")
def hang_later(call: PeerCall) -> Json:
    call.wait(None)
    raise NoReply


@tool("Be cancelled by the server itself.")
def give_up_later(call: PeerCall) -> Json:
    call.server.message = "out of paper"
    raise NoReply


@tool("Ask the user twice while it runs, then return the answers.")
def ask_later(call: PeerCall) -> Json:
    form: Json = {"method": "elicitation/create", "params": {"message": "Who are you?", "requestedSchema": FORM}}
    first = call.server.ask({"first": form})
    again: Json = {"method": "elicitation/create", "params": {"message": "Who else?", "requestedSchema": FORM}}
    return structured_result({**first, **call.server.ask({"second": again})})
