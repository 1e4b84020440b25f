"""`toolweave worker` executes runs of other frameworks' agents, the real command on a real queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import toolweave
from tests.cli.working import worker

pytestmark = pytest.mark.slow

_FOREIGN = '''
from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from toolweave import Backend
from toolweave.durability import durable

folder = Path(__file__).parent


def answer(messages, info):
    if len(messages) == 1:
        return ModelResponse(parts=[ToolCallPart("book", {"order": "seven"}, tool_call_id="c1")])
    return ModelResponse(parts=[TextPart("It is booked.")])


agent = Agent(FunctionModel(answer), name="clerk", output_type=[str, DeferredToolRequests])


@agent.tool_plain(requires_approval=True)
def book(order: str) -> str:
    """Book an order."""
    with (folder / "effects.txt").open("a") as file:
        file.write(f"booked {order}\\n")
    return "booked"


clerk = durable(agent, Backend.from_environment())
'''


def booked(folder: Path) -> list[str]:
    """Return what the tool did, in order."""
    path = folder / "effects.txt"
    return path.read_text("utf-8").splitlines() if path.exists() else []


@pytest.mark.parametrize("target", ["foreign.py", "foreign.py:clerk"])
def test_a_worker_finds_a_durable_agent_of_another_framework_and_parks_its_run_for_a_yes(
    tmp_path: Path, redis_url: str, target: str
) -> None:
    folder = tmp_path
    (folder / "foreign.py").write_text(_FOREIGN, "utf-8")
    env = {"TOOLWEAVE_BACKEND": redis_url}
    run_id = toolweave("runs", "spawn", "go", "--agent", "clerk", env=env).out.strip()

    with worker(target, cwd=folder, env=env) as working:
        assert working.wait_for("started")["topics"] == ["runs:clerk"]
        working.wait_for("waiting")
        assert booked(folder) == []
        approved = toolweave("runs", "approve", run_id, "c1", env=env)
        assert approved.code == 0, approved.err
        working.wait_for("completed")

    assert booked(folder) == ["booked seven"]
    assert toolweave("runs", "show", run_id, env=env).out == "It is booked.\n"
