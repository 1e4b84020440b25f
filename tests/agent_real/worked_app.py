"""The module of a worker: `toolweave worker tests.agent_real.worked_app:agent`.

`python -m tests.agent_real.worked_app` does the same by the library, and is given the jobs of a dead worker sooner.
`python -m tests.agent_real.worked_app MESSAGE SESSION KEY` submits; what it writes is counted too.
"""

from __future__ import annotations

import json
import signal
import sys

import anyio

from tests.agent_real.worked import NOT_COUNTED, opened
from toolweave.agent import work_runs

__all__ = ["agent"]

_submits = __name__ == "__main__" and len(sys.argv) == 4
agent, _backend = opened(not_counted=() if _submits else NOT_COUNTED)


async def work() -> None:
    def started() -> None:
        print(json.dumps({"event": "started"}), flush=True)

    async with _backend, agent, anyio.create_task_group() as tasks:
        tasks.start_soon(end_at_sigterm, tasks.cancel_scope)
        await work_runs([agent], _backend, started=started)


async def end_at_sigterm(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()


async def submit(message: str, session: str, key: str) -> None:
    async with _backend:
        await agent.submit(message, session=session, key=key)


if __name__ == "__main__":
    if _submits:
        anyio.run(submit, sys.argv[1], sys.argv[2], sys.argv[3])
    else:
        anyio.run(work)
