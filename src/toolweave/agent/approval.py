"""Approval of tool calls: the policy, the permanent grants, and the calls that wait for a person.

Knows no user interface: an answer names the call by its id.

A call waits in `_waiting` until it is answered, or its time is up. The first answer takes it out of there: a second
one, or one after the time limit, does nothing. An answer that is remembered counts
for the other waiting calls of the tool, unless one of them is asked about for another reason than its tool.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, TypeAlias

import anyio

from toolweave._json_types import Json, JsonObject, new_object
from toolweave.errors import ErrorKind, ToolError
from toolweave.models import ToolCallPart
from toolweave.models._serialization import plain
from toolweave.protocol.client_requests import ElicitationRequest
from toolweave.schema.fitting import as_fitted
from toolweave.tools import ToolResult, ToolSpec
from toolweave.tools.spec import is_destructive

__all__ = [
    "STORED_CONFIRMS",
    "Answer",
    "Approval",
    "Approvals",
    "Attended",
    "Confirm",
    "Grants",
    "StoredConfirm",
    "WaitingCall",
    "WaitingQuestion",
    "checked_confirm",
    "definition_digest",
    "denied",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A decision on a call.

    Attributes:
        approved: Whether the tool may run.
        remember: Allow this tool from now on without asking: `"run"` for this run, `"agent"` for all runs of the agent.
            A changed definition is asked about again.
        reason: Text about a denial that the model reads.
    """

    approved: bool
    remember: Literal["run", "agent"] | None = None
    reason: str | None = None


Answer: TypeAlias = bool | Approval | None
Confirm: TypeAlias = (
    Literal["always", "never", "destructive"] | Callable[[ToolCallPart, ToolSpec], Answer | Awaitable[Answer]]
)
"""Policy for the approval of tool calls: all, none, those of tools that are destructive by their annotations, or a
function of call and tool: True allows the call, False denies it, None asks a person."""


StoredConfirm: TypeAlias = Literal["never", "destructive", "always"]
"""A policy as it is stored for another process, which cannot call a function: it is `"always"` there."""
STORED_CONFIRMS: tuple[StoredConfirm, ...] = ("never", "destructive", "always")
"""The policies, the strictest last."""

Attended: TypeAlias = bool | Literal["later"]
"""Whether a person can approve calls: now, not at all, or later, while no process executes the run."""


class Grants:
    """Tools that are allowed permanently, by their identity and their definition."""

    def __init__(self) -> None:
        self._digests: set[str] = set()

    def add(self, tool: ToolSpec) -> None:
        """Allow a tool by its present definition."""
        self._digests.add(definition_digest(tool))

    def restore(self, digests: Iterable[str]) -> None:
        """Allow the tools of these `definition_digest`s."""
        self._digests.update(digests)

    def __contains__(self, tool: object) -> bool:
        if not self._digests or not isinstance(tool, ToolSpec):
            return False
        return definition_digest(tool) in self._digests


