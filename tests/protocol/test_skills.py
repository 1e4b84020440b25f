"""Entries of skills are read as far as a host may trust them."""

from __future__ import annotations

from typing import Any

import pytest

from toolweave.protocol.skills import MAX_SKILL_FILES, content_digest, name_problem, read_skill, same_value, with_prefix

URI = "skill://acme/refunds/SKILL.md"


def entry(**changes: Any) -> dict[str, Any]:
    """Return a good entry with other members."""
    file = {"uri": URI, "digest": content_digest(b"x"), "size": 1}
    frontmatter = {"name": "refunds", "description": "Refunds."}
    return {"uri": URI, "frontmatter": frontmatter, "resources": [file], **changes}


def files(**changes: Any) -> dict[str, Any]:
    return entry(resources=[{**entry()["resources"][0], **changes}])


def test_an_entry_says_what_a_skill_is_and_comes_back_as_it_was() -> None:
    given = entry(future={"a": 1})
    skill = read_skill(given, server="docs")

    assert (skill.server, skill.name, skill.description) == ("docs", "refunds", "Refunds.")
    assert (skill.root, skill.size) == ("skill://acme/refunds", 1)
    assert skill.json() == given


def test_a_skill_without_fixed_files_has_none_to_count() -> None:
    skill = read_skill(entry(resources="dynamic"))

    assert (skill.files, skill.size, skill.file(URI)) == (None, None, None)
    assert skill.replace(raw={}).json() == entry(resources="dynamic")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (entry(uri=None), "no 'uri'"),
        (entry(frontmatter=[]), "no object 'frontmatter'"),
        (entry(frontmatter={"description": "d"}), "no 'name'"),
        (entry(frontmatter={"name": "refunds"}), "no 'description'"),
        (entry(frontmatter={"name": "other", "description": "d"}), "does not end with 'other/SKILL.md'"),
        (entry(resources=None), "neither a list nor 'dynamic'"),
        (entry(resources="none"), "neither a list nor 'dynamic'"),
        (entry(resources=[]), "lack SKILL.md itself"),
        (entry(resources=entry()["resources"] * 2), "twice"),
        (entry(resources=entry()["resources"] * (MAX_SKILL_FILES + 1)), "more than the 512"),
        (entry(resources=["x"]), "not the URI of a file in its folder"),
        (files(uri="skill://acme/refunds-more/SKILL.md"), "not the URI of a file in its folder"),
        (files(digest="sha256:" + "A" * 64), "is not 'sha256:' and 64 hexadecimal digits"),
        (files(digest="md5:" + "a" * 64), "is not 'sha256:' and 64 hexadecimal digits"),
        (files(size=-1), "not a number of bytes"),
        (files(size=True), "not a number of bytes"),
        (files(size=1.5), "not a number of bytes"),
        (files(size=16 * 1024 * 1024 + 1), "more than 16 MiB"),
    ],
)
def test_a_faulty_entry_is_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_skill(given)


@pytest.mark.parametrize("name", ["a", "a-b", "git-workflow-2", "0", "a" * 64])
def test_a_name_by_the_rules_is_good(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["", None, 7, "A", "a--b", "-a", "a-", "a_b", "a b", "é", "a" * 65, "a/b", "a\n"])
def test_a_name_against_the_rules_is_not(name: object) -> None:
    assert name_problem(name) is not None


def test_an_approval_ends_with_any_change_of_the_files_the_frontmatter_or_the_server() -> None:
    skill = read_skill(entry(), server="docs")
    others = [
        read_skill(entry(), server="other"),
        read_skill(files(digest=content_digest(b"y")), server="docs"),
        read_skill(entry(frontmatter={"name": "refunds", "description": "Others."}), server="docs"),
        read_skill(entry(resources="dynamic"), server="docs"),
    ]

    assert read_skill(entry(), server="docs").fingerprint == skill.fingerprint
    assert len({skill.fingerprint, *(one.fingerprint for one in others)}) == 5


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (None, None, True),
        (None, 0, False),
        ("1", 1, False),
        ([1, {"a": [True]}], [1.0, {"a": [True]}], True),
        ([1, {"a": [True]}], [1, {"a": [1]}], False),
        ([1], [1, 2], False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, [1], False),
    ],
)
def test_values_are_compared_as_json(one: object, other: object, same: bool) -> None:
    assert same_value(one, other) is same


def test_every_uri_of_an_entry_gets_a_prefix() -> None:
    made = with_prefix(entry(), "b+")

    assert made["uri"] == f"b+{URI}"
    assert [file["uri"] for file in made["resources"]] == [f"b+{URI}"]
    assert read_skill(made).root == "b+skill://acme/refunds"
    assert with_prefix(entry(resources="dynamic"), "b+")["resources"] == "dynamic"
