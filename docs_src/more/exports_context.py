"""Exported tools see the context of whoever runs an agent of another framework."""

from __future__ import annotations

import asyncio

from toolweave import CallContext, tool
from toolweave.export import calling, plain_functions
from toolweave.tools import Progress


@tool
async def report(context: CallContext) -> str:
    """Write a report."""
    await context.progress(1, 2, "half of it")
    return f"the report of {context.state['tenant']}"


def shown(progress: Progress) -> None:
    print(f"{progress.progress:g} of {progress.total:g}: {progress.message}")


async def main() -> None:
    (write_report,) = plain_functions(report)  # or tools of any export, below an agent's run
    with calling(CallContext(state={"tenant": "acme"}, on_progress=shown)):
        print(await write_report())


asyncio.run(main())
