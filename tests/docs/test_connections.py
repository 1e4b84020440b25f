"""docs/connections.md and docs/callbacks.md say in tables what the code says in values."""

from __future__ import annotations

import re
from typing import get_args

from tests.docs.pages import CHECKOUT, tables
from tests.docs.test_pages import code_spans
from toolweave import Callbacks, ErrorKind, ServerConfig
from toolweave.config import Timeouts
from toolweave.connect import ConnectionState
from toolweave.connect._events import EventName
from toolweave.connect._restart import RestartPolicy
from toolweave.connect._state import TRANSITIONS

PAGE = "docs/connections.md"


def first_spans(page: str, heading: str) -> list[str]:
    return [name for row in tables(page, heading) for name in code_spans(row[0])]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def test_the_table_of_states_is_the_state_machine() -> None:
    shown = {code_spans(state)[0]: set(code_spans(following)) for state, _, following in tables(PAGE, "States")}

    assert shown == {state.value: {following.value for following in TRANSITIONS[state]} for state in ConnectionState}


def test_the_restart_policy_has_the_numbers_of_the_page() -> None:
    policy = RestartPolicy()

    first, further, given_up, then = [numbers(text) for _, text in tables(PAGE, "Restarts")]

    assert first == [policy.first]
    assert further == [policy.factor, policy.cap]
    assert given_up == [policy.attempts, policy.stable, policy.losses, policy.window]
    assert then == [policy.cooldown]


def test_the_table_of_timeouts_has_every_bound_with_its_default() -> None:
    shown = {code_spans(bound)[0]: default for bound, default, _ in tables(PAGE, "Timeouts")}
    plain, slow = ServerConfig(command="server"), ServerConfig(command="npx")

    assert set(shown) == set(Timeouts.__struct_fields__)
    assert numbers(shown.pop("connect")) == [
        *(plain.connect_silence, plain.connect_timeout),
        *(slow.connect_silence, slow.connect_timeout),
    ]
    assert numbers(shown.pop("probe")) == [plain.probe_timeout, slow.probe_timeout]
    assert shown.pop("call_total") == "none"
    assert {name: float(text) for name, text in shown.items()} == {name: getattr(Timeouts(), name) for name in shown}


def test_the_table_of_events_has_them_all() -> None:
    assert set(first_spans(PAGE, "Events")) == set(get_args(EventName))


def test_the_outcomes_of_a_call_are_kinds_of_errors() -> None:
    kinds = first_spans(PAGE, "What is sent again")

    assert kinds
    assert set(kinds) <= {kind.value for kind in ErrorKind}


def test_the_table_of_callbacks_has_them_all() -> None:
    named = first_spans("docs/callbacks.md", "The callbacks")

    assert sorted(named) == sorted(Callbacks.__struct_fields__)


def test_every_decision_is_linked_from_the_architecture() -> None:
    text = (CHECKOUT / "ARCHITECTURE.md").read_text(encoding="utf-8")

    assert not [page.name for page in (CHECKOUT / "docs" / "decisions").glob("*.md") if page.name not in text]
