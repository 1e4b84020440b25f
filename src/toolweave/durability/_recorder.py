"""The recorder of one run under another framework's loop: the answers of its model and the outcomes of its tools.

Knows no framework: its answers and outcomes are texts, which an `OutcomeForm` writes and reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

from toolweave._json_types import Json, JsonObject
from toolweave.agent import Approval, Ask, Recorded, StoreJournal, WaitingCall
from toolweave.agent._idempotency import call_key
from toolweave.agent._journal import ASK, outcome_unknown
from toolweave.agent._stored.waiting import answer_key
from toolweave.agent.approval import definition_digest
from toolweave.errors import RunError, ToolError
from toolweave.models import AssistantMessage, Finished, ProviderPart, TextPart, ToolCallPart, Usage
from toolweave.models._serialization import plain
from toolweave.tools import IDEMPOTENCY_KEY, CallContext, ToolResult, ToolSpec
from toolweave.tools.ambient import calling

T = TypeVar("T")

_OUTCOME = "io.toolweave/outcome"
_RAISED = "raised"
APPROVED = "#approved"
"""The suffix of the id under which a call is recorded that is repeated once it was approved."""
_SHOWN = 2000
"""Characters of the printable text of an outcome, beside its whole form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOutcome:
    """The outcome of a call as it is kept.

    Attributes:
        kind: A word of the framework's form: a result, or which exception.
        value: The outcome in that form; any JSON value.
        text: The same as text.
        is_error: Whether the model gets it as an error.
    """

    kind: str
    value: Any = None
    text: str = ""
    is_error: bool = False


class OutcomeForm(Protocol[T]):
    """The serial form of a framework's outcomes of calls."""

    def of_value(self, value: T) -> KeptOutcome:
        """Return the record of a result."""
        ...

    def of_error(self, error: Exception) -> KeptOutcome | Literal["undone"] | None:
        """Return the record of a control exception; None for any other exception.

        `"undone"`: the call has to be made again from its beginning, as the framework will.
        """
        ...

    def replayed(self, kept: KeptOutcome) -> T:
        """Return the result that was kept, or raise the control exception."""
        ...

    def unknown(self, message: str) -> T:
        """Return the error result of a call whose outcome is unknown, or raise it."""
        ...


