"""The kinds of faults that users reported of clients, servers and agents, each with the tests of its variations.

A fault that was mended once comes back in another form. Each kind therefore has at least three variations, which are
cases of the tests that are named here; a test that is renamed or loses its cases fails this file.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.programs import ran

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MIN_VARIATIONS = 3
CLIENTS: Mapping[str, tuple[str, str]] = {
    "null as the error beside a result": (
        "connect/test_http_answers.py",
        "test_an_answer_that_is_nearly_right_is_read_unless_its_owner_wants_no_repairs",
    ),
    "a pattern that a model API does not take": (
        "providers/test_lowering.py",
        "test_a_pattern_with_look_around_is_said_in_the_description",
    ),
    "a tool that a model API refuses": (
        "models/test_refused_tools.py",
        "test_a_tool_that_the_api_refuses_is_sent_again_with_a_simplified_schema",
    ),
    "nullable of OpenAPI": (
        "schema/test_validate.py",
        "test_null_is_valid_where_a_schema_of_openapi_says_so",
    ),
    "a session that is lost with another status": (
        "connect/test_lost_sessions.py",
        "test_a_session_that_is_lost_with_any_status_is_opened_anew_and_the_call_made",
    ),
    "a failure that is reported in another way": (
        "connect/test_results.py",
        "test_a_failure_that_is_reported_in_another_way_is_a_failure",
    ),
    "an error flag in another spelling": (
        "connect/test_spellings.py",
        "test_an_error_under_any_spelling_is_an_error",
    ),
    "content that is not a list of blocks": (
        "connect/test_results.py",
        "test_content_that_is_no_list_of_blocks_is_read_as_what_it_means",
    ),
    "the data itself as a result": (
        "connect/test_results.py",
        "test_a_result_that_is_the_data_itself_is_its_text",
    ),
    "half a character, or a number that JSON does not have": (
        "connect/test_lenient_properties.py",
        "test_the_second_reading_takes_memory_in_proportion_to_the_text",
    ),
    "a process that is forked with connections open": (
        "connect/test_fork.py",
        "test_a_forked_process_ends_without_a_trace_and_leaves_the_connections_of_its_parent_open",
    ),
    "limits of an API at another address": (
        "models/test_provider_refusals.py",
        "test_the_bounds_of_openai_hold_for_azure_too",
    ),
    "names of arguments that an API refuses": (
        "providers/test_lowering.py",
        "test_a_name_that_an_api_refuses_costs_no_tool_and_comes_back_as_it_was",
    ),
    "HTTP+SSE behind the prefix of a proxy": (
        "connect/test_http_sse.py",
        "test_messages_go_below_the_prefix_of_the_stream_if_the_named_url_is_not_there",
    ),
    "arguments as texts of JSON, at a client": (
        "connect/test_repaired_arguments.py",
        "test_arguments_that_nearly_fit_reach_the_server_as_its_schema_has_them",
    ),
    "references in another spelling": (
        "providers/test_lowering.py",
        "test_a_reference_is_followed_in_every_spelling",
    ),
    "an alternative that nothing fits": (
        "providers/test_lowering.py",
        "test_an_alternative_that_nothing_fits_is_dropped",
    ),
    "base64 in another form": (
        "connect/test_results.py",
        "test_data_in_another_form_of_base64_is_the_same_data",
    ),
    "an error of a proxy in place of the server's": (
        "connect/test_proxied_errors.py",
        "test_an_answer_through_a_proxy_names_the_proxy_and_how_to_do_without_it",
    ),
    "values of Python as arguments": (
        "connect/test_repaired_arguments.py",
        "test_models_and_paths_are_arguments",
    ),
    "one malformed keyword in a schema": (
        "schema/test_validate.py",
        "test_one_bad_keyword_costs_no_other_check",
    ),
}
SERVERS: Mapping[str, tuple[str, str]] = {
    "a default that is not finite": (
        "serve/test_definitions_not_json.py",
        "test_a_default_that_is_not_finite_is_left_out_of_the_schema_and_the_tool_stays",
    ),
    "a URI in another spelling": (
        "serve/test_resource_spellings.py",
        "test_a_resource_is_read_in_every_spelling_of_its_uri",
    ),
    "a partial with the signature of its function": (
        "schema/test_derive.py",
        "test_a_partial_does_not_ask_again_for_what_it_binds",
    ),
    "a protected server below an application": (
        "serve/test_auth_mounted.py",
        "test_the_metadata_are_where_the_challenge_says",
    ),
    "scopes that a server does not know": (
        "serve/test_oauth_server.py",
        "test_scopes_of_other_servers_are_ignored_and_the_response_names_what_was_granted",
    ),
    "a slash at the root of a host": (
        "serve/test_auth_claims.py",
        "test_at_the_root_of_a_host_a_slash_makes_no_other_audience",
    ),
    "several issuers and audiences": (
        "serve/test_auth_claims.py",
        "test_a_token_of_a_listed_issuer_is_accepted_for_a_listed_audience",
    ),
    "tokens without an audience": (
        "serve/test_auth_claims.py",
        "test_a_token_without_an_audience_is_accepted_from_listed_clients_alone",
    ),
    "arguments as texts of JSON, at a server": (
        "serve/test_repaired_arguments.py",
        "test_arguments_that_are_not_an_object_are_the_one_that_is_meant",
    ),
    "a token that is refused without a reason": (
        "serve/test_auth_claims.py",
        "test_one_line_of_the_log_says_why_a_token_was_refused",
    ),
    "an app that is started twice": (
        "compose/test_ownership.py",
        "test_an_app_can_be_started_again_in_a_process",
    ),
    "queries and paths in a URI template": (
        "serve/test_resources_templates.py",
        "test_a_template_matches_what_it_stands_for",
    ),
    "a misspelled option of an authorization": (
        "serve/test_auth_options.py",
        "test_a_misspelled_option_of_an_authorization_is_refused_with_the_nearest_name",
    ),
    "the headers of a tool's own request": (
        "serve/test_call_headers.py",
        "test_a_tool_sees_the_headers_of_its_own_request_without_credentials",
    ),
    "a header of each caller": (
        "gateway/test_caller_headers.py",
        "",
    ),
    "a section that is ignored": (
        "gateway/test_section_applied.py",
        "test_a_gateway_without_the_section_of_its_config_is_refused",
    ),
}
AGENTS: Mapping[str, tuple[str, str]] = {
    "one turn of a model in odd pieces": (
        "models/test_peers.py",
        "test_a_run_ends_as_its_rule_says",
    ),
    "ids and thoughts that go back to their provider": (
        "models/test_turn_ends.py",
        "test_ids_and_thoughts_go_back_to_their_server_byte_for_byte",
    ),
    "ids and thoughts that go to another provider": (
        "models/test_turn_ends.py",
        "test_another_server_gets_legal_ids_and_no_thoughts",
    ),
    "a call that its provider could not read": (
        "models/test_provider_refusals.py",
        "test_a_call_that_its_provider_could_not_read_goes_back_to_the_model",
    ),
    "the reason of the provider behind a router": (
        "models/test_provider_refusals.py",
        "test_the_reason_of_the_provider_behind_a_router_is_reported_with_its_name",
    ),
    "thoughts within a text": (
        "models/test_inline_thoughts.py",
        "test_a_thought_in_the_text_is_a_thought",
    ),
    "a structured answer among other text": (
        "agent/test_output.py",
        "test_of_several_candidates_the_last_that_fits_is_the_answer",
    ),
    "a turn without its last event": (
        "models/test_turn_ends.py",
        "test_a_turn_that_is_whole_counts_whatever_follows_it",
    ),
    "a stream that never ends": (
        "models/test_turn_ends.py",
        "test_pings_without_end_do_not_keep_a_turn_open",
    ),
    "an answer that its document does not promise": (
        "openapi/test_odd_documents.py",
        "test_a_call_that_succeeded_is_no_error_whatever_its_answer_looks_like",
    ),
    "a pattern that cannot be checked": (
        "openapi/test_odd_documents.py",
        "test_a_pattern_that_cannot_be_checked_costs_its_own_check",
    ),
    "a primary that becomes a replica": (
        "state/test_failover.py",
        "test_a_connection_to_a_server_that_is_not_the_primary_any_more_is_replaced",
    ),
    "a protection that a config names": (
        "config/test_editor_settings.py",
        "test_what_is_not_applied_is_named",
    ),
    "a name in each piece of a call": (
        "models/test_chat_calls.py",
        "test_pieces_of_one_call_are_one_call",
    ),
    "an empty list of allowed tools": (
        "config/test_tool_filters.py",
        "test_an_empty_list_means_what_it_means_to_its_owner",
    ),
    "a schema that is too large": (
        "openapi/test_odd_documents.py",
        "test_a_large_schema_is_shown_up_to_a_depth",
    ),
    "a call or a text that only deltas have": (
        "models/test_responses_items.py",
        "test_a_call_is_one_call_whichever_events_tell_it",
    ),
}
LATER: Mapping[str, tuple[str, str]] = {
    "an issuer with and without a slash": (
        "oauth/test_foreign_answers.py",
        "test_a_slash_at_its_end_makes_no_other_issuer",
    ),
    "a challenge outside of its grammar": (
        "oauth/test_foreign_answers.py",
        "test_the_metadata_are_where_the_challenge_names_them_in_any_form",
    ),
    "a token response in another form": (
        "oauth/test_foreign_answers.py",
        "test_a_token_counts_whatever_form_the_members_beside_it_have",
    ),
    "a server that refuses the newest revision": (
        "connect/test_older_revisions.py",
        "test_a_server_that_refuses_a_revision_is_asked_with_an_older_one",
    ),
    "a handshake without a revision": (
        "connect/test_older_revisions.py",
        "test_an_answer_without_a_revision_is_one_of_the_first",
    ),
    "a handshake in another spelling": (
        "connect/test_spellings.py",
        "test_a_handshake_in_another_spelling_is_a_handshake",
    ),
    "an input schema that is nearly one": (
        "connect/test_lenient_offers.py",
        "test_an_input_schema_that_is_nearly_one_is_the_schema_that_is_meant",
    ),
    "a list that is nearly one": (
        "connect/test_lenient_offers.py",
        "test_a_list_that_is_nearly_one_has_its_entries",
    ),
    "messages of a prompt in another form": (
        "connect/test_lenient_offers.py",
        "test_messages_of_a_prompt_are_those_that_are_meant",
    ),
    "an event stream in another form, and progress of nobody": (
        "connect/test_event_stream_forms.py",
        "test_an_answer_is_found_in_every_form_of_an_event_stream",
    ),
    "an error of TLS": (
        "cli/test_tls_errors.py",
        "test_what_is_wrong_with_tls_is_named_with_the_next_step",
    ),
    "words of other tools on the command line": (
        "cli/test_slips.py",
        "test_a_slip_has_a_hint_with_the_right_form",
    ),
    "null as parameters": (
        "serve/test_http_sloppy.py",
        "test_null_as_parameters_is_none_of_them",
    ),
    "media ranges that a client accepts": (
        "serve/test_protocol_rules.py",
        "test_media_ranges_of_accept_count",
    ),
    "values beside a refusal of the user": (
        "serve/test_rounds_clients.py",
        "test_values_beside_a_no_are_not_judged",
    ),
    "a server in an object of its entry": (
        "config/test_entries.py",
        "test_a_server_may_stand_in_an_object_of_its_entry",
    ),
    "names of transports": (
        "config/test_entries.py",
        "test_type_and_transport_are_synonyms",
    ),
    "marks of a template around the name of a tool": (
        "models/test_chat_calls.py",
        "test_the_marks_of_a_template_are_not_part_of_a_name",
    ),
    "arguments that are not one object": (
        "models/test_chat_calls.py",
        "test_arguments_that_are_not_one_object_go_back_to_the_model",
    ),
    "a finish reason of another name": (
        "models/test_chat_calls.py",
        "test_a_whole_call_counts_whatever_its_finish_reason_is_called",
    ),
    "a call without an id": (
        "models/test_chat_calls.py",
        "test_a_call_has_an_id_whatever_its_server_gives",
    ),
    "names of a proof in a description": (
        "definitions/test_scan.py",
        "test_names_of_a_proof_are_not_marks_of_a_models_template",
    ),
    "a switch for repairs that does not reach its program": (
        "cli/test_openapi_entries.py",
        "test_the_switch_for_repairs_reaches_the_program_that_serves_an_api",
    ),
    "a result within another": (
        "connect/test_results.py",
        "test_an_error_of_a_result_within_another_is_an_error",
    ),
    "a result within another, behind a gateway": (
        "gateway/test_results_within_results.py",
        "test_a_result_within_another_is_one_of_the_specification_for_every_client",
    ),
    "data without content, behind a gateway": (
        "gateway/test_results_within_results.py",
        "test_data_without_content_is_a_text_for_every_client",
    ),
    "data beside an empty content": (
        "connect/test_results.py",
        "test_data_beside_an_empty_content_is_its_text",
    ),
    "an image in the form of a model API": (
        "connect/test_results.py",
        "test_an_image_in_the_form_of_a_model_api_is_an_image",
    ),
    "the end of an event stream without an empty line, and other forms that no parser reads": (
        "connect/test_event_stream_forms.py",
        "test_an_answer_in_an_odd_form_is_reported_and_an_error_if_its_owner_wants_no_repairs",
    ),
    "warnings of an interpreter around an answer": (
        "connect/test_http_answers.py",
        "test_other_text_without_an_answer_to_the_request_is_an_error",
    ),
    "an event stream that stays open behind an answer without an empty line": (
        "connect/test_event_stream_forms.py",
        "test_an_answer_without_an_empty_line_is_read_although_its_stream_stays_open",
    ),
    "messages over stdio in the frames of LSP": (
        "connect/test_framing.py",
        "test_messages_behind_a_header_with_their_length_are_read",
    ),
    "arguments in a code block": (
        "models/test_chat_calls.py",
        "test_arguments_in_a_code_block_are_the_arguments",
    ),
    "a message in each line of an answer": (
        "connect/test_http_answers.py",
        "test_lines_without_a_whole_answer_are_not_an_answer",
    ),
    "a task in other words behind a gateway": (
        "gateway/test_tasks_in_other_words.py",
        "test_a_task_in_other_words_ends_for_the_caller_of_a_gateway",
    ),
}
KINDS: Mapping[str, tuple[str, str]] = {**CLIENTS, **SERVERS, **AGENTS, **LATER}
"""The file and the name of the test of each kind; without a name, all tests of the file."""


@cache
def cases() -> Counter[tuple[str, str]]:
    """Return the number of cases of each test, by its file and name, and of each file, by its name alone."""
    files = sorted({f"tests/{file}" for file, _ in KINDS.values()})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *files,
    ]
    done = ran(command, cwd=ROOT)
    found = re.findall(r"^tests/([\w/]+\.py)::(\w+)", done.stdout, re.MULTILINE)
    assert found, done.stdout + done.stderr
    return Counter(found) + Counter((file, "") for file, _ in found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_has_at_least_three_variations(kind: str) -> None:
    assert cases()[KINDS[kind]] >= MIN_VARIATIONS, "a test of this name is not there, or has too few cases"
