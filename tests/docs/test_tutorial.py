"""The last page of the tutorial: its gateway starts as the page describes, and its friend sees what the page shows."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT, FENCE, SNIPPETS
from tests.docs.test_blocks import without_times

PAGE = CHECKOUT / "docs" / "tutorial" / "5-gateway.md"
ADDRESS = "http://127.0.0.1:8000"
START = "toolweave gateway --config desk.json --http 8000"
pytestmark = pytest.mark.slow


def shown() -> list[tuple[str, str]]:
    """Return each command for the running gateway with the output that the page shows for it."""
    blocks = list(FENCE.finditer(PAGE.read_text(encoding="utf-8")))
    return [
        (command["text"].strip(), output["text"])
        for command, output in pairwise(blocks)
        if command["kind"] == "sh" and output["kind"] == "text"
    ]


@contextmanager
def gateway(folder: Path, env: dict[str, str]) -> Generator[str]:
    """Start the gateway of the page on a free port; yield its address."""
    command = START.replace("8000", "0")
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"], cwd=folder, env=env, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        found = next(match for line in process.stderr if (match := re.search(r"http://127\.0\.0\.1:\d+(?=/mcp)", line)))
        yield found[0]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_friend_sees_the_tools_that_the_rules_allow_and_nothing_without_the_key(tmp_path: Path) -> None:
    for name in ("desk.json", "desk_server.py"):
        shutil.copy(SNIPPETS / "tutorial" / name, tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "FRIEND_KEY": "0123456789abcdef" * 4, "COLUMNS": "100", "NO_COLOR": "1"}
    assert START in PAGE.read_text(encoding="utf-8")
    assert len(shown()) == 3

    with gateway(tmp_path, env) as url:
        for command, output in shown():
            done = subprocess.run(
                ["/bin/sh", "-c", command.replace(ADDRESS, url)],
                cwd=tmp_path,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=120,
                check=False,
            )
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            matches = doctest.OutputChecker().check_output(without_times(output), without_times(done.stdout), flags)
            assert matches, f"{command}\nprinted\n{done.stdout}"
