"""The model's turns of one run: requested, streamed as events, and recorded; a recorded turn is replayed.

Does not decide the next step (`step.py` does) and makes no call.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from dataclasses import replace
from inspect import isawaitable

from toolweave.agent import _events as events
from toolweave.agent._history import trim_history
from toolweave.agent._loop.runtime import RunEnvironment
from toolweave.errors import ModelError
from toolweave.models import AssistantMessage, Finished, Message, ModelRequest, ToolCallPart
from toolweave.models import _base as base
from toolweave.models._messages import AssistantPart
from toolweave.models._prices import priced, with_listed_price

_log = logging.getLogger("toolweave.agent")
_MAX_TRIMS = 3


class CallIds:
    """Unique ids for the calls of one turn; a provider's id that is free is kept.

    Args:
        used: The ids of the conversation up to the turn.
    """

    def __init__(self, used: AbstractSet[str]) -> None:
        # Not copied: a long run would pay for that at each of its turns.
        self._used_before = used
        self._used: set[str] = set()
        self._started: defaultdict[str, deque[str]] = defaultdict(deque)

    def start(self, given: str) -> str:
        """Return the id of a call that the model begins."""
        self._started[given].append(self._unique(given))
        return self._started[given][-1]

    def current(self, given: str) -> str:
        """Return the unique id of the last call that began with this provider id."""
        started = self._started.get(given)
        if started:
            return started[-1]
        return given

    def finish(self, message: AssistantMessage) -> AssistantMessage:
        """Return the finished turn with its call ids made unique."""
        parts: list[AssistantPart] = []
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                part = self._finished(part)
            parts.append(part)
        if all(new is old for new, old in zip(parts, message.parts, strict=True)):
            return message
        return replace(message, parts=tuple(parts))

    def _finished(self, call: ToolCallPart) -> ToolCallPart:
        # Calls of one id were started in the order in which the message has them.
        started = self._started.get(call.id)
        call_id = started.popleft() if started else self._unique(call.id)
        if call_id == call.id:
            return call
        return replace(call, id=call_id)

    def _unique(self, given: str) -> str:
        name = given or "call"
        unique = given
        number = 1
        while not unique or unique in self._used or unique in self._used_before:
            number += 1
            unique = f"{name}_{number}"
        self._used.add(unique)
        return unique


class ModelTurns:
    """Requests the turns of one run from its model.

    Attributes:
        partial: The text so far of the current turn, or of one that was broken off.
    """

    def __init__(self, environment: RunEnvironment, *, priced: bool) -> None:
        self.partial: list[str] = []
        self._environment = environment
        self._model = environment.runtime.model
        self._emit = environment.emit
        self._priced = priced
        # Of the conversation that the model accepts, as far as known.
        self._share = 1.0
        # Ids are unique in the whole conversation, as providers refuse one in which two calls have the same id.
        self._used_ids: set[str] = set()
        # Messages whose ids are among those.
        self._scanned = 0

    async def request(self, step: int, request: ModelRequest) -> Finished:
        """Return the turn of a step, requested or replayed.

        Raises:
            ModelError: The model could not answer.
        """
        run_id = self._environment.run_id
        journal = self._environment.journal
        self._emit(events.StepStarted(run_id=run_id, step=step, tools=len(request.tools)))
        recorded = await journal.turn(step)
        if recorded is None:
            finished = await self._observed(step, request)
            # Before any call of the turn is made: a resumed run replays the turn instead of asking for another one with
            # other calls.
            await journal.turn_finished(step, finished)
            # The span of a replayed turn was ended by the process that requested it.
            return finished
        telemetry = self._environment.telemetry
        if telemetry is not None:
            telemetry.replayed_turn(recorded)
        if recorded.message.text:
            self._emit(events.TextDelta(run_id=run_id, step=step, text=recorded.message.text))
        return recorded

    async def _observed(self, step: int, request: ModelRequest) -> Finished:
        telemetry = self._environment.telemetry
        if telemetry is None:
            return self._with_cost(await self._fitting(step, request))
        with telemetry.turn(request) as span:
            finished = self._with_cost(await self._fitting(step, request))
            if span.is_recording:
                span.finish(with_listed_price(priced(finished, self._model)))
            else:
                span.finish(finished)
            return finished

    def _with_cost(self, finished: Finished) -> Finished:
        if self._priced:
            return with_listed_price(priced(finished, self._model))
        return finished

    async def _fitting(self, step: int, request: ModelRequest) -> Finished:
        """Return the turn; if the conversation is too long for the model, send ever less of its newest part.

        The share that was accepted is kept for the run's next turns, so that not each of them is refused first.
        """
        used = self._ids_of(request.messages)
        messages = await self._history(request.messages)
        for _ in range(_MAX_TRIMS):
            # The whole conversation is kept and saved: only the model gets a part of it.
            sent = self._newest(messages)
            try:
                return await self._streamed(step, replace(request, messages=tuple(sent)), used)
            except ModelError as exc:
                shorter = trim_history(messages, keep=self._share / 2)
                # Nothing shorter is left: the newest message alone is too long, and to send it again changes nothing.
                if exc.kind != "too_long" or len(shorter) == len(sent):
                    raise
                self._share /= 2
                _log.info("%s; its newest %d of %d messages are sent instead", exc, len(shorter), len(messages))
        return await self._streamed(step, replace(request, messages=tuple(self._newest(messages))), used)

    async def _history(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages of a conversation that the agent's `history` sends."""
        history = self._environment.runtime.history
        if history is None:
            return messages
        chosen = history(messages)
        if isawaitable(chosen):
            return await chosen
        return chosen

    def _newest(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the part of a conversation that the model accepts, as far as known."""
        if self._share == 1.0:
            return messages
        return trim_history(messages, keep=self._share)

    def _ids_of(self, messages: Sequence[Message]) -> AbstractSet[str]:
        """Return the ids of all calls of the run's conversation; only new messages are scanned."""
        for message in messages[self._scanned :]:
            if isinstance(message, AssistantMessage):
                self._used_ids.update(call.id for call in message.tool_calls)
        self._scanned = len(messages)
        return self._used_ids

    async def _streamed(self, step: int, request: ModelRequest, used: AbstractSet[str]) -> Finished:
        run_id = self._environment.run_id
        ids = CallIds(used)
        self.partial = []
        # Closed in this task, and not by the garbage collector: the connection of a broken-off turn must not stay open.
        async with aclosing(self._model.stream(request)) as stream:
            async for event in stream:
                match event:
                    case base.StreamedText():
                        self.partial.append(event.text)
                        self._emit(events.TextDelta(run_id=run_id, step=step, text=event.text))
                    case base.StreamedThinking():
                        self._emit(events.ThinkingDelta(run_id=run_id, step=step, text=event.text))
                    case base.StreamedToolCall():
                        call = ToolCallPart(id=ids.start(event.id), name=event.name)
                        self._emit(events.ToolCallStarted(run_id=run_id, step=step, call=call))
                    case base.ToolCallDelta():
                        call_id = ids.current(event.id)
                        delta = event.arguments
                        self._emit(events.ToolArguments(run_id=run_id, step=step, call_id=call_id, delta=delta))
                    case base.StreamRestarted():
                        ids = CallIds(used)
                        self.partial = []
                        self._emit(events.TurnRestarted(run_id=run_id, step=step, error=event.error))
                    case base.Finished():
                        self.partial = []
                        return replace(event, message=ids.finish(event.message))
        # A stream that ends without `Finished` has no usage and perhaps half a call, so it does not count as a turn.
        raise ModelError("the turn broke off", model=self._model.name)
