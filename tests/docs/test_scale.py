"""docs/scale.md: its examples over Redis as over memory, and the numbers in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT, SNIPPETS, printed_by, tables
from tests.docs.test_pages import code_spans
from toolweave.agent._stored.durable import WORKER_LEASE_SECONDS
from toolweave.cli._exit_codes import ExitCode
from toolweave.jobs._docket_worker import SILENT_SECONDS
from toolweave.jobs.retention import KEEP_SECONDS

TEXT = " ".join((CHECKOUT / "docs" / "scale.md").read_text(encoding="utf-8").split())


@pytest.mark.slow
@pytest.mark.parametrize("snippet", sorted(SNIPPETS.glob("scale_*.py")), ids=lambda path: path.stem)
def test_a_snippet_prints_the_same_over_redis(snippet: Path, redis_url: str, tmp_path: Path) -> None:
    assert printed_by(snippet, tmp_path, TOOLWEAVE_BACKEND=redis_url) == snippet.with_suffix(".out").read_text(
        encoding="utf-8"
    )


def test_the_times_in_the_text_are_those_of_the_code() -> None:
    words = {4: "four", 5: "five"}
    assert f"silent for {words[int(SILENT_SECONDS)]} seconds counts as dead" in TEXT
    assert f"Its lease expires after {words[int(WORKER_LEASE_SECONDS)]} seconds" in TEXT
    assert max(SILENT_SECONDS + 1, WORKER_LEASE_SECONDS) + 0.75 < 6  # a look a second, and what docket puts off
    assert "Running steps have 20 seconds to end (`--grace`)" in TEXT
    assert f"after a second signal (exit code {ExitCode.INTERRUPTED:d})" in TEXT
    assert f"kept for {KEEP_SECONDS / 86_400:g} days" in TEXT


def test_the_settings_are_those_that_a_redis_knows() -> None:
    rows = list(tables("docs/scale.md", "Settings of the server"))

    assert {code_spans(row[0])[0] for row in rows} == {
        *("appendonly", "appendfsync", "maxmemory-policy", "requirepass", "databases")
    }
