"""An answer as a value; one that does not fit is sent back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from toolweave import Agent, Prompt, ScriptedModel


@dataclass
class Invoice:
    """What is to be paid."""

    number: str
    total: float


model = ScriptedModel(['{"number": "2026-7"}', '{"number": "2026-7", "total": 42.5}'])


async def main() -> None:
    agent = Agent(model, output_type=Invoice)
    prompt = Prompt("Read the invoice of {{customer}}.", variables={"customer": "Ada"})
    prompt.add_file("INVOICE 2026-7 ... TOTAL 42.50 EUR", name="invoice.txt")
    result = await agent.send(prompt)
    print(result.output, result.steps)


asyncio.run(main())
