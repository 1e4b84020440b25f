"""Tasks: calls that outlast their request, as the extension of modern revisions (SEP-2663) and 2025-11-25 have them.

A server stores a task in the form of the extension, `DetailedTask`, which has more; `in_core` is its older form.
A client reads either form as a `TaskDocument`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from toolweave._json_types import Json, JsonObject, as_object, as_text, finite_number, object_or_empty, only_members
from toolweave._value import Value
from toolweave.errors import RequestError
from toolweave.protocol.input_required import INPUT_REQUESTS, INPUT_REQUIRED
from toolweave.protocol.meta import RELATED_TASK, TASKS_EXTENSION

__all__ = [
    "ENDED",
    "TASK_ID",
    "TaskDocument",
    "capabilities",
    "created",
    "declares_tasks",
    "failed",
    "in_core",
    "in_extension",
    "is_task",
    "makes_tasks",
    "needs_task",
    "read_task",
    "related",
    "related_task",
    "support",
    "task_result",
    "task_support",
    "updated",
    "with_outcome",
    "with_task_id",
]


TASK_ID = "taskId"
"""The member and the parameter that name a task."""
ENDED = frozenset({"completed", "failed", "cancelled"})
"""The statuses that are final."""
_STATUSES = ENDED | {"working", INPUT_REQUIRED}
_SHOWN_WHEN = {"result": "completed", "error": "failed", INPUT_REQUESTS: INPUT_REQUIRED}
_IN_CORE = (TASK_ID, "status", "statusMessage", "createdAt", "lastUpdatedAt")
_LIFETIMES = {"ttlMs": "ttl", "pollIntervalMs": "pollInterval"}


# Who has tasks


def capabilities(*, modern: bool) -> Json:
    """Return the capabilities of a server some of whose tools become tasks."""
    if modern:
        return {"extensions": {TASKS_EXTENSION: {}}}
    return {"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}


def declares_tasks(declared: JsonObject) -> bool:
    """Whether the capabilities of a modern client have the extension."""
    return TASKS_EXTENSION in object_or_empty(declared.get("extensions"))


def support(word: str) -> Json:
    """Return the members of a tool's definition with `"optional"` or `"required"` for clients of 2025-11-25."""
    return {"execution": {"taskSupport": word}}


def makes_tasks(declared: JsonObject) -> bool:
    """Whether a server's capabilities of 2025-11-25 have tasks for calls."""
    offered: object = declared
    for part in ("tasks", "requests", "tools", "call"):
        offered = object_or_empty(offered).get(part)
    return offered is not None


def task_support(definition: JsonObject) -> str:
    """Return whether a tool of 2025-11-25 is called as a task: `"required"`, `"optional"` or `"forbidden"`."""
    execution = object_or_empty(definition.get("execution"))
    return as_text(execution.get("taskSupport")) or "forbidden"


def needs_task(definition: JsonObject, declared: JsonObject) -> bool:
    """Whether a tool must be called as a task, and the server's capabilities of 2025-11-25 have tasks for calls."""
    return task_support(definition) == "required" and makes_tasks(declared)


# As a server keeps and shows them


def created(name: str, *, ttl_ms: int, poll_ms: int, now: float) -> Json:
    """Return a new task, in the form of the extension.

    Args:
        name: Its id, which cannot be guessed.
        ttl_ms: Milliseconds until it is forgotten.
        poll_ms: The poll interval for clients, in milliseconds.
        now: Seconds since the epoch.
    """
    made = _stamp(now)
    shown: Json = {TASK_ID: name, "status": "working", "createdAt": made, "lastUpdatedAt": made}
    return shown | {"ttlMs": ttl_ms, "pollIntervalMs": poll_ms}


def updated(shown: Json, now: float, **members: Any) -> Json:
    """Return a task with other members; None removes one, and so does a status that has no such member."""
    changed = {**shown, **members, "lastUpdatedAt": _stamp(now)}
    status = changed["status"]
    made: Json = {}
    for name, value in changed.items():
        is_of_status = _SHOWN_WHEN.get(name, status) == status
        if is_of_status and value is not None:
            made[name] = value
    return made


def failed(shown: Json, now: float, error: RequestError) -> Json:
    """Return a task that failed with a JSON-RPC error."""
    return updated(shown, now, status="failed", statusMessage=error.message, error=_error_json(error))


