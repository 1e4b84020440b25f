"""When the first model cannot answer, the second is asked."""

from __future__ import annotations

import asyncio

from toolweave import ModelError, ScriptedModel, generate
from toolweave.models import FallbackModel

busy = ScriptedModel([ModelError("try again later", model="busy", kind="overloaded")], name="busy")
model = FallbackModel(busy, ScriptedModel(["Hello!"], name="spare"))


async def main() -> None:
    print(model.name)
    print((await generate(model, "Say hello.")).text)


asyncio.run(main())
