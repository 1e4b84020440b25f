"""Resources, prompts and completions survive being written by a server and read by a client."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.protocol.server_features import (
    Completion,
    Prompt,
    PromptArgument,
    Resource,
    ResourceTemplate,
    completion_json,
    completion_params,
    definition,
    prompt_result_json,
    read_completion,
    read_prompt,
    read_prompt_result,
    read_reference,
    read_resource,
    read_resource_contents,
    read_template,
)

texts = st.text(max_size=8)
objects = st.dictionaries(texts, texts, max_size=2)


def _icon(more: dict[str, str], path: str) -> dict[str, str]:
    return more | {"src": f"https://a.test/{path}"}


icons = st.builds(_icon, objects, texts)
common: dict[str, Any] = {
    "name": texts,
    "title": st.none() | texts,
    "description": texts,
    "icons": st.lists(icons, max_size=2).map(tuple),
    "meta": objects,
}
readable = common | {"mime_type": st.none() | texts, "annotations": st.none() | objects}
arguments = st.builds(PromptArgument, name=texts, description=texts, required=st.booleans())


@given(st.builds(Resource, uri=texts, size=st.none() | st.integers(0, 2**53), **readable))
def test_a_resource_survives_being_listed(item: Resource) -> None:
    assert read_resource(definition(item)).replace(raw={}) == item


@given(st.builds(ResourceTemplate, uri_template=texts, **readable))
def test_a_template_survives_being_listed(item: ResourceTemplate) -> None:
    assert read_template(definition(item)).replace(raw={}) == item


@pytest.mark.slow
@given(st.builds(Prompt, arguments=st.lists(arguments, max_size=3).map(tuple), **common))
def test_a_prompt_survives_being_listed(item: Prompt) -> None:
    assert read_prompt(definition(item)).replace(raw={}) == item


def test_a_definition_that_came_from_a_server_goes_out_as_it_came() -> None:
    entry = {"uri": "a:b", "name": 5, "vendor": None}

    assert definition(read_resource(entry)) == entry


@pytest.mark.slow
@given(st.lists(texts, max_size=3).map(tuple), st.none() | st.integers(0), st.booleans())
def test_completions_survive_being_answered(values: tuple[str, ...], total: int | None, has_more: bool) -> None:
    assert read_completion(completion_json(values, total=total, has_more=has_more)) == Completion(
        values=values, total=total, has_more=has_more
    )


@pytest.mark.parametrize(
    ("ref", "expected"),
    [({"type": "ref/prompt", "name": "p"}, ("prompt", "p")), ({"type": "ref/resource", "uri": "u"}, ("resource", "u"))],
)
def test_a_reference_is_read_as_it_is_sent(ref: dict[str, str], expected: tuple[str, str]) -> None:
    params = completion_params(ref, "argument", "te", context={"other": "x"})

    assert read_reference(params["ref"]) == expected
    assert params["context"] == {"arguments": {"other": "x"}}


@pytest.mark.parametrize(
    "ref", [{}, {"type": "ref/prompt", "uri": "u"}, {"type": "", "": "x"}, {"type": ["ref/prompt"]}]
)
def test_what_is_no_reference_is_a_value_error(ref: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="ref/prompt"):
        read_reference(ref)


def test_a_filled_in_prompt_survives_being_answered() -> None:
    made = prompt_result_json([("assistant", {"type": "text", "text": "Hi"})], "Greets")

    read = read_prompt_result(made)

    assert (read.description, [(one.role, one.content.render()) for one in read.messages]) == (
        "Greets",
        [("assistant", "Hi")],
    )


@pytest.mark.parametrize("read", [read_resource_contents, read_prompt_result])
def test_a_result_without_its_list_is_a_value_error(read: Any) -> None:
    with pytest.raises(ValueError, match="has no list"):
        read({})
