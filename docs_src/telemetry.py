"""The spans of a run, printed."""

from __future__ import annotations

import asyncio

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from toolweave import Agent, ScriptedModel
from toolweave.models import tool_call


def shown(span: ReadableSpan) -> str:
    found = dict(span.attributes or {})
    names = ("gen_ai.operation.name", "gen_ai.request.model", "gen_ai.tool.name", "toolweave.run.stop_reason")
    return f"{span.name}: {', '.join(str(found[name]) for name in names if name in found)}\n"


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=shown)))
trace.set_tracer_provider(provider)


def temperature(city: str) -> int:
    """Return the temperature in a city, in degrees Celsius."""
    return 21


async def main() -> None:
    model = ScriptedModel([tool_call("temperature", {"city": "Rome"}), "21 degrees."], name="scripted:demo")
    await Agent(model, name="weather", tools=[temperature]).send("How warm is it in Rome?")


asyncio.run(main())
