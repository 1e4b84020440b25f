"""Finding tools by words."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.doubles import Scripted, spec
from toolweave import ToolSpec
from toolweave.agent import ToolSearchToolset
from toolweave.tools import ToolSnapshot
from toolweave.tools._search import ToolIndex, words
from toolweave.tools._search_tool import estimated_tokens


def index(*specs: ToolSpec) -> ToolIndex:
    return ToolIndex(ToolSnapshot(specs, version=1))


def found(tools: ToolIndex, query: str, limit: int = 5) -> list[str]:
    return [match.tool.name for match in tools.search(query, limit)]


def takes(**parameters: Any) -> dict[str, Any]:
    return {"type": "object", "properties": parameters}


WEATHER = ToolSpec(name="forecast", server="weather", description="Says how warm it will be tomorrow.")
ISSUE = ToolSpec(
    name="createIssue",
    server="github",
    description="Opens a ticket in a repository.",
    input_schema=takes(assignees={"type": "array", "description": "People who shall work on it."}),
)
READ = ToolSpec(name="read_file", server="files", description="Returns what a file holds.")
WRITE = ToolSpec(name="write_file", server="files", title="Save", description="Puts text where it can be read again.")
ALL = (WEATHER, ISSUE, READ, WRITE)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("how warm", "forecast"),
        ("weather", "forecast"),
        ("create issue", "createIssue"),
        ("CREATE_ISSUES", "createIssue"),
        ("create-issue", "createIssue"),
        ("opening tickets", "createIssue"),
        ("assignee", "createIssue"),
        ("people who work", "createIssue"),
        ("read files", "read_file"),
        ("save", "write_file"),
        ("repo", "createIssue"),
        ("write_file", "write_file"),
    ],
)
def test_a_tool_is_found_by_its_name_its_server_its_description_and_its_parameters(query: str, first: str) -> None:
    assert found(index(*ALL), query)[0] == first


@pytest.mark.parametrize("query", ["", "   ", "of the and", "§$%&", "zzzz"])
def test_words_that_no_tool_has_find_nothing(query: str) -> None:
    assert found(index(*ALL), query) == []
    assert found(index(), query) == []


def test_an_exact_name_or_alias_comes_first_whatever_else_has_its_words() -> None:
    loud = ToolSpec(name="get", description="file " * 50 + "read read_file")
    quiet = ToolSpec(name="of_the", description="Nothing that a word finds.", aliases=("files:of_the",))

    assert found(index(loud, READ), "read_file")[0] == "read_file"
    assert found(index(loud, quiet), "of_the") == ["of_the"]
    assert found(index(loud, quiet), " files:of_the ")[0] == "of_the"


def test_of_tools_that_fit_equally_the_one_offered_first_comes_first() -> None:
    same = [ToolSpec(name=f"tool{letter}", description="Counts sheep.") for letter in "cab"]

    assert found(index(*same), "sheep") == ["toolc", "toola", "toolb"]
    assert found(index(*reversed(same)), "sheep") == ["toolb", "toola", "toolc"]


def test_no_more_are_returned_than_asked_for_and_scores_fall() -> None:
    matches = index(*ALL).search("read write file text issue", 3)

    assert len(matches) == 3
    assert [match.score for match in matches] == sorted((match.score for match in matches), reverse=True)
    assert index(*ALL).search("file", 0) == []


@pytest.mark.parametrize(
    ("description", "query"),
    [
        ("查询城市的天气预报", "天气"),
        ("查询城市的天气预报", "图片天气怎么样"),
        ("ファイルを検索します", "検索"),
        ("파일을 읽습니다", "파일"),
        ("ค้นหาไฟล์ในโฟลเดอร์", "ไฟล์"),
        ("Durchsucht Müllers Ordner", "MULLER"),
        ("Recherche les évènements de l'été", "evenement"),
        ("Ищет документы", "ДОКУМЕНТЫ"),
        ("Ｒｅａｄｓ ｆｉｌｅｓ", "files"),
    ],
)
def test_text_in_any_script_is_found(description: str, query: str) -> None:
    target = ToolSpec(name="x1", description=description)
    others = [
        ToolSpec(name="x2", description="删除用户账号"),
        ToolSpec(name="x3", description="ユーザーを作る"),
        ToolSpec(name="x4", description="Deletes an account."),
    ]

    assert found(index(*others, target), query)[0] == "x1"


@pytest.mark.parametrize(
    "name", ["createPullRequest", "create_pull_request", "create-pull-request", "create.pull.request"]
)
def test_identifiers_are_split_however_they_are_written(name: str) -> None:
    assert words(name)[:3] == words("create pull request")


def test_abbreviations_stay_whole_inside_an_identifier() -> None:
    assert words("parseHTMLFile") == [*words("parse html file"), *words("parsehtmlfile")]
    assert words("s3 v2 base64") == ["s3", "v2", "base64"]


def test_an_index_follows_a_snapshot_and_reads_again_only_what_changed() -> None:
    tools = index(*ALL)
    reads: list[str] = []

    class Watched(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            reads.append(key)
            return super().get(key, default)

    fresh = ToolSpec(name="delete_file", server="files", description="Removes a file.", input_schema=Watched(takes()))
    changed = ToolSpec(name="read_file", server="files", description="Shows a picture.")
    tools.update(ToolSnapshot((WEATHER, changed, WRITE, fresh), version=2))
    first_reads = len(reads)
    tools.update(ToolSnapshot((fresh, WEATHER, changed, WRITE), version=3))

    assert first_reads
    assert len(reads) == first_reads
    assert len(tools) == 4
    assert found(tools, "picture") == ["read_file"]
    assert found(tools, "what it holds") == []
    assert found(tools, "ticket") == []
    assert found(tools, "removing") == ["delete_file"]


SPECS = st.lists(
    st.builds(
        ToolSpec,
        name=st.text(string.ascii_letters + "_.天", min_size=1, max_size=8),
        description=st.text(max_size=30),
        input_schema=st.recursive(
            st.none() | st.booleans() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["properties", "items", "anyOf", "description", "a", "b"]), inner, max_size=3
                )
            ),
            max_leaves=8,
        ).filter(lambda value: isinstance(value, dict)),
    ),
    max_size=6,
    unique_by=lambda spec: spec.name,
)


@pytest.mark.slow
@given(before=SPECS, after=SPECS, query=st.text(max_size=20))
def test_an_index_that_followed_answers_as_one_made_anew(
    before: list[ToolSpec], after: list[ToolSpec], query: str
) -> None:
    followed = index(*before)
    followed.update(ToolSnapshot(after, version=2))
    anew = index(*after)

    for words_of_it in (query, *(one.description for one in after)):
        ours, theirs = followed.search(words_of_it), anew.search(words_of_it)
        assert [match.tool for match in ours] == [match.tool for match in theirs]
        assert [match.score for match in ours] == pytest.approx([match.score for match in theirs])


def test_a_schema_without_end_is_read_up_to_a_bound() -> None:
    deep: dict[str, Any] = takes(leaf={"description": "tiger"})
    for _ in range(5_000):
        deep = takes(level=deep)
    wide = takes(**{f"p{number}": {"description": "zebra"} for number in range(10_000)})

    assert found(index(ToolSpec(name="deep", input_schema=deep)), "tiger") == []
    assert found(index(ToolSpec(name="wide", input_schema=wide)), "zebra") == ["wide"]


def real_tools(definitions: list[dict[str, Any]]) -> ToolSnapshot:
    specs: dict[str, ToolSpec] = {}
    for one in definitions:
        name = f"{one['server']}_{one['name']}"
        schema: Any = one["inputSchema"]
        specs.setdefault(
            name,
            ToolSpec(
                name=name,
                original_name=one["name"],
                server=one["server"],
                description=one["description"] or "",
                input_schema=schema if isinstance(schema, Mapping) else {},  # pyright: ignore[reportUnknownArgumentType]
            ),
        )
    return ToolSnapshot(specs.values(), version=1)


def asked(spec: ToolSpec, length: int = 10) -> str:
    """Return the first words of the description, those of the name left out."""
    name = set(words(spec.name))
    kept = [word for word in spec.description.split() if words(word) and not name & set(words(word))]
    return " ".join(kept[:length])


def is_wanted(match: ToolSpec, spec: ToolSpec) -> bool:
    """The same server is in the data under several names: a twin is as good."""
    return match is spec or (match.original_name == spec.original_name and match.description == spec.description)


@pytest.mark.slow
def test_nine_of_ten_real_tools_are_among_the_first_five_for_words_of_their_description(
    definitions: list[dict[str, Any]],
) -> None:
    snapshot = real_tools(definitions)
    tools = ToolIndex(snapshot)
    step = max(1, len(snapshot) // 1_000)
    queries = [(spec, query) for spec in snapshot[::step] if len((query := asked(spec)).split()) >= 4]

    hits = [any(is_wanted(match.tool, spec) for match in tools.search(query, 5)) for spec, query in queries]
    firsts = [any(is_wanted(match.tool, spec) for match in tools.search(query, 1)) for spec, query in queries]

    assert len(queries) > 0.6 * len(snapshot) / step
    assert sum(hits) / len(hits) >= 0.93  # 0.95 when it was written
    assert sum(firsts) / len(firsts) >= 0.78  # 0.83


def test_the_budget_is_a_measure_of_the_definitions_and_is_itself_still_in_it() -> None:
    many = Scripted(ALL)
    size = estimated_tokens(ALL)

    assert not ToolSearchToolset(many, budget_tokens=size).active
    assert ToolSearchToolset(many, budget_tokens=size - 1).active


def test_the_estimate_grows_with_every_part_and_counts_a_character_of_three_bytes_as_more_than_a_letter() -> None:
    bare = spec("a" * 40)
    described = spec("a" * 40, description="b" * 400)
    chinese = spec("a" * 40, description="天" * 400)
    schema = spec("a" * 40, input_schema={"type": "object", "properties": {"x" * 400: {"type": "string"}}})

    assert estimated_tokens([described]) - estimated_tokens([bare]) == 100
    assert estimated_tokens([chinese]) - estimated_tokens([bare]) == 300
    assert estimated_tokens([schema]) > estimated_tokens([bare]) + 100
    assert estimated_tokens([bare, described]) == estimated_tokens([bare]) + estimated_tokens([described])
    assert estimated_tokens([spec("odd\ud800")]) > 0
