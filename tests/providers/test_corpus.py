"""Real definitions under every profile: what is sent, what is lost on the way, and what a model may write then."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from tests.providers.api_rules import rules_of, violations
from tests.schema.instances import instance
from tests.schema.losses import PAGE, Losses, measured, published, repairs, sentence, table
from toolweave.errors import SchemaError
from toolweave.providers import LoweredSchema, SchemaProfile
from toolweave.providers._strict import drop_fillers
from toolweave.schema import Validator


@dataclass
class Outcome:
    """What one pass over the definitions found."""

    schemas: list[dict[str, Any]]
    rows: list[Losses] = field(default_factory=list[Losses])
    refused: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    violations: list[str] = field(default_factory=list[str])
    unreported: list[str] = field(default_factory=list[str])
    written: Counter[str] = field(default_factory=Counter[str])


class Pass:
    """Looks at each lowered schema once, however many profiles have the same."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.validators = [self.validator(schema) for schema in outcome.schemas]
        self.seen: set[tuple[Any, ...]] = set()

    @staticmethod
    def validator(schema: dict[str, Any]) -> Validator | None:
        try:
            return Validator(schema)
        except SchemaError:  # some servers' schemas are none, and nothing is checked with them
            return None

    def take(self, number: int, profile: SchemaProfile, lowered: LoweredSchema | SchemaError) -> None:
        if isinstance(lowered, SchemaError):
            self.outcome.refused.setdefault(profile, Counter())[lowered.message] += 1
            return
        key = (number, msgspec.json.encode(lowered.schema), bool(lowered.losses), lowered.fillers)
        rules = (key[1], rules_of(profile))
        if rules not in self.seen:
            self.seen.add(rules)
            found = violations(profile, lowered.schema)
            self.outcome.violations += [f"{profile}, {number}: {one}" for one in found]
        if key not in self.seen:
            self.seen.add(key)
            self.write(number, profile, lowered)

    def write(self, number: int, profile: str, lowered: LoweredSchema) -> None:
        """Write arguments as a model would, and check them as a call is checked."""
        allowed = jsonschema_rs.Draft202012Validator(lowered.schema)
        validator, written = self.validators[number], self.outcome.written
        for full in (False, True):
            arguments = instance(lowered.schema, number, full=full)
            if not allowed.is_valid(arguments):
                written["not made"] += 1
                continue
            arguments = {lowered.renamed.get(name, name): value for name, value in arguments.items()}
            if lowered.fillers:
                arguments = drop_fillers(arguments, self.outcome.schemas[number])
            if validator is None:
                written["not checked"] += 1
            elif validator.is_valid(arguments):
                written["fits"] += 1
            else:
                problems = validator.problems(arguments)
                assert problems
                written["caught"] += 1
                if not lowered.losses:
                    self.outcome.unreported.append(f"{profile}, {number}: {problems[0]}")


@pytest.fixture(scope="module")
def outcome(definitions: list[dict[str, Any]]) -> Outcome:
    schemas: list[dict[str, Any]] = [one["inputSchema"] for one in definitions if isinstance(one["inputSchema"], dict)]
    found = Outcome(schemas)
    found.rows = measured(schemas, Pass(found).take)
    return found


@pytest.mark.slow
@pytest.mark.requirement("R43")
def test_every_api_takes_what_it_is_sent(outcome: Outcome) -> None:
    assert not outcome.violations[:5]


def test_no_tool_is_refused_but_where_strict_mode_has_no_words(outcome: Outcome) -> None:
    plain = {name: reasons for name, reasons in outcome.refused.items() if not name.endswith("strict")}
    total = len(outcome.schemas)

    assert not plain
    assert all(sum(reasons.values()) < 0.3 * total for reasons in outcome.refused.values())
    assert all(sum(row[1:5]) == total for row in outcome.rows)


@pytest.mark.requirement("R46")
def test_arguments_that_the_api_lets_pass_fit_the_tool_or_are_caught(outcome: Outcome) -> None:
    written = outcome.written

    assert not outcome.unreported[:5]
    assert written["fits"] > 0.8 * written.total()
    assert written["not made"] < 0.05 * written.total()
    assert written["caught"]


def test_the_page_has_the_losses_of_these_definitions(outcome: Outcome, request: pytest.FixtureRequest) -> None:
    name = "our definitions" if "ours" in request.node.name else "public servers"

    assert published(name) == table(outcome.rows), f"{PAGE.name} is out of date: run scripts/schemas"


@pytest.mark.slow
def test_arguments_that_are_texts_are_repaired_to_what_they_were(
    outcome: Outcome, request: pytest.FixtureRequest
) -> None:
    name = "our definitions" if "ours" in request.node.name else "public servers"
    counts = repairs(outcome.schemas)

    repaired = counts["as they were"] + counts["with a text that the schema takes"]
    assert repaired > 0.95 * (repaired + counts["refused"])
    assert published(f"repairs of {name}") == sentence(counts), f"{PAGE.name} is out of date: run scripts/schemas"
