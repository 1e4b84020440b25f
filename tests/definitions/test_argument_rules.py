"""Calls of shaped tools: arguments given in the shaped form arrive as asked, and the schema accepts just those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolweave.config import Secret
from toolweave.definitions import ArgumentRule, ShapeRule, shaped
from toolweave.schema import Validator
from toolweave.tools import BaseToolset, CallContext, ToolCall, ToolResult, ToolSnapshot, ToolSpec

Json = dict[str, Any]
NAMES: list[str] = ["a", "b", "c", "d"]
VALUES: list[Any] = [0, 1, "x", True, None]


class Recorder(BaseToolset):
    """One tool that keeps the arguments of its calls."""

    def __init__(self, schema: Json) -> None:
        self.calls: list[Json] = []
        self._tools = ToolSnapshot([ToolSpec(name="tool", input_schema=schema)], version=1)

    def snapshot(self) -> ToolSnapshot:
        return self._tools

    async def call(self, call: ToolCall, ctx: CallContext) -> ToolResult:
        self.calls.append(dict(call.arguments))
        return ToolResult.of("done")


def rules(**arguments: ArgumentRule) -> list[ShapeRule]:
    return [ShapeRule(arguments=arguments)]


async def sent(schema: Json, made: list[ShapeRule], given: Json, state: Any = None) -> Json | str:
    """What arrives, or the error that the model reads."""
    recorder = Recorder(schema)
    ctx = CallContext() if state is None else CallContext(state=state)
    result = await shaped(recorder, made).execute("tool", given, ctx)
    return recorder.calls[0] if recorder.calls else str(result.error)


OBJECT: Json = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "string"}},
    "required": ["a", "b"],
}


@pytest.mark.parametrize(
    ("made", "given", "arrived"),
    [
        (rules(a=ArgumentRule(name="n")), {"n": 1, "b": "x"}, {"a": 1, "b": "x"}),
        (rules(a=ArgumentRule(name="b"), b=ArgumentRule(name="a")), {"b": 1, "a": "x"}, {"a": 1, "b": "x"}),
        (rules(a=ArgumentRule(value=1)), {"b": "x"}, {"a": 1, "b": "x"}),
        (rules(b=ArgumentRule(value=Secret("k"))), {"a": 1}, {"a": 1, "b": "k"}),
        (rules(b=ArgumentRule(default="y")), {"a": 1}, {"a": 1, "b": "y"}),
        (rules(b=ArgumentRule(default="y")), {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
        (rules(b=ArgumentRule(default="y", hide=True)), {"a": 1}, {"a": 1, "b": "y"}),
        (rules(c=ArgumentRule(hide=True)), {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
        (rules(b=ArgumentRule(state="db.name")), {"a": 1}, {"a": 1, "b": "main"}),
        (rules(b=ArgumentRule(env="TOOLWEAVE_TEST_B")), {"a": 1}, {"a": 1, "b": "from env"}),
        (rules(b=ArgumentRule(claim="email", default="nobody")), {"a": 1}, {"a": 1, "b": "nobody"}),
    ],
)
async def test_arguments_arrive_as_the_producer_takes_them(
    monkeypatch: pytest.MonkeyPatch, made: list[ShapeRule], given: Json, arrived: Json
) -> None:
    monkeypatch.setenv("TOOLWEAVE_TEST_B", "from env")

    assert await sent(OBJECT, made, given, {"db": {"name": "main"}}) == arrived


@pytest.mark.parametrize(
    ("made", "given", "said"),
    [
        (
            rules(b=ArgumentRule(value="k")),
            {"a": 1, "b": "mine"},
            '"b": is set by the configuration, not by you; leave it out',
        ),
        (
            rules(b=ArgumentRule(env="HOME")),
            {"a": 1, "b": "mine"},
            '"b": is set by the configuration, not by you; leave it out',
        ),
        (rules(a=ArgumentRule(name="n")), {"a": 1, "b": "x"}, "\"a\": is not known; it is named 'n' here"),
        (rules(a=ArgumentRule(name="n")), {"n": "one", "b": "x"}, '"n": expected integer, got string "one"'),
        (rules(a=ArgumentRule(name="n")), {"b": "x"}, 'missing required property "n"'),
        (
            rules(b=ArgumentRule(env="TOOLWEAVE_NOT_SET")),
            {"a": 1},
            "tool 'tool' needs the environment variable 'TOOLWEAVE_NOT_SET', which is not set",
        ),
        (
            rules(b=ArgumentRule(claim="email")),
            {"a": 1},
            "tool 'tool' needs the claim 'email' of its caller, and this call has none; sign in first",
        ),
        (
            rules(b=ArgumentRule(from_="principal")),
            {"a": 1},
            "tool 'tool' needs to know its caller, and this call has no principal; sign in first",
        ),
        (
            rules(b=ArgumentRule(state="nix")),
            {"a": 1},
            "tool 'tool' needs 'nix' of the call's state, and this call has none",
        ),
    ],
)
async def test_wrong_arguments_are_refused_in_the_words_of_the_model(
    made: list[ShapeRule], given: Json, said: str
) -> None:
    assert str(await sent(OBJECT, made, given)).removeprefix("invalid arguments for tool 'tool': ") == said


async def test_a_value_that_a_rule_sends_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLWEAVE_TEST_A", "hush-hush")
    made = rules(a=ArgumentRule(env="TOOLWEAVE_TEST_A"))

    said = await sent(OBJECT, made, {"b": "x"})

    assert (
        said
        == "invalid arguments for tool 'tool': the arguments that the configuration adds do not fit; ask its operator"
    )
    assert "hush" not in repr(made)


async def test_what_an_inner_rule_binds_an_outer_one_does_not_open() -> None:
    recorder = Recorder(OBJECT)
    inner = shaped(recorder, rules(b=ArgumentRule(value="bound"), a=ArgumentRule(name="n")))
    outer = shaped(inner, rules(n=ArgumentRule(name="m", default=2), b=ArgumentRule(name="z")))

    assert (await outer.execute("tool", {})).error is None
    assert recorder.calls == [{"a": 2, "b": "bound"}]
    assert "set by the configuration" in str((await outer.execute("tool", {"m": 1, "b": "y"})).error) or (
        "not a known property" in str((await outer.execute("tool", {"m": 1, "b": "y"})).error)
    )
    assert outer.problems == ("rule shape[0]: no tool that it fits has an argument 'b'",)


ARGUMENT: st.SearchStrategy[Json] = st.sampled_from(
    [{"type": "integer"}, {"type": "string"}, {"type": ["boolean", "null"]}, {"enum": [1, "x"]}, {}]
)
SUBSETS = st.lists(st.sampled_from(NAMES), unique=True, max_size=3)


def requiring(names: list[str]) -> Json:
    return {"required": names}


def being_one(name: str) -> Json:
    return {"properties": {name: {"const": 1}}, "required": [name]}


def an_object(properties: Json, required: list[str], rest: Json) -> Json:
    return {"type": "object", "properties": properties, "required": required, **rest}


def constant(value: Any) -> ArgumentRule:
    return ArgumentRule(value=value)


def injected_from(name: str) -> ArgumentRule:
    return ArgumentRule(state=name)


REQUIRED = st.builds(requiring, SUBSETS)
CONDITIONS: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {},
    optional={
        "dependentRequired": st.dictionaries(st.sampled_from(NAMES), SUBSETS, max_size=2),
        "anyOf": st.lists(REQUIRED, min_size=1, max_size=2),
        "allOf": st.lists(REQUIRED, min_size=1, max_size=2),
        "if": st.builds(being_one, st.sampled_from(NAMES)),
        "then": REQUIRED,
        "else": REQUIRED,
        "additionalProperties": st.booleans(),
    },
)
ARGUMENTS: st.SearchStrategy[Json] = st.fixed_dictionaries(dict.fromkeys(NAMES, ARGUMENT))
SCHEMAS = st.builds(an_object, ARGUMENTS, SUBSETS, CONDITIONS)
CHANGES = st.one_of(
    st.builds(constant, st.sampled_from(VALUES)),
    st.sampled_from([ArgumentRule(name="new"), ArgumentRule(name="a"), ArgumentRule(hide=True)]),
    st.builds(injected_from, st.sampled_from(["s0", "s2"])),
)
STATE = {"s0": 0, "s2": "x"}
GIVEN = st.dictionaries(st.sampled_from([*NAMES, "new", "other"]), st.sampled_from(VALUES), max_size=5)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(schema=SCHEMAS, changes=st.dictionaries(st.sampled_from(NAMES), CHANGES, min_size=1, max_size=2), given=GIVEN)
def test_the_shaped_schema_accepts_just_what_maps_to_arguments_of_the_original(
    schema: Json, changes: dict[str, ArgumentRule], given: Json
) -> None:
    renamed = [one.name for one in changes.values() if one.name is not None]
    if len(set(renamed)) < len(renamed) or any(change == ArgumentRule() for change in changes.values()):
        return
    injected = any("state" in one.sources for one in changes.values())
    toolset = shaped(Recorder(schema), [ShapeRule(arguments=changes)])
    if not toolset.snapshot():  # no arguments could fit any more: it is left out
        assert any("takes no arguments" in problem for problem in toolset.problems)
        return
    spec = toolset.snapshot()[0]
    applied: Mapping[str, ArgumentRule] = {} if spec.shape is None else spec.shape.arguments
    own = {one.name: name for name, one in applied.items() if one.name is not None}
    gone = {name for name, one in applied.items() if one.removed or one.name is not None}
    open_names = ({*NAMES} - gone) | {*own}
    mapped = {own.get(name, name): value for name, value in given.items()}
    for name, one in applied.items():
        if one.sources == ("value",):
            mapped[name] = one.value
        elif one.sources:
            mapped[name] = STATE[str(one.state)]
    moved = any(one.removed or one.name not in (None, name) for name, one in applied.items())
    known = set(given) <= open_names if moved else True
    fits = known and Validator(schema).is_valid(mapped)

    accepted = Validator(spec.input_schema).is_valid(given)

    if injected:  # what is injected is known at the call only
        assert accepted or not fits
    else:
        assert accepted == fits, spec.input_schema


@settings(max_examples=50, deadline=None)
@given(given=st.fixed_dictionaries({"n": st.integers()}, optional={"c": st.text(max_size=3)}))
async def test_whatever_the_shaped_schema_takes_arrives_unchanged_under_its_own_names(given: Json) -> None:
    made = rules(a=ArgumentRule(name="n"), b=ArgumentRule(value="k"))

    arrived = await sent(OBJECT, made, given)

    assert arrived == {"a": given["n"], "b": "k"} | {key: item for key, item in given.items() if key == "c"}


def doubled(levels: int) -> Json:
    """A schema that stands in itself twice at every level."""
    last = {f"l{levels}": {"properties": {"a": {"type": "integer"}}}}
    parts = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(levels)}
    return {"type": "object", "$ref": "#/$defs/l0", "$defs": parts | last}


def nested(levels: int) -> Json:
    schema: Json = {"properties": {"a": {"type": "integer"}}}
    for _ in range(levels):
        schema = {"allOf": [schema]}
    return schema


@pytest.mark.slow
@pytest.mark.parametrize("schema", [doubled(30), nested(10_000)])
def test_a_schema_that_is_too_large_to_be_shaped_is_left_out_with_the_reason(schema: Json) -> None:
    made = shaped(Recorder(schema), rules(a=ArgumentRule(value=1)))

    assert list(made.snapshot()) == []
    assert "cannot be applied to its schema" in made.hidden["tool"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/Args", "$defs": {"Args": OBJECT}},
        {"type": "object", "allOf": [OBJECT]},
        {"type": "object", "properties": {**OBJECT["properties"], "d": {"$ref": "#/properties/a"}}, "required": ["b"]},
        {"$schema": "http://json-schema.org/draft-07/schema#", **OBJECT, "dependencies": {"c": ["a"]}},
    ],
)
async def test_schemas_that_say_it_elsewhere_are_shaped_too(schema: Json) -> None:
    made = rules(a=ArgumentRule(name="n"), b=ArgumentRule(value="k"))

    assert await sent(schema, made, {"n": 1, "c": "y"}) == {"a": 1, "b": "k", "c": "y"}
    assert "is not known; it is named" in str(await sent(schema, made, {"a": 1}))
    assert "expected integer" in str(await sent(schema, made, {"n": "x"}))
