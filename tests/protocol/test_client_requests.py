"""Requests to a client and its answers survive being written by one side and read by the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolweave.protocol.client_requests import (
    ElicitationResult,
    Root,
    SamplingMessage,
    SamplingResult,
    capabilities_for,
    elicitation_request,
    elicitation_result_json,
    form_params,
    page_params,
    read_elicitation_result,
    read_roots,
    read_sampling_result,
    required_pages,
    roots_json,
    sampling_fields,
    sampling_params,
    sampling_result_json,
)
from toolweave.protocol.content import TextContent
from toolweave.protocol.input_required import (
    input_request,
    input_required,
    read_input_request,
    read_input_required,
)
from toolweave.protocol.logs import LogMessage, log_message, log_params

texts = st.text(max_size=8)
objects = st.dictionaries(texts, texts, max_size=2)
blocks = st.lists(st.builds(TextContent, text=texts), min_size=1, max_size=3).map(tuple)
FORM = {"type": "object", "properties": {"x": {"type": "string"}}}


@pytest.mark.parametrize("modern", [True, False])
def test_a_request_to_visit_a_page_is_read_as_it_was_made(modern: bool) -> None:
    read = elicitation_request(page_params("Pay", "https://pay.test", modern=modern), server="shop")

    assert (read.server, read.mode, read.message, read.url) == ("shop", "url", "Pay", "https://pay.test")
    assert (read.elicitation_id is None) is modern


def test_a_request_to_fill_in_a_form_is_read_as_it_was_made() -> None:
    read = elicitation_request(form_params("Who?", FORM), server="shop")

    assert (read.mode, read.message, read.schema, read.url) == ("form", "Who?", FORM, None)


@pytest.mark.parametrize("params", [{"mode": "dance"}, {"mode": "url"}, {"mode": "url", "url": "file:///etc/passwd"}])
def test_a_page_that_is_on_no_web_address_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"an elicitation .*'url'"):
        elicitation_request(params, server="any")


def test_the_pages_that_an_error_names_are_requests_to_visit_them() -> None:
    pages = required_pages({"elicitations": [{"url": "https://a.test", "elicitationId": "1"}, 5]})

    assert pages == [{"url": "https://a.test", "elicitationId": "1", "mode": "url"}, {"mode": "url"}]
    assert required_pages("none") == []


@given(st.builds(ElicitationResult.accept, objects) | st.sampled_from([ElicitationResult.decline()]))
def test_a_decision_survives_being_answered(decision: ElicitationResult) -> None:
    assert read_elicitation_result(elicitation_result_json(decision), form=True) == decision


@given(st.builds(SamplingMessage, role=st.sampled_from(["user", "assistant"]), content=blocks), st.integers(1, 9))
def test_a_conversation_survives_being_sent(message: SamplingMessage, max_tokens: int) -> None:
    made = sampling_params([message], max_tokens, system_prompt="s", temperature=1.0, tool_choice="none")

    fields = sampling_fields(made)

    [read] = fields["messages"]
    assert (read.role, read.content) == (message.role, message.content)
    assert fields["max_tokens"] == max_tokens
    assert (fields["system_prompt"], fields["temperature"], fields["tool_choice"]) == ("s", 1.0, "none")


@given(st.builds(SamplingResult, content=blocks, model=texts, stop_reason=st.none() | texts))
def test_a_models_answer_survives_being_sent(result: SamplingResult) -> None:
    assert read_sampling_result(sampling_result_json(result)) == result


@given(st.lists(st.builds(Root, uri=texts.map("file:///{}".format), name=st.none() | texts), max_size=3).map(tuple))
def test_roots_survive_being_sent(roots: tuple[Root, ...]) -> None:
    assert read_roots(roots_json(roots)) == roots


def test_capabilities_of_several_abilities_are_put_together() -> None:
    assert capabilities_for(["sampling", "sampling.tools", "elicitation", "elicitation.url"]) == {
        "sampling": {"tools": {}},
        "elicitation": {"form": {}, "url": {}},
    }


def test_a_result_that_asks_for_input_is_read_as_it_was_made() -> None:
    requests, state = read_input_required(input_required({"k": input_request("roots/list", {"a": 1})}, "sealed"))

    assert (read_input_request(requests["k"]), state) == (("roots/list", {"a": 1}), "sealed")


@pytest.mark.parametrize("result", [{}, {"inputRequests": 5}, {"inputRequests": {}, "requestState": 5}])
def test_a_result_that_asks_for_nothing_is_a_value_error(result: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"request for input|without saying"):
        read_input_required(result)


@pytest.mark.parametrize("logger", ["db", None])
def test_a_log_message_is_read_as_it_was_sent(logger: str | None) -> None:
    read = log_message(log_params("notice", {"a": 1}, logger), "shop")

    assert read == LogMessage(server="shop", level="notice", logger=logger, data={"a": 1})
