"""A run over real servers and a provider's API outlives its process: killed anywhere, every effect happens once."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.agent_real.apis import APIS, ApiName, fake, model
from tests.agent_real.killed_run import LINES, RUN, CountingStore, agent_of, effects_of, writer
from toolweave.agent import RunStatuses
from toolweave.models import UserMessage

pytestmark = pytest.mark.reference

CHECKOUT = Path(__file__).resolve().parent.parent.parent
WRITES = 12
"""How often the run of `killed_run.py` writes to its store when nobody kills it."""
KILLS = [
    *(f"put:{number}" for number in range(1, WRITES + 1)),
    *(f"{when}:{line}" for line in LINES for when in ("before", "after")),
]
SECONDS = 120


async def run_in_a_process(folder: Path, api: ApiName, url: str, where: str) -> subprocess.CompletedProcess[bytes]:
    effects_of(folder).parent.mkdir()
    effects_of(folder).touch()
    command = [sys.executable, "-m", "tests.agent_real.killed_run", str(folder), api, url, where]
    return await anyio.run_process(command, check=False, cwd=CHECKOUT)


def nothing(_: object) -> None:
    """Let the run go on."""


async def test_the_run_that_is_killed_below_writes_as_often_as_the_kills_cover(tmp_path: Path) -> None:
    async with fake("responses", writer(tmp_path)) as provider:
        whole = await run_in_a_process(tmp_path, "responses", provider.url, "nowhere")

    assert whole.stdout.decode() == f"{WRITES} all is noted\n", whole.stderr.decode()
    assert effects_of(tmp_path).read_text().split() == list(LINES)


@pytest.mark.parametrize(("api", "where"), [(APIS[number % len(APIS)], where) for number, where in enumerate(KILLS)])
async def test_a_run_killed_anywhere_goes_on_and_every_effect_happens_exactly_once(
    tmp_path: Path, api: ApiName, where: str
) -> None:
    with anyio.fail_after(SECONDS):
        async with fake(api, writer(tmp_path)) as provider, model(api, provider.url) as asked:
            killed = await run_in_a_process(tmp_path, api, provider.url, where)
            assert killed.returncode == -9, killed.stderr.decode()

            async with CountingStore(tmp_path / "store.db", nothing) as store:
                agent = agent_of(tmp_path, asked, store, nothing)
                begin = partial(agent.begin, [UserMessage.of("note all lines")], run_id=RUN)
                found = await RunStatuses(store).get(RUN)
                result = await (begin() if found is None else await agent.resume(RUN))
                ended = await RunStatuses(store).get(RUN)

    assert result.text == "all is noted"
    assert sorted(effects_of(tmp_path).read_text().split()) == list(LINES)
    asked_twice = len(provider.bodies) - result.steps
    assert asked_twice in (0, 1)  # a turn that had come and was not kept yet is asked for again
    if not where.startswith("put:"):
        assert asked_twice == 0
    assert ended is not None
    assert ended.status == "completed"