def _error_json(error: RequestError) -> Json:
    made: Json = {"code": error.code, "message": error.message}
    if error.data is None:
        return made
    return made | {"data": error.data}


def in_core(shown: JsonObject) -> Json:
    """Return a task as revision 2025-11-25 writes it."""
    task = only_members(shown, _IN_CORE)
    if object_or_empty(shown.get("result")).get("isError") is True:
        # In that revision it also stands for errors of a tool.
        task["status"] = "failed"
    for new, old in _LIFETIMES.items():
        if new in shown:
            task[old] = shown[new]
    # Required, in that revision.
    task.setdefault("ttl", None)
    return task


def in_extension(task: JsonObject) -> Json:
    """Return a task as the extension writes it, from its form in 2025-11-25, where its outcome is asked for."""
    shown = only_members(task, _IN_CORE)
    for new, old in _LIFETIMES.items():
        if old in task:
            shown[new] = task[old]
    shown.setdefault("ttlMs", None)
    return shown


def with_outcome(shown: JsonObject, outcome: JsonObject | RequestError) -> Json:
    """Return an ended task of the extension with the result of its call, or the JSON-RPC error that it failed with.

    A call whose result is an error of the tool has completed.
    """
    if isinstance(outcome, RequestError):
        return {**shown, "status": "failed", "error": _error_json(outcome)}
    return {**shown, "status": "completed", "result": outcome}


def task_result(shown: JsonObject, *, modern: bool) -> Json:
    """Return the result of a call that became a task."""
    if modern:
        return {"resultType": "task", **shown}
    return {"task": in_core(shown)}


def is_task(result: JsonObject) -> bool:
    """Whether the result of a call names the task that it became, in either form."""
    return result.get("resultType") == "task" or as_object(result.get("task")) is not None


def with_task_id(task: JsonObject, task_id: str) -> Json:
    """Return a task, in either form, under another id."""
    return {**task, TASK_ID: task_id}


def related(task_id: str) -> Json:
    """Return the member of `_meta` by which a message of 2025-11-25 names its task."""
    return {RELATED_TASK: {TASK_ID: task_id}}


def related_task(params: JsonObject) -> str | None:
    """Return the id of the task that a message of 2025-11-25 names, or None."""
    meta = object_or_empty(params.get("_meta"))
    return as_text(object_or_empty(meta.get(RELATED_TASK)).get(TASK_ID))


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# As a client reads them


class TaskDocument(Value, frozen=True, kw_only=True):
    """A task as its server describes it now; untrusted.

    Attributes:
        id: Its name, or None where the server does not repeat it.
        status: `working`, `input_required`, `completed`, `failed` or `cancelled`.
        message: The server's message about its status, or None.
        poll_ms: The poll interval in milliseconds, or None.
        ttl_ms: Milliseconds after its creation in which it is kept, or None.
        requests: Requests for input, by key.
        result: The result of the call, once the task has completed; None in 2025-11-25, where it is asked for.
        error: The JSON-RPC error of a task that failed, likewise.
    """

    id: str | None
    status: str
    message: str | None = None
    poll_ms: float | None = None
    ttl_ms: float | None = None
    requests: JsonObject
    result: JsonObject | None = None
    error: JsonObject | None = None

    @property
    def ended(self) -> bool:
        """Whether the status is final."""
        return self.status in ENDED


def read_task(raw: JsonObject, *, modern: bool) -> TaskDocument:
    """Return a task that a server describes.

    Raises:
        ValueError: It has an unknown status.
    """
    status = raw.get("status")
    if not isinstance(status, str) or status not in _STATUSES:
        raise ValueError(f"unknown status {str(status)[:80]!r}")
    if modern:
        poll_ms = raw.get("pollIntervalMs")
        ttl_ms = raw.get("ttlMs")
    else:
        poll_ms = raw.get("pollInterval")
        ttl_ms = raw.get("ttl")
    return TaskDocument(
        id=as_text(raw.get(TASK_ID)),
        status=status,
        message=as_text(raw.get("statusMessage")),
        poll_ms=finite_number(poll_ms),
        ttl_ms=finite_number(ttl_ms),
        requests=object_or_empty(raw.get(INPUT_REQUESTS)),
        result=as_object(raw.get("result")),
        error=as_object(raw.get("error")),
    )
