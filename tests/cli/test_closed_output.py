"""The command whose output is closed, or cannot be written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.programs import ran


@pytest.mark.slow
@pytest.mark.parametrize("redirection, code", [(">&-", 0), (">/dev/full", 2), ("2>/dev/full", 0), ("<&- 2>&-", 0)])
@pytest.mark.parametrize("words", ["--help", "config show --json"])
def test_an_output_that_is_closed_or_full_is_never_a_traceback(
    redirection: str, code: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    command = f"{sys.executable} -m toolweave {words} {redirection}"

    done = ran(["bash", "-c", command], cwd=tmp_path)

    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert (done.returncode == 0) == (code == 0), done.stderr
