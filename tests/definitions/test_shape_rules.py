"""Rules: the tools that each is for, what becomes of their definitions, and what is said of those without an effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toolweave.config import ServerConfig
from toolweave.definitions import ArgumentRule, PinnedServer, ServerIdentity, ShapedToolset, ShapeRule, shaped
from toolweave.errors import ConfigError
from toolweave.tools import ToolSpec, as_toolset, prefixed, tool


@tool(annotations={"readOnlyHint": True}, meta={"example.com/tags": ["web", "beta"]})
def search(q: str, limit: int = 10) -> str:
    """Search the web."""
    return f"{q}:{limit}"


@tool(meta={"fastmcp": {"tags": ["files"]}})
def remove(path: str, force: bool = False) -> str:
    """Remove a file."""
    return f"{path}:{force}"


@tool(name="search.all")
def search_all(q: str) -> str:
    """Search everywhere."""
    return q


TOOLS = as_toolset([search, remove, search_all])


def _has_path(spec: ToolSpec) -> bool:
    return "path" in spec.input_schema["properties"]


def _removes(spec: ToolSpec) -> bool:
    return spec.original_name == "remove"


def _raises(spec: ToolSpec) -> bool:
    raise ZeroDivisionError(spec.name)


def names(rules: list[ShapeRule]) -> list[str]:
    return [spec.name for spec in shaped(TOOLS, rules).snapshot()]


def test_a_rule_may_be_written_as_in_a_config() -> None:
    toolset = shaped(
        TOOLS, [{"tools": "remove", "arguments": {"force": {"hide": True}}}, ShapeRule(tools="search", hide=True)]
    )

    assert tuple(toolset.snapshot().by_name) == ("remove", "search.all")
    assert list(toolset.snapshot().by_name["remove"].input_schema["properties"]) == ["path"]
    with pytest.raises(ConfigError, match=r"'shape\[0\]' has no setting 'tool'; did you mean 'tools'"):
        shaped(TOOLS, [{"tool": "remove"}])
    with pytest.raises(TypeError, match="put the one into a list"):
        shaped(TOOLS, {"tools": "remove"})  # pyright: ignore[reportArgumentType]


CONDITIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"tools": "search*"}, ["remove"]),
    ({"tools": ["search", "rem?ve"]}, ["search.all"]),
    ({"tools": "Search*"}, ["search", "remove", "search.all"]),  # case counts
    ({"regex": "search|nothing"}, ["remove", "search.all"]),  # a whole name fits
    ({"regex": r"search\..*"}, ["search", "remove"]),
    ({"annotations": {"readOnlyHint": True}}, ["remove", "search.all"]),
    ({"annotations": {"destructiveHint": True}}, ["search"]),  # what does not say is destructive
    ({"tags": "web"}, ["remove", "search.all"]),
    ({"tags": ["files", "none"]}, ["search", "search.all"]),
    ({"tools": "search*", "tags": "web"}, ["remove", "search.all"]),
    ({"servers": "*"}, ["search", "remove", "search.all"]),  # tools of this process are of no server
    ({"predicate": _has_path}, ["search", "search.all"]),
    ({}, []),
]


@pytest.mark.parametrize(
    ("condition", "left"),
    CONDITIONS,
)
def test_a_rule_is_for_the_tools_that_all_its_conditions_fit(condition: dict[str, Any], left: list[str]) -> None:
    assert names([ShapeRule(hide=True, **condition)]) == left


def test_names_titles_and_descriptions_change_and_the_tool_stays_the_tool_it_was() -> None:
    rule = ShapeRule(tools="search", name="find", title="Find", description="Find things.")
    made = shaped(TOOLS, [rule]).snapshot()[0]

    assert (made.name, made.title, made.description) == ("find", "Find", "Find things.")
    assert (made.original_name, made.unshaped.description) == ("search", "Search the web.")
    assert made.shape is not None
    assert made.shape.rule == "shape[0]"


def test_groups_of_a_regular_expression_stand_in_the_name() -> None:
    assert names([ShapeRule(regex=r"search\.(\w+)", name=r"find_\1")]) == ["search", "remove", "find_all"]
    assert names([ShapeRule(regex=r"(?P<x>rem)ove", name=r"\g<x>")]) == ["search", "rem", "search.all"]


def test_rules_apply_in_their_order_each_to_what_those_before_it_made() -> None:
    rules = [
        ShapeRule(tools="search", name="find", arguments={"q": ArgumentRule(name="words")}),
        ShapeRule(tools="find", arguments={"words": ArgumentRule(description="The words.")}),
    ]
    made = shaped(TOOLS, rules).snapshot()[0]

    assert made.input_schema["properties"]["words"] == {"type": "string", "description": "The words."}


def problems(*rules: ShapeRule) -> tuple[str, ...]:
    return shaped(TOOLS, rules).problems


def test_two_tools_renamed_alike_keep_names_of_their_own() -> None:
    rules = [ShapeRule(tools="search*", name="find")]

    assert names(rules) == ["find", "remove", "search.all"]
    assert problems(*rules) == (
        "rule shape[0]: tool 'search.all' keeps the name 'search.all': 'find' is that of tool 'search'",
    )


def test_a_name_that_another_tool_has_is_not_given() -> None:
    assert names([ShapeRule(tools="search", name="remove")]) == ["search", "remove", "search.all"]


def test_tools_may_swap_their_names() -> None:
    rules = [ShapeRule(regex="search", name="remove"), ShapeRule(predicate=_removes, name="search")]

    assert names(rules) == ["remove", "search", "search.all"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (ShapeRule(tools="serch", hide=True), "rule shape[0] ('serch') fits no tool"),
        (
            ShapeRule(tools="search", arguments={"limt": ArgumentRule(value=1)}),
            "rule shape[0] ('search'): no tool that it fits has an argument 'limt'; did you mean 'limit'?",
        ),
        (
            ShapeRule(tools="search", arguments={"q": ArgumentRule(name="limit")}),
            "rule shape[0]: argument 'q' of tool 'search' keeps its name: the tool has another argument 'limit'",
        ),
        (
            ShapeRule(tools="search", arguments={"limit": ArgumentRule(value="many")}),
            (
                "tool 'search' is left out: rule shape[0] ('search') cannot be applied to its schema, "
                "which takes no arguments at all after the rule: it requires an argument that is not sent, "
                "or refuses one that is"
            ),
        ),
        (
            ShapeRule(tools="search", arguments={"q": ArgumentRule(hide=True)}),
            (
                "tool 'search' is left out: rule shape[0] ('search') cannot be applied to its schema, "
                "which takes no arguments at all after the rule: it requires an argument that is not sent, "
                "or refuses one that is"
            ),
        ),
        (
            ShapeRule(predicate=_raises, hide=True),
            "tool 'search' is left out: the predicate of rule shape[0] raised ZeroDivisionError",
        ),
    ],
)
def test_a_rule_without_an_effect_is_named_with_the_reason(rule: ShapeRule, said: str) -> None:
    assert problems(rule)[0] == said


def test_one_rule_binds_an_argument_of_every_tool_that_has_it() -> None:
    made = shaped(TOOLS, [ShapeRule(arguments={"q": ArgumentRule(claim="team")})])

    assert made.problems == ()
    assert ["q" in spec.input_schema["properties"] for spec in made.snapshot()] == [False, False, False]


def test_pins_are_of_the_definitions_as_their_producer_gave_them() -> None:
    made = shaped(TOOLS, [ShapeRule(name="x", tools="search", description="Other.")]).snapshot()[0]

    pinned = PinnedServer.of(ServerIdentity(), [made])

    assert pinned == PinnedServer.of(ServerIdentity(), [TOOLS.snapshot()[0]])


def test_a_list_that_changed_gives_the_same_objects_for_what_did_not() -> None:
    changing = as_toolset([search, remove])
    view = ShapedToolset(changing, [ShapeRule(tools="search", name="find")])
    before = view.snapshot()

    assert view.snapshot() is before
    assert shaped(prefixed(changing, "a"), [ShapeRule(tools="a_search", name="b")]).snapshot()[0].name == "b"


BAD: list[tuple[Any, str, str]] = [
    ({}, "shape", "'shape' must be a list of rules, not an object"),
    (["x"], "shape[0]", "'shape[0]' must be an object, not a string"),
    ([{"tools": "x"}], "shape[0]", "'shape[0]' changes nothing; it needs name, title, description, hide or arguments"),
    ([{"tool": "x", "hide": True}], "shape[0].tool", "'shape[0]' has no setting 'tool'; did you mean 'tools'?"),
    ([{"hide": True, "name": "x"}], "shape[0].hide", "'shape[0]' hides its tools, so it has no use for other changes"),
    ([{"hide": "yes"}], "shape[0].hide", "'shape[0].hide' must be true or false, not a string"),
    (
        [{"name": "a b"}],
        "shape[0].name",
        "'shape[0]' 'name' must be at most 128 letters, digits, '_', '-' and '.', and groups as \\1 beside 'regex'",
    ),
    (
        [{"regex": "(", "hide": True}],
        "shape[0].regex",
        "'shape[0]' 'regex' is not a regular expression: missing ), unterminated subpattern at position 0",
    ),
    (
        [{"regex": "a", "name": r"x\1"}],
        "shape[0].name",
        "'shape[0]' 'name' has the group \\1, which 'regex' does not have",
    ),
    (
        [{"annotations": {"readOnly": True}, "hide": True}],
        "shape[0].annotations",
        "'shape[0].annotations' is 'readOnly'; known: readOnlyHint, destructiveHint, idempotentHint, openWorldHint",
    ),
    (
        [{"arguments": {"q": {"from": "me"}}}],
        "shape[0].arguments.q.from",
        "'shape[0].arguments.q.from' is 'me'; known: principal",
    ),
    (
        [{"arguments": {"q": {"vale": 1}}}],
        "shape[0].arguments.q.vale",
        "'shape[0].arguments.q' has no setting 'vale'; did you mean 'value'?",
    ),
    (
        [{"arguments": {"q": {"value": 1, "env": "X"}}}],
        "shape[0].arguments.q",
        "'shape[0].arguments.q' has 'value' and 'env', but one of them gives the value",
    ),
    (
        [{"arguments": {"q": {"value": 1, "default": 2}}}],
        "shape[0].arguments.q",
        "'shape[0].arguments.q' has 'value' and 'default', but 'value' is always sent; leave one of them out",
    ),
    (
        [{"arguments": {"q": {"value": 1, "name": "x"}}}],
        "shape[0].arguments.q",
        "'shape[0].arguments.q' is removed from the schema, so 'name' and 'description' have no use",
    ),
    (
        [{"arguments": {"q": {"name": "x"}, "r": {"name": "x"}}}],
        "shape[0].arguments.r.name",
        "'shape[0]' names two arguments 'x': 'q' and 'r'",
    ),
    (
        [{"tools": "a", "name": "x"}, {"tools": "b", "name": "x"}],
        "shape[1].name",
        "'shape[1]' names 'b' as 'shape[0]' names 'a': 'x'",
    ),
]


@pytest.mark.parametrize(("shape", "field", "message"), BAD)
def test_a_wrong_rule_is_refused_with_the_path_to_the_mistake(shape: Any, field: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(name="n", command="x", shape=shape)

    assert (caught.value.server, caught.value.field, caught.value.message) == ("n", field, message)


RULES: list[Mapping[str, Any]] = [
    {"tools": ["a*"], "annotations": {"readOnlyHint": True}, "tags": ["t"], "servers": ["s"], "hide": True},
    {"regex": "(a)", "name": "\\1", "title": "T", "description": "D"},
    {
        "arguments": {
            "a": {"name": "b", "description": "d", "default": None},
            "c": {"value": False},
            "d": {"from": "principal", "default": 0},
            "e": {"claim": "email"},
            "f": {"state": "db"},
            "g": {"env": "TOKEN"},
            "h": {"hide": True},
        }
    },
]


def test_rules_are_written_as_they_are_read() -> None:
    config = ServerConfig(name="n", command="x", shape=RULES)  # pyright: ignore[reportArgumentType]

    assert config.to_dict()["shape"] == RULES
    assert ServerConfig(name="n", command="x", shape=config.to_mapping()["shape"]) == config
