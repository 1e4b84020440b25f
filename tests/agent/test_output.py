"""Answers as values: the schema a model is given, what is read, and what is sent back for repair."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any, TypedDict

import anyio
import pytest
from pydantic import BaseModel

from toolweave import Agent, Prompt
from toolweave.agent import Limits
from toolweave.agent._output import Output
from toolweave.errors import SchemaError
from toolweave.models import ScriptedModel, UserMessage, tool_call


class City(BaseModel):
    name: str
    founded: date


@dataclass
class Point:
    x: int
    y: int


class Pair(TypedDict):
    left: str
    right: str


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    "kind, text, value",
    [
        (City, '{"name": "Oslo", "founded": "1048-01-01"}', City(name="Oslo", founded=date(1048, 1, 1))),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Pair, '{"left": "a", "right": "b"}', {"left": "a", "right": "b"}),
        (SCHEMA, '{"n": 3}', {"n": 3}),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (int | None, '{"value": null}', None),
        ({"type": "string"}, '{"value": "x"}', "x"),
        (Point, '```json\n{"x": 1, "y": 2}\n```', Point(1, 2)),
        (Point, '\n ``` \n\n{"x": 1, "y": 2}```  \n', Point(1, 2)),
    ],
)
async def test_the_answer_becomes_a_value_of_the_type(kind: Any, text: str, value: Any) -> None:
    model = ScriptedModel([text])

    result = await Agent(model, output_type=kind).send("go")

    assert result.output == value
    assert type(result.output) is type(value)
    assert (result.text, result.stop_reason) == (text, "end")
    schema = model.requests[0].output_schema
    assert schema is not None
    assert schema["type"] == "object"


TWO = '{"x": 1, "y": 2}'


@pytest.mark.parametrize(
    "text",
    [
        f"{TWO}\n{TWO}",
        f"{TWO} and so on, see {{the manual}}",
        f"With {{care}}: {TWO}",
        f'First {{"x": 0, "y": 0}}, no: {TWO}.',
        f'```json\n{{"x": 0, "y": 0}}\n```\nBetter:\n```json\n{TWO}\n```',
        f'{TWO} but not {{"x": "a"}}',
        f"{{{{{{{{ {TWO}",
        f"[1, 2] {TWO} [3",
        f"<thinking>{{}}</thinking>{TWO}",
    ],
)
def test_of_several_candidates_the_last_that_fits_is_the_answer(text: str) -> None:
    assert Output(Point).read(text) == (Point(1, 2), ())


@pytest.mark.parametrize("text", ["[1, 2]", "```json\n[1, 2]\n```", 'So: {"value": [1, 2]}'])
def test_a_value_without_the_object_around_it_is_the_answer(text: str) -> None:
    assert Output(list[int]).read(text) == ([1, 2], ())


async def test_what_does_not_fit_is_sent_back_with_its_problems_until_it_does() -> None:
    model = ScriptedModel(["Oslo!", '{"name": "Oslo"}', '{"name": "Oslo", "founded": "1048-01-01"}'])

    result = await Agent(model, output_type=City).send("which?")

    assert result.output == City(name="Oslo", founded=date(1048, 1, 1))
    complaints = [one.text for one in result.messages if isinstance(one, UserMessage)][1:]
    assert "is not JSON" in complaints[0]
    assert "founded" in complaints[1]


@pytest.mark.slow
@pytest.mark.parametrize("many", ["\n", "a", "``` ", " \n```", "{", '{"a":', "[", "[1,"])
async def test_an_answer_that_only_begins_fences_and_brackets_takes_no_time_to_refuse(many: str) -> None:
    text = "```\n" + many * 200_000 + "x"
    with anyio.fail_after(30):  # quadratic, it would take hours
        result = await Agent(ScriptedModel([text]), output_type=City, limits=Limits(output_retries=0)).send("which?")
    assert result.stop_reason == "invalid_output"


async def test_after_so_many_repairs_the_run_stops_with_what_was_said() -> None:
    model = ScriptedModel(lambda request: "no JSON today")

    result = await Agent(model, output_type=City, limits=Limits(output_retries=1)).send("which?")

    assert (result.status, result.stop_reason, result.output, result.steps) == ("stopped", "invalid_output", None, 2)
    assert result.text == "no JSON today"


async def test_what_only_the_type_knows_to_be_wrong_is_sent_back_too() -> None:
    model = ScriptedModel(['{"name": "Oslo", "founded": "1048-13-77"}', '{"name": "Oslo", "founded": "1048-01-01"}'])

    result = await Agent(model, output_type=City).send("which?")

    assert result.steps == 2
    assert result.output.founded.year == 1048


async def test_tools_run_before_the_answer_is_read() -> None:
    def look() -> str:
        return "1, 2"

    result = await Agent(ScriptedModel([tool_call("look"), '{"x": 1, "y": 2}']), tools=[look], output_type=Point).send(
        "?"
    )

    assert result.output == Point(1, 2)


async def test_a_prompt_may_ask_for_a_type_of_its_own() -> None:
    agent = Agent(ScriptedModel(['{"x": 1, "y": 2}', "plain"]))

    assert (await agent.send(Prompt("where?", output_type=Point))).output == Point(1, 2)
    assert (await agent.send("what?")).output is None


def test_a_type_without_a_json_form_is_refused_where_the_agent_is_made() -> None:
    class Opaque:
        pass

    with pytest.raises(SchemaError, match="output_type"):
        Agent(ScriptedModel([]), output_type=Opaque)


def test_shared_definitions_stay_at_the_root_of_a_wrapped_schema() -> None:
    schema = Output(list[City]).schema

    assert "$defs" not in schema["properties"]["value"]
    value, problems = Output(list[City]).read('{"value": [{"name": "Oslo", "founded": "1048-01-01"}]}')
    assert not problems
    assert value == [City(name="Oslo", founded=date(1048, 1, 1))]
