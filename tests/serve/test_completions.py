"""Completions: values for the arguments of prompts and the variables of templates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.serve.carriers import EACH_CARRIER, EACH_ERA, ERAS, connected
from tests.serve.lines import Peer
from toolweave import ProtocolError, ToolError
from toolweave.errors import RequestError, SchemaError
from toolweave.serve import Completed, McpServer, create_mcp_server
from toolweave.tools import CallContext

Json = dict[str, Any]
PROMPT = {"type": "ref/prompt", "name": "greet"}
TEMPLATE = {"type": "ref/resource", "uri": "notes://{id}"}
NAMES = ("Ada", "Alan", "Grace")


def make(**options: Any) -> McpServer:
    server = create_mcp_server(name="library", version="1.0", **options)

    @server.prompt
    def greet(name: str, other: str = "") -> str:
        return name

    @server.resource("notes://{id}")
    def note(id: str) -> str:
        return id

    @server.completion(ref="prompt:greet", argument="name")
    def names(text: str) -> list[str]:
        return [name for name in NAMES if name.startswith(text)]

    return server


async def complete(server: McpServer, ref: Any, argument: Any, era: str = ERAS[-1], **more: Any) -> Json:
    request = Peer(version=era).request("completion/complete", ref=ref, argument=argument, **more)
    return (await server.endpoint.answer(request))["completion"]


@EACH_CARRIER
async def test_an_argument_of_a_prompt_and_a_variable_of_a_template_are_completed(carrier: str, era: str) -> None:
    server = make(state={"prefix": "n"})

    @server.completion(ref="resource:notes://{id}", argument="id")
    async def ids(text: str, arguments: Mapping[str, str], ctx: CallContext) -> Iterator[str]:
        return (f"{ctx.state['prefix']}{text}{number}{arguments.get('other', '')}" for number in range(2))

    async with connected(server, carrier, era) as connection:
        first = await connection.complete(PROMPT, "name", "A")
        second = await connection.complete(TEMPLATE, "id", "x", context={"other": "!"})

    assert (first.values, first.total, first.has_more) == (("Ada", "Alan"), 2, False)
    assert second.values == ("nx0!", "nx1!")


@EACH_CARRIER
@pytest.mark.requirement("C14")
async def test_an_unknown_reference_is_refused_and_an_argument_nobody_completes_has_no_values(
    carrier: str, era: str
) -> None:
    async with connected(make(), carrier, era) as connection:
        for ref in ({"type": "ref/prompt", "name": "x"}, {"type": "ref/resource", "uri": "notes://{other}"}):
            with pytest.raises(ProtocolError, match="Unknown") as refused:
                await connection.complete(ref, "name", "A")
            assert refused.value.code == -32602
        nothing = await connection.complete(PROMPT, "other", "A")
        neither = await connection.complete(TEMPLATE, "id", "A")

    assert (nothing.values, nothing.has_more, neither.values) == ((), False, ())


@pytest.mark.parametrize(
    ("found", "values", "total", "more"),
    [
        ([str(number) for number in range(250)], 100, 250, True),
        ([str(number) for number in range(100)], 100, 100, False),
        (Completed(values=["a", "b"], total=7), 2, 7, True),
        (Completed(values=["a"], has_more=True), 1, None, True),
        (Completed(values=["a"]), 1, None, False),
        (Completed(values=["a"] * 101, has_more=False), 100, None, False),
        ((str(number) for number in itertools.count()), 100, None, True),
        ("alone", 1, 1, False),
        ([], 0, 0, False),
        (None, 0, 0, False),
        ([1, 2.5], 2, 2, False),
    ],
    ids=[
        "250",
        "100",
        "some of 7",
        "more",
        "unknown",
        "too many",
        "endless",
        "a text",
        "none",
        "nothing",
        "numbers",
    ],
)
async def test_at_most_a_hundred_values_are_sent_with_how_many_there_are(
    found: Any, values: int, total: int | None, more: bool
) -> None:
    server = make()

    @server.completion(ref="prompt:greet", argument="other")
    def others(text: str) -> Any:
        return found

    completion = await complete(server, PROMPT, {"name": "other", "value": ""})

    assert len(completion["values"]) == values
    assert (completion.get("total"), completion["hasMore"]) == (total, more)
    assert all(isinstance(value, str) for value in completion["values"])


@EACH_ERA
@pytest.mark.requirement("R93")
async def test_completions_are_declared_when_there_are_some(era: str) -> None:
    server = create_mcp_server(name="a", version="1")
    modern = era == ERAS[-1]

    assert "completions" not in server.endpoint.capabilities(modern=modern)
    with pytest.raises(RequestError) as refused:
        await complete(server, PROMPT, {"name": "name", "value": ""}, era)
    assert refused.value.code == -32601
    assert make().endpoint.capabilities(modern=modern)["completions"] == {}


@EACH_ERA
@pytest.mark.parametrize(
    ("ref", "argument", "more"),
    [
        (None, {"name": "name", "value": ""}, {}),
        ({}, {"name": "name", "value": ""}, {}),
        ({"type": "ref/tool", "name": "x"}, {"name": "name", "value": ""}, {}),
        ({"type": "ref/prompt", "uri": "x"}, {"name": "name", "value": ""}, {}),
        ({"type": "ref/resource", "uri": 1}, {"name": "name", "value": ""}, {}),
        (PROMPT, "name", {}),
        (PROMPT, {"name": "name"}, {}),
        (PROMPT, {"name": "name", "value": 1}, {}),
        (PROMPT, {"name": 1, "value": ""}, {}),
        (PROMPT, {"name": "name", "value": ""}, {"context": []}),
        (PROMPT, {"name": "name", "value": ""}, {"context": {"arguments": []}}),
    ],
    ids=repr,
)
async def test_malformed_parameters_are_invalid_params(ref: Any, argument: Any, more: Json, era: str) -> None:
    with pytest.raises(RequestError) as refused:
        await complete(make(), ref, argument, era, **more)

    assert refused.value.code == -32602


@pytest.mark.parametrize(("raised", "said"), [(ToolError("no list"), "no list"), (KeyError("x"), "completion failed")])
async def test_what_a_function_raises_is_an_error_of_the_request(raised: Exception, said: str) -> None:
    server = make(expose_errors="masked")

    @server.completion(ref="prompt:greet", argument="other")
    def others(text: str) -> list[str]:
        raise raised

    with pytest.raises(RequestError) as refused:
        await complete(server, PROMPT, {"name": "other", "value": ""})

    assert (refused.value.code, refused.value.message) == (-32603, said)


@pytest.mark.parametrize("ref", ["greet", "prompt:", "tool:x"])
def test_a_reference_of_another_form_is_refused_where_it_is_made(ref: str) -> None:
    def nothing(text: str) -> list[str]:
        return []

    with pytest.raises(ValueError, match="prompt:NAME"):
        make().completion(ref=ref, argument="name")(nothing)


def test_one_argument_has_one_completion_and_a_completion_takes_a_text() -> None:
    server = make()

    def none() -> list[str]:
        return []

    def three(text: str, arguments: Any, more: Any) -> list[str]:
        return []

    def other(text: str, context: Any) -> list[str]:
        return []

    with pytest.raises(ValueError, match="already"):
        server.completion(ref="prompt:greet", argument="name")(other)
    for function in (none, three, other):
        with pytest.raises(SchemaError, match=function.__name__):
            server.completion(ref="prompt:greet", argument="other")(function)
