"""What a run tells its journal, when, and what it does not do again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest

from toolweave import Agent, ModelError, ToolSpec
from toolweave.agent import RunResult
from toolweave.agent._journal import Journal, Recorded, RunStart
from toolweave.agent._questions import NOTHING_ASKED, Asked
from toolweave.agent.approval import Approval, WaitingCall
from toolweave.errors import RunError, StoreError
from toolweave.models import Finished, Message, ScriptedModel, ToolCallPart, ToolMessage, UserMessage, tool_call


class Notebook(Journal):
    """A journal in memory that notes the order of everything; what is in it is not done again."""

    def __init__(self, *, fails: str = "") -> None:
        self.notes: list[str] = []
        self.start: RunStart | None = None
        self.turns: dict[int, Finished] = {}
        self.calls: dict[tuple[int, str], Recorded] = {}
        self.result: RunResult | None = None
        self.cancel: Callable[[], None] = lambda: None
        self._fails = fails

    def held(
        self, cancel: Callable[[], None], *, sent: Sequence[Message] = (), session: str | None = None
    ) -> AbstractAsyncContextManager[None]:
        self.cancel = cancel
        return self._held()

    @asynccontextmanager
    async def _held(self) -> AsyncGenerator[None, None]:
        self._note("held")
        try:
            yield
        finally:
            self._note("let go")

    async def started(self, start: RunStart) -> RunStart:
        self._note("started")
        self.start = self.start or start
        return self.start

    async def turn(self, step: int) -> Finished | None:
        return self.turns.get(step)

    async def turn_finished(self, step: int, turn: Finished) -> None:
        self.turns[step] = turn
        self._note(f"turn {step}")

    async def allowed(self) -> Collection[str]:
        return ()

    async def allow(self, tool: ToolSpec, *, persistent: bool) -> None:
        self._note(f"allow {tool.name}")

    async def call(self, step: int, call: ToolCallPart, tool: ToolSpec | None) -> Recorded | None:
        return self.calls.get((step, call.id))

    async def answer(self, call: ToolCallPart, tool: ToolSpec) -> Approval | None:
        return None

    async def waiting(self, result: RunResult, calls: Sequence[WaitingCall]) -> None:
        self._note("waiting")

    async def asked(self, step: int, call: ToolCallPart, tool: ToolSpec) -> Asked:
        return NOTHING_ASKED

    async def call_started(self, step: int, call: ToolCallPart, tool: ToolSpec) -> None:
        self._note(f"begin {call.id}")

    async def call_finished(self, step: int, call: ToolCallPart, recorded: Recorded) -> None:
        self.calls[step, call.id] = recorded
        self._note(f"end {call.id}")

    async def finished(self, result: RunResult) -> None:
        self._note("finished")
        self.result = result

    def _note(self, what: str) -> None:
        self.notes.append(what)
        if what == self._fails:
            raise StoreError("disk full", collection="runs")


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def count(self) -> int:
        self.calls += 1
        return self.calls


class Hanging:
    def __init__(self, reached: anyio.Event) -> None:
        self._reached = reached

    async def hang(self) -> None:
        self._reached.set()
        await anyio.sleep_forever()


TURNS: list[Any] = [tool_call("count", id="a"), [tool_call("count", id="b")], "two"]


async def test_a_journal_is_told_after_each_turn_and_around_each_call() -> None:
    book = Notebook()

    agent = Agent(ScriptedModel(TURNS), tools=[Counter().count])
    result = await agent.begin(_sent("go"), journal=book)

    assert book.notes == [
        *("held", "started"),
        *("turn 1", "begin a", "end a"),
        *("turn 2", "begin b", "end b"),
        *("turn 3", "finished", "let go"),
    ]
    assert book.result == result
    assert book.start is not None
    assert (book.start.sent, book.start.run_id) == (1, result.run_id)


@pytest.mark.parametrize("boundary", ["turn 1", "begin a", "end a", "turn 2", "begin b", "end b", "turn 3"])
async def test_a_run_that_ended_at_any_boundary_is_replayed_from_its_journal(boundary: str) -> None:
    book, counter = Notebook(fails=boundary), Counter()
    first = ScriptedModel(TURNS)
    with pytest.raises(StoreError):
        await Agent(first, tools=[counter.count]).begin(_sent("go"), journal=book, run_id="r")
    assert "finished" not in book.notes
    asked = len(book.turns)

    book._fails = ""
    again = ScriptedModel(TURNS[asked:])
    result = await Agent(again, tools=[counter.count]).begin((), journal=book, run_id="r")

    assert (result.text, result.run_id, result.steps) == ("two", "r", 3)
    assert len(again.requests) == 3 - asked
    recorded = [one for one in result.messages if isinstance(one, ToolMessage)]
    assert len(recorded) == 2
    assert [one.outcomes[0].result.text for one in recorded] == ["1", "2"]
    assert counter.calls == 2
    assert result.messages[0] == _sent("go")[0]


async def test_a_denied_call_is_recorded_and_not_asked_about_again() -> None:
    book = Notebook()
    turns = [tool_call("count", id="a"), "no"]
    agent = Agent(ScriptedModel(turns), tools=[Counter().count], confirm=lambda call, tool: False)
    await agent.begin(_sent("go"), journal=book)

    def never(call: ToolCallPart, tool: ToolSpec) -> bool:
        raise AssertionError("asked again")

    again = Agent(ScriptedModel([]), tools=[Counter().count], confirm=never)
    result = await again.begin((), journal=book)

    assert "begin a" not in book.notes
    assert result.text == "no"


async def test_a_finished_call_of_a_tool_that_is_gone_is_replayed_all_the_same() -> None:
    book = Notebook()
    await Agent(ScriptedModel(TURNS), tools=[Counter().count]).begin(_sent("go"), journal=book)

    result = await Agent(ScriptedModel([])).begin((), journal=book)

    assert result.text == "two"


async def test_what_a_failed_run_came_to_is_recorded() -> None:
    book = Notebook()

    with pytest.raises(ModelError):
        await Agent(ScriptedModel([ModelError("busy", model="m")])).begin(_sent("go"), journal=book)

    assert book.result is not None
    assert book.result.stop_reason == "model_error"


async def test_a_cancelled_run_is_recorded_and_a_run_that_is_shut_down_is_not() -> None:
    for shut_down in (False, True):
        book, reached = Notebook(), anyio.Event()

        agent = Agent(ScriptedModel([tool_call("hang"), "x"]), tools=[Hanging(reached).hang])
        async with agent:
            run = agent.begin(_sent("go"), journal=book).start()
            await reached.wait()
            if not shut_down:
                run.cancel()
                await run

        assert run.status == "cancelled"
        assert ("finished" in book.notes) is not shut_down
        assert book.notes[-1] == "let go"


async def test_a_journal_may_cancel_its_run() -> None:
    book, reached = Notebook(), anyio.Event()

    async def wait() -> None:
        reached.set()
        await anyio.sleep_forever()

    run = Agent(ScriptedModel([tool_call("wait"), "x"]), tools=[wait]).begin(_sent("go"), journal=book).start()
    await reached.wait()
    book.cancel()
    assert (await run).status == "cancelled"


async def test_a_run_that_goes_on_elsewhere_does_not_begin_here() -> None:
    class Taken(Notebook):
        @asynccontextmanager
        async def _held(self) -> AsyncGenerator[None, None]:
            raise RunError("goes on in another process", run_id="r", reason="taken")
            yield

    book, model = Taken(), ScriptedModel(["x"])

    with pytest.raises(RunError, match="another process"):
        await Agent(model).begin(_sent("go"), journal=book, run_id="r")

    assert model.requests == []
    assert book.notes == []


def _sent(text: str) -> Any:
    return (UserMessage.of(text),)
