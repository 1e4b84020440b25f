"""Two callers of different eras, with different answers, roots and levels, at one upstream at once: nothing crosses."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.gateway.relayed import MODERN, UPSTREAMS, Json, answer_of, calling, gateway_to, upstream
from toolweave import Callbacks, McpConnection
from toolweave.connect import ElicitationRequest, SamplingRequest, SamplingResult

pytestmark = pytest.mark.slow

ERAS = [("2025-06-18", MODERN), ("2025-11-25", "2025-11-25"), (MODERN, "2025-11-25"), (MODERN, MODERN)]
LEVELS = ("debug", "info", "error", "critical")


class Person:
    """A caller that answers with its name, and notes what reaches it."""

    def __init__(self, name: str, level: Any) -> None:
        self.name = name
        self.level = level
        self.asked: list[str] = []
        self.logged: list[str] = []
        self.progress: list[float] = []
        self.answers: list[Json] = []

    @property
    def callbacks(self) -> Callbacks:
        """Return callbacks that answer everything."""

        async def elicitation(request: ElicitationRequest) -> Json:
            self.asked.append(request.message)
            await anyio.lowlevel.checkpoint()
            return {"name": self.name}

        async def sampling(request: SamplingRequest) -> SamplingResult:
            await anyio.lowlevel.checkpoint()
            return SamplingResult(content=f"words of {self.name}", model=self.name)

        return Callbacks(
            elicitation=elicitation,
            sampling=sampling,
            roots=[f"file:///home/{self.name}"],
            logging=lambda message: self.logged.append(str(message.data)),
            log_level=self.level,
        )

    async def use(self, caller: McpConnection) -> None:
        """Make every kind of call, with what comes beside it."""
        self.answers.append(answer_of(await caller.call_tool("interview")))
        for level in LEVELS:
            await caller.call_tool("log", {"message": f"{self.name} {level}", "level": level})
        await caller.call_tool(
            "slow", {"seconds": 0.01, "steps": 3}, on_progress=lambda one: self.progress.append(one.progress)
        )


def names_in(answers: Json) -> set[str]:
    """Return the names in the answers to an interview."""
    (root,) = answers["roots"]["result"]["roots"]
    forms = {answers[key]["result"]["content"]["name"] for key in ("first", "second")}
    return forms | {root["uri"].rpartition("/")[2], answers["words"]["result"]["model"]}


@pytest.mark.parametrize("versions", ERAS, ids="+".join)
@pytest.mark.parametrize("kind", UPSTREAMS)
async def test_questions_logs_and_progress_of_two_callers_at_once_reach_the_caller_they_are_for(
    kind: str, versions: tuple[str, str]
) -> None:
    ada = Person("Ada", "info")
    bob = Person("Bob", "critical")
    with anyio.fail_after(120), upstream(kind) as config:
        gateway = gateway_to(config)
        async with (
            gateway.running(),
            calling(gateway, versions[0], callbacks=ada.callbacks) as one,
            calling(gateway, versions[1], callbacks=bob.callbacks, carrier="http") as other,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(3):
                tasks.start_soon(ada.use, one)
                tasks.start_soon(bob.use, other)

    for person, version in zip((ada, bob), versions, strict=True):
        assert [names_in(one) for one in person.answers] == [{person.name}] * 3
        assert len(person.asked) == 6
        heard = LEVELS[LEVELS.index(person.level) :]
        if (kind, version) == ("stdio-modern", MODERN):
            # Any call may become a task, so it is on the connection that all share. Messages there name no call.
            heard = ()
        assert sorted(person.logged) == sorted(f"{person.name} {level}" for level in heard for _ in range(3))
        assert person.progress