class CheckedJournal(StoreJournal):
    """The journal of a run whose calls another framework makes: a call of other arguments is not answered.

    Every turn is written at once: what comes after it is the framework's.
    """

    @property
    def reruns(self) -> bool:
        """Whether every call of an unknown outcome is made again."""
        return self._on_unknown == "rerun"

    async def turn_finished(self, step: int, turn: Finished) -> None:
        await super().turn_finished(step, turn)
        await self._writes.flush()
        self._turn_ended(step)

    def differs(self, step: int, call: ToolCallPart) -> str | None:
        """Describe how a call differs from the recorded one; None if it is the same, or none was recorded."""
        found = self._entries.get(self._call_key(step, call))
        if found is None or self._named(call).items() <= found.value.items():
            return None
        recorded = found.value["name"]
        if recorded == call.name:
            return "its arguments differ"
        return f"it was recorded for tool {recorded!r}"

    async def call(self, step: int, call: ToolCallPart, tool: ToolSpec | None) -> Recorded | Ask | None:
        found = await super().call(step, call, tool)
        if found is not ASK:
            return found
        # A framework has no question for it: as with "error".
        recorded = Recorded(result=outcome_unknown(call.name))
        await self.call_finished(step, call, recorded)
        return recorded

    async def call_started(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        await self._let_begin(step, call, tool)
        # the answer that allowed it stays: a replayed run is asked the same question again
        await self._write_begun(step, call)

    async def call_undone(self, step: int, call: ToolCallPart) -> None:
        """Forget that a call was begun."""
        self._writes.remove(self._call_key(step, call))
        await self._writes.flush()
        self._let_end(step, call)

    async def with_question_id(self, step: int, call: ToolCallPart) -> ToolCallPart:
        """Return a call with the id under which a person is asked: its own, or one of its step.

        A model may use the id of an earlier call again, and an answer to that one does not count for this.
        """
        begin = len(self._run_id) + 1
        ends = (f"/call/{call.id}", f"/call/{call.id}{APPROVED}")
        numbered = replace(call, id=f"{call.id}#{step}")
        for key in self._entries:
            if key[begin + 6 :] in ends and int(key[begin : begin + 6]) < step:
                return numbered
        for number in range(1, step):
            turn = await self.turn(number)
            if turn is not None and any(one.id == call.id for one in turn.message.tool_calls):
                return numbered
        return call

    async def decision(self, call: ToolCallPart, tool: ToolSpec) -> Approval | None:
        """Return a person's answer to a call, or the lasting one for its tool; None without either.

        It stays in the journal, so that a replayed run reads it again.
        """
        given = await self.answer(call, tool)
        if given is not None:
            if given.approved and given.remember == "agent":
                await self.allow(tool, persistent=True)
            return given
        digest = definition_digest(tool)
        if digest in self._allowed_to_the_run() or digest in await self.allowed():
            return Approval(approved=True)
        return None

    def _allowed_to_the_run(self) -> set[str]:
        """Return the digests of the tools that an answer allowed from then on."""
        answers = answer_key(self._run_id, "")
        digests: set[str] = set()
        for key, entry in self._entries.items():
            if not key.startswith(answers):
                continue
            answer = entry.value
            if answer["approved"] and answer["remember"] is not None:
                digests.add(answer["digest"])
        return digests

    def _named(self, call: ToolCallPart) -> Json:
        text = json.dumps(plain(call.arguments), sort_keys=True, separators=(",", ":"))
        return {"name": call.name, "arguments": hashlib.sha256(text.encode()).hexdigest()}


class RunRecorder:
    """The record of one run, as its framework's loop needs it.

    A fault ends the run: it is raised again by whatever is recorded or looked up after it, in case the framework made
    an answer for the model of it.

    Args:
        journal: The run's journal.
        run_id: The run.
        repeatable: Names of tools whose calls may be repeated.

    Attributes:
        answers: Number of the model's answers so far.
        usage: Of all answers so far, those that were replayed included.
        fault: The journal's exception, or one of a run that cannot go on; None without.
        failed: Whether the fault is the run's own, and not one of the store or of its lease.
    """

    def __init__(self, journal: CheckedJournal, run_id: str, *, repeatable: Collection[str] = ()) -> None:
        self.run_id = run_id
        self.answers: int = 0
        self.usage: Usage = Usage()
        self.fault: Exception | None = None
        self.failed: bool = False
        self._journal = journal
        self._repeatable = frozenset(repeatable)
        self._raised = set[tuple[int, str]]()
        self._waiting: dict[str, WaitingCall] = {}

    async def answer(self, number: int) -> str | None:
        """Return the recorded answer to the model call of this number, from 1; None when it has to be made."""
        turn = await self._safely(self._journal.turn(number))
        if turn is None:
            return None
        answers = (part.raw.get("answer") for part in turn.message.parts if isinstance(part, ProviderPart))
        answer = next(answers, None)
        if answer is None:
            raise self._fails("cannot continue: its answers were recorded by another kind of agent under the same name")
        self.count(turn.usage)
        return answer

    async def answered(
        self,
        number: int,
        answer: str,
        *,
        framework: str,
        text: str = "",
        calls: Sequence[ToolCallPart] = (),
        usage: Usage | None = None,
    ) -> None:
        """Record the model's answer in its framework's form, with its text and calls."""
        parts = (*((TextPart(text=text),) if text else ()), *calls)
        message = AssistantMessage(parts=(*parts, ProviderPart(provider=framework, raw={"answer": answer})))
        turn = Finished(message=message, usage=usage or Usage(), stop_reason="tool_calls" if calls else "end")
        await self._safely(self._journal.turn_finished(number, turn))
        self.count(turn.usage)

    async def call(
        self,
        step: int,
        call: ToolCallPart,
        annotations: JsonObject | None,
        make: Callable[[], Awaitable[T]],
        form: OutcomeForm[T],
    ) -> T:
        """Return the recorded outcome of a call, or make it and record its outcome.

        A call that has no outcome since its process died is made again when its tool says that this does no harm, or
        `on_unknown` does; else the model reads that its outcome is unknown.
        """
        tool = self._spec(call.name, annotations)
        differs = self._journal.differs(step, call)
        if differs is not None:
            raise self._fails(
                f"cannot be replayed: call {call.id!r} of tool {call.name!r} in step {step} is another one than the "
                f"recorded: {differs}. Continue a run with the agent and the input that it began with"
            )
        found = await self._safely(self._journal.call(step, call, tool))
        if isinstance(found, Recorded):
            kept = _kept(found.result)
            if kept is None:
                return form.unknown(found.result.text)
            if kept.kind != _RAISED:
                return form.replayed(kept)
            if not self._may_repeat(step, call, tool):
                raise self._failed(call, kept)
        await self._safely(self._journal.call_started(step, call, tool))
        key = call_key(self.run_id, step, call.id)
        try:
            with calling(CallContext(meta={IDEMPOTENCY_KEY: key})):
                value = await make()
        except Exception as exc:
            await self._safely(self._ended(step, call, form.of_error(exc), exc))
            raise
        await self._safely(self._finished(step, call, self._form(call, form, value)))
        return value

    async def decision(self, step: int, call: ToolCallPart, tool: ToolSpec) -> Approval | None:
        """Return a person's answer to a call; None if the run has to wait for it."""
        asked = await self._journal.with_question_id(step, call)
        given = await self._safely(self._journal.decision(asked, tool))
        if given is None:
            self._waiting[call.id] = WaitingCall.of(asked, tool, run_id=self.run_id, repeats=False)
        return given

    def waiting(self, call_ids: Collection[str]) -> Sequence[WaitingCall]:
        """Return those of these calls, by their framework's ids, that have no answer yet."""
        return [one for call_id, one in self._waiting.items() if call_id in call_ids]

    async def value(self, step: int, name: str, key: str, form: OutcomeForm[T], make: Callable[[], Awaitable[T]]) -> T:
        """Return a recorded value of another part of the loop, or make it and record it; it may be made twice."""
        part = ToolCallPart(id=key, name=name)
        found = await self._safely(self._journal.call(step, part, None))
        if isinstance(found, Recorded):
            kept = _kept(found.result)
        else:
            kept = None
        if kept is not None:
            return form.replayed(kept)
        value = await make()
        await self._safely(self._finished(step, part, self._form(part, form, value)))
        return value

    async def _ended(
        self, step: int, call: ToolCallPart, kept: KeptOutcome | Literal["undone"] | None, error: Exception
    ) -> None:
        if kept == "undone":
            await self._journal.call_undone(step, call)
            return
        if kept is None:
            self._raised.add((step, call.id))
            kept = KeptOutcome(kind=_RAISED, text=f"{type(error).__name__}: {error}", is_error=True)
        await self._finished(step, call, kept)

    async def _finished(self, step: int, call: ToolCallPart, kept: KeptOutcome) -> None:
        meta = {_OUTCOME: json.dumps({"kind": kept.kind, "value": kept.value}, separators=(",", ":"))}
        text = kept.text[:_SHOWN]
        if kept.is_error:
            result = ToolResult.failure(ToolError(text))
        else:
            result = ToolResult.of(text)
        await self._journal.call_finished(step, call, Recorded(result=result.replace(meta=meta)))

    def _form(self, call: ToolCallPart, form: OutcomeForm[T], value: T) -> KeptOutcome:
        try:
            kept = form.of_value(value)
            json.dumps(kept.value)
        except Exception as exc:
            # Boundary: whatever the framework's serializer raises.
            raise self._fails(
                f"cannot continue: what {call.name!r} returned cannot be recorded ({exc}); return what its framework "
                "can write as JSON"
            ) from exc
        return kept

    def _may_repeat(self, step: int, call: ToolCallPart, tool: ToolSpec) -> bool:
        """Whether a call that raised is made again: its tool allows it, or the framework does so by itself."""
        if True in (tool.hint("readOnlyHint"), tool.hint("idempotentHint")):
            return True
        return self._journal.reruns or (step, call.id) in self._raised

    def _spec(self, name: str, annotations: JsonObject | None) -> ToolSpec:
        if name in self._repeatable:
            known = {"idempotentHint": True}
        else:
            known = {}
        return ToolSpec(name=name, annotations={**(annotations or {}), **known})

    def _failed(self, call: ToolCallPart, kept: KeptOutcome) -> RunError:
        message = f"failed in tool {call.name!r}, which is not called again as it may not be repeated; it had raised "
        return RunError(message + kept.text, run_id=self.run_id, reason="error")

    def _fails(self, message: str) -> RunError:
        error = RunError(message, run_id=self.run_id, reason="error")
        self.fault = self.fault or error
        self.failed = True
        return error

    def count(self, *usages: Usage) -> None:
        """Count answers of the model, where they are not recorded as such."""
        for usage in usages:
            self.answers += 1
            self.usage += usage

    async def _safely(self, recorded: Awaitable[T]) -> T:
        """Return the answer of the journal, unless it has failed once."""
        if self.fault is not None:
            if hasattr(recorded, "close"):
                recorded.close()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - a coroutine that nobody awaits
            raise self.fault
        try:
            return await recorded
        except Exception as exc:
            self.fault = exc
            raise


def _kept(result: ToolResult) -> KeptOutcome | None:
    """Return the framework's outcome in a recorded result; None for one that we recorded instead."""
    text = result.meta.get(_OUTCOME)
    if text is None:
        return None
    value = json.loads(text)
    return KeptOutcome(kind=value["kind"], value=value["value"], text=result.text, is_error=result.is_error)
