"""What the server under test asks its clients, and its tools that become tasks.

Each tool is here because a scenario of the official suite calls it by this name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import anyio

from toolweave import CallContext, ToolError
from toolweave.connect import ElicitationResult
from toolweave.errors import RequestError
from toolweave.serve import TaskRule
from toolweave.tools import Elicitation, Roots, Sampling

__all__ = ["ASKING", "TASKS", "form", "told"]

STEP = 0.05
"""Seconds that the tools with nothing to do take."""
ASKING: list[Callable[..., Any]] = []
"""The tools of this module."""
TASKS: dict[str, Literal["optional", "required"] | TaskRule] = {
    "slow_compute": "optional",
    "failing_job": "required",
    "protocol_error_job": "optional",
    "confirm_delete": "optional",
    "multi_input": "optional",
    "test_tool_with_task": TaskRule("required", ask_first=True),
}
"""Which of them are run as tasks, and whether they can be run otherwise."""

F = TypeVar("F", bound=Callable[..., Any])


def offered(function: F) -> F:
    """Offer a tool."""
    ASKING.append(function)
    return function


def form(**properties: Any) -> dict[str, Any]:
    """Return the schema of a form with these fields, all of them required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


NAME = form(name={"type": "string"})


def told(result: ElicitationResult) -> str:
    """Return what a user answered as a text."""
    return f"action={result.action}, content={json.dumps(result.content)}"


@offered
async def test_sampling(prompt: str, ctx: CallContext) -> str:
    """Ask the client's model."""
    return f"LLM response: {(await ctx.sample(prompt, max_tokens=100)).text}"


@offered
async def test_missing_capability(ctx: CallContext) -> str:
    """Ask the client's model, which not every client has."""
    return (await ctx.sample("Are you there?", max_tokens=10)).text


@offered
async def test_elicitation(message: str, ctx: CallContext) -> str:
    """Ask the user for a name and an address."""
    username = {"type": "string", "description": "User's response"}
    email = {"type": "string", "description": "User's email address"}
    return f"User response: {told(await ctx.elicit(message, form(username=username, email=email)))}"


@offered
async def test_streaming_elicitation(ctx: CallContext) -> str:
    """Report progress, then ask the user."""
    await ctx.progress(1, total=2)
    return told(await ctx.elicit("What is your name?", NAME))


@offered
async def test_elicitation_sep1034_defaults(ctx: CallContext) -> str:
    """Ask with a default for every primitive type."""
    fields = form(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    return f"Elicitation completed: {told(await ctx.elicit('Please check', fields))}"


@offered
async def test_elicitation_sep1330_enums(ctx: CallContext) -> str:
    """Ask with every form of a choice."""
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{one}", "title": f"Option {one}"} for one in (1, 2, 3)]
    legacy = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}
    fields = form(
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", **legacy},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    return f"Elicitation completed: {told(await ctx.elicit('Please choose', fields))}"


@offered
async def test_input_required_result_elicitation(ctx: CallContext) -> str:
    """Greet the user, whose name it asks."""
    answer = await ctx.elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {answer.content['name']}!" if answer.content else "Hello, stranger!"


@offered
async def test_input_required_result_sampling(ctx: CallContext) -> str:
    """Ask the client's model a question."""
    return (await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")).text


@offered
async def test_input_required_result_list_roots(ctx: CallContext) -> str:
    """Tell the client's roots."""
    return "Roots: " + ", ".join(root.uri for root in await ctx.list_roots())


@offered
async def test_input_required_result_request_state(ctx: CallContext) -> str:
    """Ask for consent."""
    answer = await ctx.elicit("Please confirm", form(ok={"type": "boolean"}), key="confirm")
    return f"state-ok: {told(answer)}"


@offered
async def test_input_required_result_tampered_state(ctx: CallContext) -> str:
    """Ask for consent, with a state that nobody may change."""
    return told(await ctx.elicit("Please confirm", form(ok={"type": "boolean"}), key="confirm"))


@offered
async def test_input_required_result_multiple_inputs(ctx: CallContext) -> str:
    """Ask the user, the model and for the roots, at once."""
    answers = await ctx.ask(
        user_name=Elicitation("What is your name?", NAME),
        greeting=Sampling("Generate a greeting", max_tokens=50),
        client_roots=Roots(),
    )
    return f"{answers['greeting'].text} {told(answers['user_name'])}, {len(answers['client_roots'])} roots"


@offered
async def test_input_required_result_multi_round(ctx: CallContext) -> str:
    """Ask twice, one question after the other."""
    name = await ctx.elicit("Step 1: What is your name?", NAME, key="step1")
    color = await ctx.elicit("Step 2: What is your favorite color?", form(color={"type": "string"}), key="step2")
    return f"{told(name)}; {told(color)}"


@offered
async def test_input_required_result_capabilities(ctx: CallContext) -> str:
    """Ask the user where that is possible, and else the model."""
    if ctx.can("elicitation"):
        return told(await ctx.elicit("What is your name?", NAME))
    return (await ctx.sample("Say something", max_tokens=50)).text


@offered
def greet(name: str) -> str:
    """Greet at once."""
    return f"Hello, {name}!"


@offered
async def slow_compute(seconds: float = 1, label: str = "") -> str:
    """Take some seconds."""
    await anyio.sleep(seconds)
    return f"{label} took {seconds:g} s"


@offered
async def failing_job() -> str:
    """Fail after a while."""
    await anyio.sleep(1)
    raise ToolError("the job failed, as it always does")


@offered
async def protocol_error_job() -> str:
    """Fail as a request, not as a tool."""
    await anyio.sleep(STEP)
    raise RequestError("the job cannot be done", code=-32603)


@offered
async def confirm_delete(filename: str, ctx: CallContext) -> str:
    """Ask before a file is deleted; none is."""
    answer = await ctx.elicit(f"Delete {filename}?", form(confirm={"type": "boolean"}))
    return f"{filename}: {told(answer)}"


@offered
async def multi_input(ctx: CallContext) -> str:
    """Ask two questions at once."""
    answers = await ctx.ask(first=Elicitation("Your name?", NAME), second=Elicitation("Another name?", NAME))
    return "; ".join(told(answer) for answer in answers.values())


@offered
async def test_tool_with_task(ctx: CallContext) -> str:
    """Ask for a name before the task begins that greets."""
    answer = await ctx.elicit("What is your name?", NAME, key="user_name")
    await anyio.sleep(STEP)
    return f"Hello, {(answer.content or {}).get('name')}!"
