"""Task rules: the calls that become tasks, for which clients, and the recovery after a worker died.

Knows definitions and requests; not where tasks run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from toolweave._option_checks import FLAG, check_kinds
from toolweave.errors import RequestError
from toolweave.protocol.codes import HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CAPABILITY
from toolweave.protocol.input_required import INPUT_RESPONSES
from toolweave.protocol.meta import TASKS_EXTENSION
from toolweave.protocol.tasks import TASK_ID, capabilities, declares_tasks, support
from toolweave.protocol.versions import TASKS_VERSION
from toolweave.serve.request import Json, Request
from toolweave.tools import RESUMABLE, ToolSpec

TaskSupport: TypeAlias = Literal["optional", "required"]
"""Whether a client that has no tasks may call the tool."""

OnLost: TypeAlias = Literal["rerun", "fail"]
"""The recovery of a task whose worker died: the tool runs again, or the task fails, for its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class TaskRule:
    """The rule by which a tool's calls become tasks.

    Attributes:
        support: `"required"` refuses clients that have no tasks, `"optional"` gives them a plain call.
        ask_first: The first questions are asked in the call itself, and the task, in which the handler runs from its
            start again, begins with their answers. A call that asks nothing is answered without a task.
        on_lost: The recovery when the worker that ran it died. By default the tool runs again only if it declares
            that this is safe (`readOnlyHint`, `idempotentHint`), or resumes where it was, as a durable agent does.
    """

    support: TaskSupport
    ask_first: bool = False
    on_lost: OnLost | None = None

    def __post_init__(self) -> None:
        check_kinds(self, {"ask_first": FLAG}, owner="TaskRule")
        if self.support not in get_args(TaskSupport):
            raise ValueError(f"task support is 'optional' or 'required', not {self.support!r}")
        # a typing error must not run anything twice
        if self.on_lost not in (None, *get_args(OnLost)):
            raise ValueError(f"on_lost is 'rerun', 'fail' or None, not {self.on_lost!r}")


class TaskRules:
    """The rules of one server, by the names of its tools.

    Raises:
        ValueError: A rule is not valid.
    """

    def __init__(self, rules: Mapping[str, TaskSupport | TaskRule]) -> None:
        self._rules: dict[str, TaskRule] = {}
        for name, rule in rules.items():
            if not isinstance(rule, TaskRule):
                rule = TaskRule(rule)
            self._rules[name] = rule

    def __bool__(self) -> bool:
        return bool(self._rules)

    def takes(self, spec: ToolSpec, request: Request) -> bool:
        """Whether this call becomes a task.

        Raises:
            RequestError: The tool requires tasks and this client does not support them.
        """
        if not self._rules:
            return False
        rule = self._rules.get(spec.name)
        has_core_tasks = not request.modern and request.client.version == TASKS_VERSION
        asked = has_core_tasks and "task" in request.params
        if rule is None:
            if asked:
                raise RequestError(f"tool {spec.name!r} cannot be called as a task", code=METHOD_NOT_FOUND)
            return False
        if not request.modern:
            if rule.support == "required" and not asked:
                raise RequestError(
                    f"tool {spec.name!r} runs only as a task: "
                    f"with 'task' in revision {TASKS_VERSION}, or with the extension",
                    code=METHOD_NOT_FOUND,
                )
            return asked
        if declared(request):
            return not rule.ask_first or INPUT_RESPONSES in request.params
        if rule.support == "required":
            raise undeclared()
        return False

    def support(self, spec: ToolSpec, *, modern: bool) -> Json:
        """Return the members of a tool definition that declare its task support; the extension has none."""
        rule = self._rules.get(spec.name)
        if modern or rule is None:
            return {}
        return support(rule.support)

    def reruns(self, spec: ToolSpec) -> bool:
        """Whether a tool runs again when the worker that ran it died."""
        rule = self._rules.get(spec.name)
        if rule is not None and rule.on_lost is not None:
            return rule.on_lost == "rerun"
        if spec.hint("readOnlyHint") is True or spec.hint("idempotentHint") is True:
            return True
        # the member of another server's definition is not trusted
        return spec.server is None and spec.meta.get(RESUMABLE) is True


def declared(request: Request) -> bool:
    """Whether a modern client declared the extension."""
    return declares_tasks(request.client.capabilities)


def named_task(request: Request) -> str:
    """Return the id of the task that a request about one names.

    Raises:
        RequestError: The id is missing, the header has another one, or the client did not declare the extension.
    """
    if not request.modern:
        return request.text(TASK_ID)
    if not declared(request):
        raise undeclared()
    name = request.text(TASK_ID)
    if request.headers and request.headers.get("mcp-name", "").strip() != name:
        raise RequestError("the header Mcp-Name and params.taskId must be the same", code=HEADER_MISMATCH)
    return name


def undeclared() -> RequestError:
    """Return the error for a client that did not declare the extension."""
    return RequestError(
        f"Missing required client capability: extension {TASKS_EXTENSION}",
        code=MISSING_CAPABILITY,
        data={"requiredCapabilities": capabilities(modern=True)},
    )
