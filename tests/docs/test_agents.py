"""docs/agents.md and docs/models.md say in tables what the code says in values."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator
from dataclasses import MISSING, fields
from typing import Any, get_args

import pytest

import toolweave.agent
from tests.docs.pages import CHECKOUT, tables
from tests.docs.test_pages import code_spans
from toolweave import Limits, ModelError
from toolweave.agent import Event, OnUnknown, ResultPolicy
from toolweave.agent._events import StopReason
from toolweave.models import AnthropicModel, Model, ModelEvent, OpenAICompatibleModel, Retry, model_from
from toolweave.models._retry import with_retries


def rows(page: str, heading: str | None = None) -> list[list[str]]:
    """Return the rows of one section, or those before the first heading."""
    found = list(tables(page, heading))
    assert found
    return found


def named(page: str, heading: str | None = None) -> list[str]:
    """Return what the first cells of a section's tables name."""
    return [span for row in rows(page, heading) for span in code_spans(row[0])]


def test_every_event_of_a_run_is_in_the_table() -> None:
    events = {
        name
        for name in toolweave.agent.__all__
        if inspect.isclass(value := getattr(toolweave.agent, name)) and issubclass(value, Event) and value is not Event
    }

    assert sorted(named("docs/agents.md", "A run")) == sorted(events)


def test_every_reason_for_which_a_run_ends_is_in_the_table() -> None:
    assert sorted(named("docs/agents.md", "How a run ends")) == sorted(get_args(StopReason))
    assert {row[1] for row in rows("docs/agents.md", "How a run ends")} == {
        *("completed", "stopped", "cancelled", "failed", "waiting")
    }


def test_the_table_of_limits_has_the_defaults() -> None:
    shown = {code_spans(name)[0]: default for name, default, _ in rows("docs/agents.md", "Limits")}
    ours = {one.name: "none" if one.default is None else f"{one.default:g}" for one in fields(Limits)}

    assert shown == ours
    assert not [one.name for one in fields(Limits) if one.default is MISSING]


def test_what_is_done_about_calls_of_unknown_outcome_is_in_the_table() -> None:
    spans = named("docs/agents.md", "Runs that outlive their process")

    assert [span.strip('"') for span in spans] == ["error", "ask", "rerun"]
    assert set(get_args(OnUnknown)) == {"error", "ask", "rerun"}


def test_the_numbers_in_the_text_are_the_defaults() -> None:
    text = (CHECKOUT / "docs" / "agents.md").read_text(encoding="utf-8")

    assert f"at most {ResultPolicy().max_chars:,} characters" in text
    options = inspect.signature(toolweave.Agent).parameters
    assert f"Above {options['defer_tools'].default:,} tokens" in text
    assert f"max_steps={options['max_steps'].default}," in text
    assert set(re.findall(r"ResultPolicy\((.*?)\)", text)[0].replace("=...", "").split(", ")) == {
        one.name for one in fields(ResultPolicy)
    }


def test_a_string_of_each_row_names_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    strings = [span for row in rows("docs/models.md") if row[0] for span in code_spans(row[0]) if "|" not in span]
    strings = [one for one in strings if ":" in one or one == "command"]
    for variable in ("ANTHROPIC", "OPENAI", "OPENROUTER", "GROQ", "MISTRAL", "DEEPSEEK"):
        monkeypatch.setenv(f"{variable}_API_KEY", "not a real one")

    made = [model_from(one.replace("PROVIDER", "google")) for one in strings if not one.startswith("api")]

    assert len(made) > 10
    assert all(isinstance(one, Model) for one in made)


@pytest.mark.parametrize(
    ("heading", "kind"),
    [("OpenAI and compatible servers", OpenAICompatibleModel), ("Anthropic", AnthropicModel)],
)
def test_the_options_of_a_model_are_its_parameters(heading: str, kind: Any) -> None:
    wanted = [name for name, one in inspect.signature(kind).parameters.items() if one.kind is one.KEYWORD_ONLY]

    assert sorted({*named("docs/models.md", heading), "model", "api_key"}) == sorted({*wanted, "model", "api_key"})


async def attempts_at(kind: str) -> int:
    """Return how often a request is sent that fails like this, when it may be sent twice."""
    sent = 0

    async def attempt() -> AsyncGenerator[ModelEvent, None]:
        nonlocal sent
        sent += 1
        raise ModelError(kind, model="m", kind=kind)
        yield

    with pytest.raises(ModelError, match=kind):
        async for _ in with_retries(attempt, Retry(attempts=2, first=0)):
            pass
    return sent


async def test_a_failure_is_retried_where_the_table_says_so() -> None:
    table = {code_spans(row[0])[0]: row[1] for row in rows("docs/models.md", "When a model cannot answer")}
    text = " ".join((ModelError.__doc__ or "").split())

    assert {f'"{kind}"' for kind in table} == set(re.findall(r'"[a-z_]+"', text))
    assert f"Retry(attempts={Retry().attempts}, first={Retry().first}," in (CHECKOUT / "docs/models.md").read_text()
    for kind, retried in table.items():
        assert await attempts_at(kind) == (2 if retried == "yes" else 1), kind
