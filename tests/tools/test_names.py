"""Names: exposed ones, aliases, and the ones every LLM API accepts."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave import ToolSpec
from toolweave.tools import NameMap, ToolName, aliases, expose
from toolweave.tools.names import free_name, selected, unknown_tool

LEGAL = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")

NAMES = (
    st.text(max_size=80) | st.text(alphabet="ab._-:/ ä1", max_size=70) | st.sampled_from(["read", "x" * 64, "x" * 65])
)
TOOLS = st.lists(
    st.builds(ToolName, st.none() | st.sampled_from(["a", "b"]), NAMES, NAMES),
    max_size=12,
    unique_by=lambda t: t.exposed,
)


def of(*names: str) -> NameMap:
    return NameMap(ToolName("server", name, name) for name in names)


@pytest.mark.requirement("R38", "R40")
def test_a_tool_is_exposed_under_its_servers_name() -> None:
    assert expose("fs", "read_file") == "fs_read_file"


@pytest.mark.requirement("R39")
@pytest.mark.parametrize("prefix, name", [("fs_", "fs_read_file"), ("fs", "fsread_file"), ("", "read_file")])
def test_a_prefix_is_put_before_the_name_as_it_is(prefix: str, name: str) -> None:
    assert expose("server", "read_file", prefix) == name


@pytest.mark.requirement("C1")
def test_a_tool_is_also_found_by_colon_and_slash() -> None:
    assert aliases("github", "create_issue") == ("github:create_issue", "github/create_issue")


@pytest.mark.requirement("R31")
def test_a_filter_takes_original_names_and_both_qualified_forms() -> None:
    assert selected("read", include=(), exclude=(), server="fs")
    assert selected("read", include=["read"], exclude=["read"], server="fs")
    assert selected("read", include=["fs:read"], exclude=(), server="fs")
    assert not selected("read", include=["write"], exclude=(), server="fs")
    assert not selected("read", include=(), exclude=["fs/read"], server="fs")
    assert selected("read", include=(), exclude=["fs/read"])


@pytest.mark.requirement("C20", "D15")
def test_the_nearest_free_name_is_qualified_first_and_numbered_then() -> None:
    assert free_name("read", "fs", ()) == "read"
    assert free_name("read", "fs", {"read"}) == "fs_read"
    assert free_name("read", "fs", {"read", "fs_read"}) == "read_2"
    assert free_name("read", None, {"read", "read_2"}) == "read_3"
    assert free_name("read", None, {"read", "read_2", "read_4", "read_9"}) == "read_3"


class Counted(set[str]):
    """Names that count how often one is looked for."""

    looks = 0

    def __contains__(self, name: object) -> bool:
        self.looks += 1
        return super().__contains__(name)


@pytest.mark.parametrize("server", [None, "fs"])
def test_a_name_that_thousands_want_costs_each_of_them_a_few_looks(server: str | None) -> None:
    taken = Counted()
    for _ in range(4_000):
        taken.add(free_name("read", server, taken))

    numbers = {f"read_{number}" for number in range(2, 4_001 - (server is not None))}
    assert taken == {"read", *numbers, *(() if server is None else ("fs_read",))}
    assert taken.looks < 45 * 4_000  # one by one, it would be 8 million


@pytest.mark.requirement("R61")
def test_an_unknown_name_is_answered_with_near_ones_or_with_what_there_is() -> None:
    assert unknown_tool("read_fiel", ["read_file", "x"]) == "no tool 'read_fiel'; did you mean 'read_file'?"
    assert unknown_tool("zzz", ["b", "a"]) == "no tool 'zzz'; there are a, b"
    assert unknown_tool("zzz", []) == "no tool 'zzz'; there are no tools"
    assert unknown_tool("?", [f"tool{n:02}" for n in range(30)]).endswith("tool09, ...")


@pytest.mark.requirement("C1")
def test_a_legal_name_is_never_changed() -> None:
    names = of("read_file", "read-file", "_x", "a" * 64)

    assert dict(names.wire_names) == {name: name for name in ("read_file", "read-file", "_x", "a" * 64)}


@pytest.mark.requirement("C1")
def test_an_illegal_name_is_made_legal_and_found_again() -> None:
    names = of("github:create issue", "1st", "größe", "-x", "")

    assert names.wire("github:create issue") == "github_create_issue"
    assert names.wire("1st") == "_1st"
    assert names.wire("größe") == "gr__e"
    assert names.wire("-x") == "_-x"
    assert names.wire("") == "_"
    assert names.exposed("github_create_issue") == "github:create issue"
    assert names.exposed("github:create issue") == "github:create issue"
    assert names.exposed("nobody") is None


@pytest.mark.requirement("C1")
@pytest.mark.parametrize(
    "first, second",
    [
        ("read-only", "read_only"),
        ("a.b", "a_b"),
        ("a.b", "a:b"),
        ("x" * 64 + "1", "x" * 64 + "2"),
        ("x" * 64, "x" * 65),
        ("s" * 30 + "one-of-the-middle" * 2 + "e" * 30, "s" * 30 + "two-of-the-middle" * 2 + "e" * 30),
        ("mcp_very_long_server_name_" * 3 + "create", "mcp_very_long_server_name_" * 3 + "created"),
    ],
)
def test_names_that_other_clients_confuse_stay_apart(first: str, second: str) -> None:
    names = of(first, second)

    assert len(names) == 2
    for name in (first, second):
        assert LEGAL.match(names.wire(name))
        assert names.exposed(names.wire(name)) == name


@pytest.mark.requirement("C1")
def test_a_name_that_looks_like_a_suffixed_one_is_not_taken_twice() -> None:
    suffixed = of("a.b", "a_b").wire("a.b")

    names = of("a.b", "a_b", suffixed)

    assert names.wire(suffixed) == suffixed
    assert names.wire("a.b") != suffixed
    assert names.exposed(names.wire("a.b")) == "a.b"


@pytest.mark.requirement("C1")
def test_equal_tool_names_of_two_servers_have_two_wire_names_even_when_cut() -> None:
    long = "t" * 70
    names = NameMap([ToolName("a", long, f"a.{long}"), ToolName("b", long, f"a:{long}")])

    assert names.wire(f"a.{long}") != names.wire(f"a:{long}")


def test_a_name_from_an_old_conversation_is_made_legal_without_taking_a_present_one() -> None:
    names = of("a_b")

    assert names.wire("gone.tool") == "gone_tool"
    assert LEGAL.match(names.wire("x" * 100))
    assert names.wire("a.b") != "a_b"
    assert names.wire("a.b").startswith("a_b_")


def test_two_tools_of_one_exposed_name_are_refused() -> None:
    with pytest.raises(ValueError, match="'read'"):
        NameMap([ToolName("a", "read", "read"), ToolName("b", "read", "read")])


def test_definitions_are_taken_as_they_are() -> None:
    spec = ToolSpec(name="fs.read", original_name="read", server="fs")

    assert repr(NameMap([spec])) == "NameMap({'fs.read': 'fs_read'})"


@pytest.mark.slow
@pytest.mark.requirement("C1")
@given(tools=TOOLS)
def test_wire_names_are_legal_one_to_one_and_reversible(tools: Sequence[ToolName]) -> None:
    names = NameMap(tools)
    wires = [names.wire(tool.exposed) for tool in tools]

    assert all(LEGAL.match(wire) for wire in wires)
    assert len(set(wires)) == len(tools)
    assert [names.exposed(wire) for wire in wires] == [tool.exposed for tool in tools]


@pytest.mark.requirement("C1")
@given(tools=TOOLS, seed=st.integers())
def test_wire_names_do_not_depend_on_the_order_of_the_tools(tools: Sequence[ToolName], seed: int) -> None:
    shuffled = list(tools)
    random.Random(seed).shuffle(shuffled)

    assert NameMap(tools).wire_names == NameMap(shuffled).wire_names


@given(name=NAMES, tools=TOOLS)
def test_any_name_at_all_has_a_legal_wire_name(name: str, tools: Sequence[ToolName]) -> None:
    assert LEGAL.match(NameMap(tools).wire(name))


OF_APIS = {
    "OpenAI, Groq": r"[A-Za-z0-9_-]{1,64}",
    "Anthropic": r"[A-Za-z0-9_-]{1,128}",
    "Gemini, as all its pages say": r"[A-Za-z_][A-Za-z0-9_-]{0,62}[A-Za-z0-9_-]?",
    "Bedrock": r"[A-Za-z0-9_-]{1,64}",
    "Mistral": r"[A-Za-z0-9_-]{1,64}",
}


@pytest.mark.requirement("C1")
@pytest.mark.parametrize("api", OF_APIS)
def test_every_real_tool_has_a_name_that_the_api_takes_and_that_does_not_depend_on_others_or_their_order(
    definitions: list[dict[str, Any]], api: str
) -> None:
    exposed = sorted({expose(one["server"], one["name"]) for one in definitions})
    names, later = of(*exposed), of(*reversed(exposed))

    assert all(re.fullmatch(OF_APIS[api], names.wire(one)) for one in exposed)
    assert names.wire_names == later.wire_names
    assert [names.exposed(names.wire(one)) for one in exposed] == exposed
    alone = {one: of(one).wire(one) for one in exposed[:: max(1, len(exposed) // 200)]}
    assert all(names.wire(one) in (wire, f"{wire[:55]}_{names.wire(one)[-8:]}") for one, wire in alone.items())


@pytest.mark.requirement("C1")
def test_every_real_tool_has_a_wire_name_of_its_own(definitions: list[dict[str, Any]]) -> None:
    tools: dict[str, ToolName] = {}
    for definition in definitions:
        exposed = expose(definition["server"], definition["name"])
        tools.setdefault(exposed, ToolName(definition["server"], definition["name"], exposed))

    names = NameMap(tools.values())

    assert len(names) == len(tools) > 0.85 * len(definitions)
    for exposed in tools:
        assert LEGAL.match(names.wire(exposed))
        assert names.exposed(names.wire(exposed)) == exposed


@pytest.mark.parametrize("name", ["x" * 4_000_000, "list_" * 800_000], ids=["one letter", "words"])
def test_a_name_of_megabytes_that_no_tool_has_is_refused_at_once_and_not_said_back_whole(name: str) -> None:
    said = unknown_tool(name, [f"list_{number}" * 10 for number in range(2_000)] + ["y" * 1_000_000])
    assert said.startswith(f"no tool {name[:100]!r}"[:50])
    assert "4,000,000 characters in all" in said
    assert len(said) < 3_000
    assert "did you mean 'list_7'" in unknown_tool("lst_7", [f"list_{number}" for number in range(100)])
    assert json.dumps(said)