@dataclass(slots=True)
class _PendingApproval:
    call: ToolCallPart
    tool: ToolSpec
    alone: bool = False
    """Whether the question is about this call alone, not about the tool."""
    decided: anyio.Event = field(default_factory=anyio.Event)
    approval: Approval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingQuestion:
    """A question of a server to its user in the middle of a call: the server's own, unchecked text.

    Attributes:
        message: The question.
        mode: `"form"`: fill in `schema`. `"url"`: visit `url`, which must not be opened without consent.
        schema: JSON Schema of the form: an object of primitive properties.
        asked_by: The result that asked, which a modern server's call continues; it has the server's opaque state.
    """

    message: str
    mode: Literal["form", "url"] = "form"
    schema: JsonObject = field(default_factory=new_object)
    url: str | None = None
    asked_by: JsonObject | None = field(default=None, repr=False)

    @classmethod
    def of(cls, request: ElicitationRequest, asked_by: JsonObject | None = None) -> WaitingQuestion:
        """Return the question of a server's request."""
        return cls(
            message=request.message, mode=request.mode, schema=request.schema, url=request.url, asked_by=asked_by
        )

    @property
    def digest(self) -> str:
        """Digest of the question, by which an answer is found when the same is asked again."""
        asked = json.dumps([self.mode, self.message, self.schema, self.url], sort_keys=True)
        return hashlib.sha256(asked.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCall:
    """A call that waits for a person: for approval, or for the answer to a question of its server.

    Attributes:
        run_id: The run.
        call_id: Its id, unique in the run; of a question, the id of the call and a number (`call_1:1`).
        tool: The tool's exposed name.
        arguments: The whole arguments.
        server: The tool's server, or None.
        description: The tool's description; unchecked text of a server.
        repeats: Whether the call had begun in a process that died, so that it may have been carried out already.
        digest: The digest of the tool's definition; an answer counts for this definition only.
        asked_at: Time of the question in seconds.
        question: The server's question in the call, which was approved before; None for a call that needs approval.
    """

    run_id: str
    call_id: str
    tool: str
    arguments: JsonObject
    server: str | None = None
    description: str = ""
    repeats: bool = False
    digest: str = ""
    asked_at: float = 0.0
    question: WaitingQuestion | None = None

    @property
    def of_call(self) -> str:
        """The id of the tool call."""
        if self.question is None:
            return self.call_id
        return self.call_id.rpartition(":")[0]

    @classmethod
    def of(cls, call: ToolCallPart, tool: ToolSpec, *, run_id: str, repeats: bool) -> WaitingCall:
        """Return the waiting call of a run."""
        return cls(
            run_id=run_id,
            call_id=call.id,
            tool=call.name,
            arguments=call.arguments,
            server=tool.server,
            description=tool.description,
            repeats=repeats,
            digest=definition_digest(tool),
        )

    @classmethod
    def from_json(cls, value: JsonObject) -> WaitingCall:
        """Return a waiting call of a store."""
        members: Json = {**value}
        asked: JsonObject | None = members.pop("question", None)
        question = None if asked is None else WaitingQuestion(**asked)
        return cls(**members, question=question)

    def to_json(self) -> Json:
        """Return it for a store."""
        value = asdict(self)
        if self.question is None:  # which older versions do not know
            del value["question"]
        return plain(value)

    def shown(self) -> Json:
        """Return its printable form, without the server's opaque state."""
        value = self.to_json()
        value.get("question", {}).pop("asked_by", None)
        return value


class Approvals:
    """The approvals of one run.

    Args:
        confirm: The policy.
        allowed: The permanent grants of the agent.
        seconds: Time limit for a person's answer.
        attended: Whether a person can be asked.
        above: The approvals of the run whose tool started this one: a run below may do no more than those above it.
    """

    attended: Attended

    def __init__(
        self,
        confirm: Confirm,
        allowed: Grants,
        *,
        seconds: float,
        attended: Attended = True,
        above: Approvals | None = None,
    ) -> None:
        self._confirm: Confirm = confirm
        self._for_agent = allowed
        self._for_run = Grants()
        self._by_person = Grants()
        self._seconds = seconds
        self._above = above
        self._stored_above: StoredConfirm = "never"
        self.attended = attended
        self._waiting: dict[str, _PendingApproval] = {}

    def restore(self, digests: Iterable[str]) -> None:
        """Allow the tools of these `definition_digest`s to the run."""
        self._for_run.restore(digests)

    @property
    def strictest(self) -> StoredConfirm:
        """The strictest policy of this run and of those above it, as it is stored for a run in another process."""
        own: StoredConfirm = "always"
        if not callable(self._confirm):
            own = self._confirm
        policies: list[StoredConfirm] = [own, self._stored_above]
        if self._above is not None:
            policies.append(self._above.strictest)
        return max(policies, key=STORED_CONFIRMS.index)

    def restore_above(self, policy: StoredConfirm) -> None:
        """Apply the stored policy of runs above that are not in this process; an unknown one is the strictest."""
        self._stored_above = policy
        if policy not in STORED_CONFIRMS:
            self._stored_above = "always"

    @property
    def seconds(self) -> float:
        """Time limit for a person's answer."""
        return self._seconds

    @property
    def waiting(self) -> tuple[ToolCallPart, ...]:
        """The calls that wait for a person."""
        return tuple(waiting.call for waiting in self._waiting.values())

    async def decide(
        self, call: ToolCallPart, tool: ToolSpec, ask: Callable[[], None], *, force: bool = False
    ) -> tuple[Approval | None, bool]:
        """Return the decision on a call, and whether a person was asked; `ask` is called to announce the question.

        The decision is None if the run waits for it. With `force` a person is asked under any policy. A tool
        whose config wants approvals is asked about under any policy that is not a function.
        """
        above = await self._ruling_above(call, tool)
        if _denies(above):
            return _approval(above), False
        # A run above that wants a person to decide leaves nothing to this policy, except to deny.
        asks_above = above is None
        if not force:
            # A grant of this policy does not answer a run above that asks; one of a person does.
            if self._is_granted(tool) and (not asks_above or tool in self._by_person):
                return Approval(approved=True), False
            if self._asks_nobody(tool) and not asks_above:
                return Approval(approved=True), False
            answer = await self._answer(call, tool)
            is_decided = answer is not None and not asks_above
            if is_decided or _denies(answer):
                approval = _approval(answer)
                self._remember(tool, approval)
                return approval, False
        if self.attended == "later":
            ask()
            return None, True
        if not self.attended:
            return Approval(approved=False, reason="nobody can be asked"), False
        return await self._asked(_PendingApproval(call, tool, alone=force), ask), True

    def _is_granted(self, tool: ToolSpec) -> bool:
        return tool in self._for_run or tool in self._for_agent

    def _asks_nobody(self, tool: ToolSpec) -> bool:
        """Whether the policy allows the tool, and its config does not want approvals."""
        return self._confirm == "never" and not tool.needs_approval

    async def _ruling_above(self, call: ToolCallPart, tool: ToolSpec) -> Answer:
        """Return the answer of the runs above; the topmost run has none, and allows."""
        above: Answer = True
        if self._above is not None:
            above = await self._above.ruling(call, tool)
        if _denies(above):
            return above
        if self._stored_above == "never":
            return above
        if self._stored_above == "always":
            return None
        return None if is_destructive(tool) else above

    async def ruling(self, call: ToolCallPart, tool: ToolSpec) -> Answer:
        """Return the answer of this policy, and of those above it, to a call of a run below; None asks a person."""
        above = await self._ruling_above(call, tool)
        if _denies(above):
            return above
        if self._confirm == "never" or self._is_granted(tool):
            return above
        answer = await self._answer(call, tool)
        if answer is None or _denies(answer):
            return answer
        self._remember(tool, _approval(answer))
        return above

    def accept(self, tool: ToolSpec, approval: Approval) -> None:
        """Apply a recorded answer of a person."""
        self._remember(tool, approval)
        if approval.approved and approval.remember is not None:
            self._by_person.add(tool)

    def answer(self, call_id: str, approval: Approval) -> bool:
        """Decide on a call that waits; returns False when none of this id does."""
        waiting = self._waiting.pop(call_id, None)
        if waiting is None:
            return False
        self.accept(waiting.tool, approval)
        self._settle(waiting, approval)
        if approval.approved and approval.remember is not None:
            for other in tuple(self._waiting.values()):
                if other.tool == waiting.tool and not other.alone:
                    del self._waiting[other.call.id]
                    self._settle(other, approval)
        return True

    async def _asked(self, waiting: _PendingApproval, ask: Callable[[], None]) -> Approval:
        self._waiting[waiting.call.id] = waiting
        try:
            ask()
            with anyio.move_on_after(self._seconds):
                await waiting.decided.wait()
        finally:
            self._waiting.pop(waiting.call.id, None)
        return waiting.approval or Approval(approved=False, reason=f"no answer within {self._seconds:g} s")

    async def _answer(self, call: ToolCallPart, tool: ToolSpec) -> Answer:
        confirm = self._confirm
        if not isinstance(confirm, str):
            # The policy reads the arguments as they are sent, so that no text passes for the value that it holds.
            answer = confirm(replace(call, arguments=as_fitted(tool.input_schema, call.arguments)), tool)
            if inspect.isawaitable(answer):
                return await answer
            return answer
        if confirm == "always" or tool.needs_approval or is_destructive(tool):
            return None
        return True

    def _remember(self, tool: ToolSpec, approval: Approval) -> None:
        if not approval.approved:
            return
        if approval.remember == "run":
            self._for_run.add(tool)
        elif approval.remember == "agent":
            self._for_agent.add(tool)

    def _settle(self, waiting: _PendingApproval, approval: Approval) -> None:
        waiting.approval = approval
        waiting.decided.set()


def _approval(answer: Answer) -> Approval:
    """Return the answer of a policy that is a function as a decision.

    Raises:
        TypeError: It is neither a truth value nor an `Approval`.
    """
    if not isinstance(answer, (bool, Approval)):  # "no" would be true
        raise TypeError(f"confirm= answers with True, False, None or an Approval, not {answer!r}")
    if isinstance(answer, Approval):
        return answer
    return Approval(approved=answer)


def _denies(answer: Answer) -> bool:
    if answer is None:
        return False
    return not _approval(answer).approved


def checked_confirm(confirm: Confirm | None) -> Confirm:
    """Return a policy; None is `"never"`.

    Raises:
        ValueError: It is not one of these policies.
    """
    if confirm is None:
        return "never"
    if not callable(confirm) and confirm not in ("always", "never", "destructive"):
        raise ValueError(
            f'confirm= is "always", "never", "destructive" or a function of the call and the tool, not {confirm!r}'
        )
    return confirm


def definition_digest(tool: ToolSpec) -> str:
    """Return a digest of a tool's definition: it changes with everything that a person would check."""
    shown = (
        (tool.server, tool.name, tool.original_name, tool.title, tool.description),
        (tool.input_schema, tool.output_schema, tool.annotations),
    )
    return hashlib.sha256(json.dumps(plain(shown), sort_keys=True).encode()).hexdigest()


def denied(tool: str, approval: Approval) -> ToolResult:
    """Return the error result of a call that was denied."""
    text = f"the call of tool {tool!r} was not allowed"
    if approval.reason:
        text += f": {approval.reason}"
    return ToolResult.failure(ToolError(text, kind=ErrorKind.DENIED))
